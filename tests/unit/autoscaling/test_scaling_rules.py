from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.controller import Behavior, Controller
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import ACTIVITIES, PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import desired_replicas
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaling_rules import (
    DEFAULT_SCALE_DOWN,
    dead_time_s,
    default_scale_up,
    scale_up_to,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler


@pytest.mark.parametrize(
    ("pod_start_s", "lag_s", "expected"),
    [(0, 5, 15), (10, 5, 15), (10.1, 5, 20), (50, 5, 60), (100, 62, 180), (4000, 60, 1800)],
)
def test_a_dead_time_is_rounded_up_to_a_step(pod_start_s: float, lag_s: float, expected: int) -> None:
    assert dead_time_s(pod_start_s, lag_s) == expected


@pytest.mark.parametrize("dead_time", [15, 180, 600, 1800])
def test_a_step_up_takes_a_dead_time(dead_time: int) -> None:
    rules = default_scale_up(dead_time)
    assert {policy.period_seconds for policy in rules.policies} == {dead_time}
    assert rules.stabilization_window_seconds == 0


ACTIVITY, OTHER = sorted(ACTIVITIES), sorted(set(PROFILES) - set(ACTIVITIES))
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        *(({"metric": metric}, "activity") for metric in ACTIVITY),
        *(({"metric": metric}, "other") for metric in OTHER),
        ({"metric": "gpu", "extra_metrics": [CPU]}, "other"),
        ({"metric": {"name": "own", "query": "own"}}, "other"),
        ({"metric": "gpu", "demand": {"offered": "o", "served": "s"}}, "demand"),
    ],
    ids=str,
)
@pytest.mark.parametrize("dead_time", [15, 600])
def test_only_what_full_pods_prove_is_scaled_to_at_once(options: Any, kind: str, dead_time: int) -> None:
    autoscaler = Autoscaler.from_params(
        {"target": {"name": "chat"}, "max_replicas": 8, "dead_time_seconds": dead_time, "target_value": 60, **options}
    )
    expected = {
        "activity": default_scale_up(dead_time, 67),
        "demand": scale_up_to(8),
        "other": default_scale_up(dead_time),
    }
    assert (autoscaler.scale_up, autoscaler.scale_down) == (expected[kind], DEFAULT_SCALE_DOWN)


def replayed(pods: int, *, load: float, target: float, start_s: float, busy: bool, sync_s: float = 15) -> list[int]:
    """Replicas over 15 minutes of a load in percent, if new pods compute at 100 percent while they start, or idle."""
    options = {"target": {"name": "chat"}, "max_replicas": 200, "metric": "gpu", "target_value": target}
    autoscaler = Autoscaler.from_params({**options, "dead_time_seconds": dead_time_s(start_s, 5)})
    controller = Controller(1, 200, Behavior(autoscaler.scale_up, autoscaler.scale_down))
    made, seen = [-start_s] * pods, []
    for step in range(round(900 / sync_s)):
        now = step * sync_s
        ready = sum(at + start_s <= now for at in made)
        values = [min(load / ready, 100.0)] * ready + [100.0] * (len(made) - ready) * busy
        wanted = desired_replicas(values, target, current=len(made), missing=len(made) - len(values))
        replicas = controller.decide(now, len(made), wanted).replicas
        made = made[:replicas] + [now] * (replicas - len(made))
        seen.append(replicas)
    return seen


@pytest.mark.parametrize("target", [40, 50, 60, 80])
@pytest.mark.parametrize("pods", [1, 4, 10])
@pytest.mark.parametrize("start_s", [10, 60, 300])
def test_pods_that_compute_while_they_start_prove_no_more_pods(target: float, pods: int, start_s: float) -> None:
    """Full pods prove a share more. Each further step may add that share again, and nothing runs away."""
    load = pods * 100.0
    needed = -(-load // target)
    idle, busy = (max(replayed(pods, load=load, target=target, start_s=start_s, busy=busy)) for busy in (False, True))
    assert idle == needed
    assert busy <= needed + 1


def test_a_load_that_grows_is_followed_without_waiting_for_the_dead_time() -> None:
    """As soon as the next pods are full, which is when they are ready."""
    first = next(
        at for at, replicas in enumerate(replayed(1, load=1000, target=60, start_s=60, busy=False)) if replicas >= 17
    )
    assert first * 15 <= 6 * 75
