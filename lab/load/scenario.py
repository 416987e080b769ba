"""The steps of the demo and their goals: pure, apart from the clock and the cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

INTERVAL_S = 0.5
# Names of the steps, by the demo's mode. The first is always of the low load, and the second of the high one.
# "up" leaves the high load on, and "down-up" begins there.
PLAYS = {
    "up-down": ("settle", "step up", "step down"),
    "up": ("settle", "step up"),
    "down-up": ("step down", "step up"),
}


@dataclass(frozen=True)
class Autoscaler:
    """Settings of the HPA.

    metric:         name of its Pods metric.
    has_demand:     it also has a demand, which first has to learn the cost of a request.
    target_percent: that metric's averageValue, percent of one GPU.
    """

    name: str
    deployment: str
    metric: str
    target_percent: float
    min_replicas: int
    max_replicas: int
    has_demand: bool = False

    def ideal(self, gpus: float) -> int:
        """The fewest replicas that stay at or below the target under a load of `gpus` GPU-seconds a second."""
        # Rounded first: 2.4 / 0.6 is 4 and not 4.000000000000001.
        wanted = math.ceil(round(gpus * 100 / self.target_percent, 6))
        return min(max(wanted, self.min_replicas), self.max_replicas)


@dataclass(frozen=True)
class Step:
    """One load, and the condition to wait for.

    gpus:       requested GPU-seconds per second.
    replicas:   both wanted by the HPA and ready, for `hold_s` consecutive seconds.
    deadline_s: seconds after which the wait ends.
    learns:     also wait for the demand's cost.
    """

    name: str
    gpus: float
    replicas: int
    hold_s: float
    deadline_s: float
    learns: bool = False


def steps(
    autoscaler: Autoscaler, low_gpus: float, high_gpus: float, hold_s: float = 30, play: str = "up-down"
) -> list[Step]:
    """The steps of one of PLAYS, between a steady minimum and the high load, which is held for `hold_s`."""
    low, high = autoscaler.ideal(low_gpus), autoscaler.ideal(high_gpus)
    known = {
        "settle": Step("settle", low_gpus, low, hold_s=10, deadline_s=250, learns=autoscaler.has_demand),
        "step up": Step("step up", high_gpus, high, hold_s=hold_s, deadline_s=240),
        "step down": Step("step down", low_gpus, low, hold_s=5, deadline_s=300, learns=autoscaler.has_demand),
    }
    return [known[name] for name in PLAYS[play]]


@dataclass(frozen=True)
class Sample:
    """The demo at one moment.

    at_s:        seconds since its start.
    utilisation: percent of one GPU by pod, as the HPA's metric has it.
    desired:     desired replicas of the Deployment.
    """

    at_s: float
    step: str
    asked_per_s: float
    served_per_s: float
    rejected_per_s: float
    failed_per_s: float
    utilisation: dict[str, float]
    ready: int
    desired: int


@dataclass
class Recording:
    """The whole recording. `begins` has the second at which each step's load was set."""

    samples: list[Sample] = field(default_factory=list)
    begins: dict[str, float] = field(default_factory=dict)

    def of(self, step: str) -> Iterator[Sample]:
        return (sample for sample in self.samples if sample.step == step)


class Cluster(Protocol):
    def demand(self, gpus: float) -> None: ...

    def observe(self, at_s: float, step: str) -> Sample: ...

    def has_learned(self) -> bool:
        """Whether the demand has learned the cost of a request."""
        ...


class NotReached(Exception):
    """A step did not reach its replicas, or did not keep them."""

    def __init__(self, step: Step, seen: Sample) -> None:
        loads = ", ".join(f"{pod} {percent:.0f} %" for pod, percent in seen.utilisation.items()) or "no pod has a value"
        super().__init__(
            f"HPA -> Deployment: {step.name} wanted {step.replicas} replicas"
            f"{' and a cost that is learned' if step.learns else ''} within {step.deadline_s:.0f} s.\n"
            f"  seen: {seen.desired} wanted by the HPA, {seen.ready} ready; utilisation: {loads}"
        )


def play(
    plan: list[Step],
    cluster: Cluster,
    recording: Recording,
    show: Callable[[Step, Sample], None],
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> None:
    """Run the steps and record them.

    Raises NotReached at the first step that misses its deadline.
    """
    start = clock()
    for step in plan:
        cluster.demand(step.gpus)
        begin = recording.begins[step.name] = round(clock() - start, 2)
        steady_since: float | None = None
        while True:
            sample = cluster.observe(clock() - start, step.name)
            recording.samples.append(sample)
            show(step, sample)
            if not sample.ready == sample.desired == step.replicas:
                steady_since = None
            elif steady_since is None:
                steady_since = sample.at_s
            held = steady_since is not None and clock() - start - steady_since >= step.hold_s
            if held and (not step.learns or cluster.has_learned()):
                break
            if sample.at_s - begin > step.deadline_s:
                raise NotReached(step, sample)
            pause(INTERVAL_S)
