"""Cases for the HPA controller: a workload with pods in every state, and the metrics that its HPA asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan, nan
from random import Random
from typing import Literal

from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import (
    DEFAULT_TOLERANCE,
    Tolerance,
    desired_replicas,
    desired_replicas_by_total,
    desired_replicas_by_value,
    desired_replicas_together,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError

SEED = 1536


@dataclass(frozen=True)
class State:
    """counts: running: by its value, or as missing; pending: as unready; gone: not at all."""

    phase: str = "Running"
    ready: bool = False
    terminating: bool = False
    counts: Literal["running", "pending", "gone"] = "running"


READY = State(ready=True)
NOT_READY = State()
PENDING = State("Pending", counts="pending")
SUCCEEDED = State("Succeeded")
FAILED = State("Failed", counts="gone")
TERMINATING = State(ready=True, terminating=True, counts="gone")
# How many of a hundred pods are in each.
STATES = {READY: 66, NOT_READY: 10, PENDING: 12, SUCCEEDED: 3, FAILED: 4, TERMINATING: 5}


@dataclass(frozen=True)
class Pod:
    """value: what is recorded, None if nothing is."""

    state: State = READY
    value: float | None = None


@dataclass(frozen=True)
class Metric:
    """form:  Pods with AverageValue, Object with Value, Object with AverageValue.
    value: what the object says, None if it says nothing. The pods' values are theirs.
    """

    form: Literal["pods", "value", "total"]
    target: float
    value: float | None = None


@dataclass(frozen=True)
class Case:
    """spec, status: replicas of the target's scale subresource."""

    pods: tuple[Pod, ...]
    metrics: tuple[Metric, ...]
    spec: int
    status: int = 0
    tolerance: Tolerance | None = None

    @property
    def expected(self) -> int:
        """What the functions under test say; the HPA's minimum is 1."""
        return max(1, desired_replicas_together([self._proposal(metric) for metric in self.metrics], current=self.spec))

    def _proposal(self, metric: Metric) -> int | None:
        tolerance = self.tolerance or DEFAULT_TOLERANCE
        if metric.form == "pods":
            return self._of_the_pods(metric.target, tolerance)
        if not is_offered(metric.value):
            return None
        if metric.form == "total":
            return desired_replicas_by_total(
                metric.value, metric.target, status_replicas=self.status, tolerance=tolerance
            )
        ready = sum(pod.state.ready for pod in self.pods)
        return desired_replicas_by_value(
            metric.value, metric.target, current=self.spec, ready=ready, tolerance=tolerance
        )

    def _of_the_pods(self, target: float, tolerance: Tolerance) -> int | None:
        running = [pod.value for pod in self.pods if pod.state.counts == "running"]
        usage = [value for value in running if is_offered(value)]
        missing = len(running) - len(usage)
        unready = sum(pod.state.counts == "pending" for pod in self.pods)
        try:
            return desired_replicas(
                usage, target, current=self.spec, missing=missing, unready=unready, tolerance=tolerance
            )
        except HopError:
            return None


def is_offered(value: float | None) -> bool:
    """Whether the adapter has a value: what is no number it leaves out."""
    return value is not None and not isnan(value)


def cases() -> dict[str, Case]:
    """The same ones each time."""
    random = Random(SEED)
    drawn = {
        f"{make.__name__.strip('_')}-{number}": make(random) for make, count in KINDS.items() for number in range(count)
    }
    return drawn | {name.replace(" ", "-"): case for name, case in NUMBERS.items()}


def _mixed(random: Random) -> Case:
    """Pods in every state, a load from nothing to the threefold."""
    target = _target(random)
    pods = _pods(random, target * random.uniform(0, 3))
    return Case(pods, (Metric("pods", target),), spec=_replicas(random, pods), tolerance=_tolerance(random))


def _edge(random: Random) -> Case:
    """On the edge of the tolerance, or a thousandth beside it. What stays differs well from what does not."""
    target, tolerance = random.randint(1, 100), _tolerance(random)
    width = tolerance or DEFAULT_TOLERANCE
    ratio = random.choice([1 + width.up, 1 - width.down])
    beside = random.choice([-0.001, -0.001, -0.0004, 0, 0, 0.0004, 0.001, 0.001])
    if random.random() < 0.3:
        status = random.randint(100, 200)
        total = Metric("total", target, round(status * target * ratio + beside, 4))
        return Case((Pod(),), (total,), spec=status, status=status, tolerance=tolerance)
    pods = (Pod(value=round(target * ratio + beside, 4)),) * random.randint(1, 6)
    metric = random.choice([Metric("pods", target), Metric("value", target, pods[0].value)])
    return Case(pods, (metric,), spec=len(pods) + random.randint(4, 9), tolerance=tolerance)


def _silent(random: Random) -> Case:
    """So many pods without a value that they may turn the direction."""
    target = _target(random)
    level = target * random.choice([0.2, 0.5, 0.8, 1, 1, 1.2, 1.5, 3, 6])
    speaking = [Pod(random.choice([READY, NOT_READY]), level) for _ in range(random.randint(1, 4))]
    silent = [Pod(random.choice([*STATES])) for _ in range(random.randint(1, 4))]
    pods = (*speaking, *silent)
    return Case(pods, (Metric("pods", target),), spec=random.randint(1, 10), tolerance=_tolerance(random))


def _mute(random: Random) -> Case:
    """No pod whose value counts."""
    states = [Pod(READY), Pod(NOT_READY), Pod(PENDING, 50), Pod(FAILED, 50), Pod(TERMINATING, 50)]
    pods = tuple(random.choices(states, k=random.randint(0, 5)))
    return Case(pods, (Metric("pods", 60),), spec=random.randint(2, 5))


def _object(random: Random) -> Case:
    """An object's value, or its total, beside pods in every state."""
    metric = _object_metric(random, load=3)
    pods = _pods(random, metric.target)
    replicas = _replicas(random, pods)
    return Case(pods, (metric,), spec=replicas, status=_replicas(random, pods), tolerance=_tolerance(random))


def _together(random: Random) -> Case:
    """Several metrics, of which some have no value."""
    target = _target(random)
    pods = _pods(random, target * random.uniform(0, 1.5), silent=random.choice([0.2, 0.2, 1]))
    objects = [_object_metric(random, load=1.5, silent=0.2) for _ in range(random.randint(1, 2))]
    metrics = random.sample([Metric("pods", target), *objects], k=len(objects) + 1)
    return Case(pods, tuple(metrics), spec=random.randint(1, 12), status=random.randint(0, 8))


KINDS: dict[Callable[[Random], Case], int] = {
    _mixed: 60, _edge: 40, _silent: 40, _mute: 8, _object: 24, _together: 18,
}  # fmt: skip


def _of_ready_pods(*values: float, target: float = 60, tolerance: Tolerance | None = None) -> Case:
    """More replicas than pods, so that a count that stays is seen."""
    pods = tuple(Pod(value=value) for value in values)
    return Case(pods, (Metric("pods", target),), spec=len(pods) + 5, tolerance=tolerance)


# Where thousandths and doubles decide; chance would not find most of them.
NUMBERS = {
    "inside the default band": _of_ready_pods(65),
    "a value is cut": _of_ready_pods(66.0009),
    "a mean is cut": _of_ready_pods(66.001, 66),
    "a damped mean is cut": Case((Pod(value=99.001), Pod(value=99), Pod(PENDING)), (Metric("pods", 60),), spec=3),
    "a target is rounded up": _of_ready_pods(66, target=59.9991),
    "a target is no double below": _of_ready_pods(70.51, target=64.1),
    "a target is no double above": _of_ready_pods(*[14.49] * 10, target=16.1),
    "a tolerance is a double": _of_ready_pods(18, tolerance=Tolerance(down=0.7)),
    "a ratio is a double": _of_ready_pods(*[67.2] * 25),
    "what is no number is no value": _of_ready_pods(nan, 60),
    "nothing is a value": Case((Pod(),), (Metric("value", 60, 0),), spec=3),
}


def _pods(random: Random, level: float, silent: float = 0.15) -> tuple[Pod, ...]:
    """level: their mean value, about. silent: how many of one have no value."""
    states = random.choices([*STATES], weights=[*STATES.values()], k=random.randint(1, 8))
    return tuple(Pod(state, None if random.random() < silent else _near(random, level)) for state in states)


def _near(random: Random, level: float) -> float:
    return nan if random.random() < 0.02 else round(level * random.uniform(0.7, 1.3), random.choice([0, 1, 3, 5]))


def _object_metric(random: Random, load: float, silent: float = 0) -> Metric:
    """load: the most its value may be, in targets; a total in targets of four pods."""
    form, target = random.choice(["value", "total"]), _target(random)
    value = _near(random, target * random.uniform(0, load) * (4 if form == "total" else 1))
    return Metric(form, target, None if random.random() < silent else value)


def _target(random: Random) -> float:
    """More than three decimals are rounded up by the controller."""
    return round(random.uniform(1, 100), random.choice([0, 0, 1, 3, 5]))


def _replicas(random: Random, pods: tuple[Pod, ...]) -> int:
    """Mostly as many as there are pods; while a rollout runs there are more or fewer."""
    return max(1, len(pods) + random.choice([0, 0, 0, -2, -1, 1, 2]))


def _tolerance(random: Random) -> Tolerance | None:
    """None: the HPA says nothing of it. 0.7 is the one of which a double has another value than the controller."""
    widths = [0, 0.01, 0.05, 0.1, 0.2, 0.5, 0.7]
    return random.choice([None, None, Tolerance(up=random.choice(widths), down=random.choice(widths))])
