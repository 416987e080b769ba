"""Steps of the load, played through the controller's arithmetic: how far and how fast the demand takes the replicas."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.demand import SUSTAINED_S
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import (
    desired_replicas,
    desired_replicas_by_total,
    desired_replicas_together,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler

TARGET, MOST = 60, 12
# Seconds: what the controller waits between two looks, and how old what it sees is.
SYNC, LAG = 5, 5
LOW, HIGH, STEP_AT, END = 0.15, 2.75, 60, 1500
POD_STARTS = (0, 30, 90, 300)


def ideal(gpus: float) -> int:
    return min(max(ceil(round(gpus * 100 / TARGET, 6)), 1), MOST)


@dataclass
class Workload:
    """One autoscaler and its pods.

    cost_error: what the learned cost is, over what it truly is; None for no demand.
    wanted:     replicas by second. busy: what each ready pod does, percent, by second.
    """

    pod_start_s: int
    cost_error: float | None
    ready_at: list[int] = field(default_factory=lambda: [-1000])
    wanted: list[int] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)

    def play(self) -> list[int]:
        demand = None if self.cost_error is None else {"offered": "asked_total", "served": "served_total"}
        spec = {"target": {"name": "chat"}, "max_replicas": MOST, "target_value": TARGET, "demand": demand}
        self.rules = Autoscaler.from_params({**spec, "dead_time_seconds": max(self.pod_start_s + LAG, 15)})
        recommended: list[int] = []
        for now in range(END):
            current = len(self.ready_at)
            load = HIGH if now >= STEP_AT else LOW
            self.busy.append(min(load / max(sum(at <= now for at in self.ready_at), 1), 1) * 100)
            if now % SYNC == 0:
                recommended.append(self._proposal(now - LAG, now))
                down_s = self.rules.scale_down.stabilization_window_seconds
                stable = max(recommended[-down_s // SYNC :])
                up = min(recommended[-1], self._most(now))
                self._scale(up if up > current else min(stable, current), now)
            self.wanted.append(len(self.ready_at))
        return self.wanted

    def _proposal(self, seen_at: int, now: int) -> int:
        """What the metrics ask for, as they were `LAG` ago; pods that have become ready since have no value."""
        current = len(self.ready_at)
        with_value = [at for at in self.ready_at if at <= seen_at]
        ready = [at for at in self.ready_at if at <= now]
        load = HIGH if seen_at >= STEP_AT else LOW
        since = seen_at if self.cost_error is None else seen_at - SUSTAINED_S
        least = min(self.busy[max(since, 0) : seen_at + 1], default=LOW * 100)
        proposals = [
            desired_replicas(
                # Before it was ready, its GPU did nothing.
                [least if at <= since else 0 for at in with_value],
                TARGET,
                current=current,
                missing=len(ready) - len(with_value),
                unready=current - len(ready),
            )
        ]
        if self.cost_error is not None:
            total = load * self.cost_error * 100
            proposals.append(desired_replicas_by_total(total, TARGET, status_replicas=current))
        return min(max(desired_replicas_together(proposals, current=current), 1), MOST)

    def _most(self, now: int) -> int:
        """What the policies allow: the larger of pods and percent, in their period."""
        allowed = []
        for policy in self.rules.scale_up.policies:
            began = self.wanted[-policy.period_seconds] if len(self.wanted) >= policy.period_seconds else 1
            step = policy.value if policy.type == "Pods" else ceil(began * policy.value / 100)
            allowed.append(began + step)
        return max(allowed)

    def _scale(self, replicas: int, now: int) -> None:
        self.ready_at = self.ready_at[:replicas] + [now + self.pod_start_s] * (replicas - len(self.ready_at))


def changes(wanted: list[int]) -> list[int]:
    """The replicas after each decision."""
    return [now for before, now in pairwise(wanted) if before != now]


@pytest.mark.parametrize("pod_start_s", POD_STARTS)
def test_one_decision_goes_to_the_ideal(pod_start_s: int) -> None:
    wanted = Workload(pod_start_s, cost_error=1).play()
    assert changes(wanted) == [ideal(HIGH)]
    assert wanted[STEP_AT + LAG + SYNC] == ideal(HIGH)


@pytest.mark.parametrize("pod_start_s", POD_STARTS)
@pytest.mark.parametrize("cost_error", [0.5, 0.8, 1.25, 2])
def test_a_wrong_cost_goes_no_further_than_it_says_and_never_back(pod_start_s: int, cost_error: float) -> None:
    wanted = Workload(pod_start_s, cost_error).play()
    decisions = changes(wanted)
    assert decisions == sorted(decisions)
    assert ideal(HIGH) <= wanted[-1] == max(wanted) <= max(ideal(HIGH), ideal(HIGH * cost_error))


@pytest.mark.parametrize("pod_start_s", POD_STARTS)
@pytest.mark.parametrize("cost_error", [0.5, 1])
def test_it_is_never_slower_than_without(pod_start_s: int, cost_error: float) -> None:
    with_demand, without = (Workload(pod_start_s, error).play() for error in (cost_error, None))
    assert with_demand.index(ideal(HIGH)) <= without.index(ideal(HIGH))
