# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Replays a recorded load: the loop of load, metric, controller and pods, without a cluster.

The load is the mean value of the pods times their number. It stays the same, and is distributed over the pods that
another setting would have had. For a metric that saturates, the recorded load ends when all pods are full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf, isfinite
from typing import Literal

from .controller import Behavior, Controller
from .replicas import Tolerance, desired_replicas, in_thousandths

# How an HPA reads a metric: a value per pod, the average of the pods as one value, or one total for any number of pods.
Form = Literal["pods", "average", "total"]


@dataclass(frozen=True)
class PlannedMetric:
    """A metric of an HPA.

    most:          the largest value of a pod, 100 for percent; None without a limit.
    shares_target: it has the target of the first metric, as a demand does.
    """

    name: str
    form: Form
    target: float
    most: float | None = None
    shares_target: bool = False


@dataclass(frozen=True)
class Trace:
    """Recorded series of one workload, one sample per step.

    loads:    by metric: the sum over the pods, or the total; nan without a sample. Infinity counts as none.
    replicas: existing replicas; nan if unknown.
    """

    start_s: float
    step_s: float
    loads: Mapping[str, Sequence[float]]
    replicas: Sequence[float] = ()

    @property
    def steps(self) -> int:
        return max(map(len, self.loads.values()), default=0)


@dataclass(frozen=True)
class Setting:
    """Configuration of an autoscaler, and the start time of its pods.

    metrics:     the first one defines overload.
    pod_start_s: seconds until a new replica is capacity and has a value. A removed replica is gone at once.
    overload:    value of the first metric per ready pod from which the pods are overloaded.
    """

    metrics: tuple[PlannedMetric, ...]
    minimum: int
    maximum: int
    behavior: Behavior = field(default_factory=Behavior)
    pod_start_s: float = 60
    overload: float = 90


@dataclass(frozen=True)
class Replay:
    """Result. changes: step and new replicas, the first at step 0. Times in minutes, also multiplied by replicas."""

    changes: tuple[tuple[int, int], ...]
    steps: int
    step_s: float
    replica_minutes: float
    overload_minutes: float
    unknown_minutes: float
    direction_changes: int
    peak: int

    def at(self, steps: Sequence[int]) -> list[int]:
        """Replicas at steps that ascend."""
        found, place = [], 0
        for step in steps:
            while place + 1 < len(self.changes) and self.changes[place + 1][0] <= step:
                place += 1
            found.append(self.changes[place][1])
        return found


def replay(trace: Trace, setting: Setting) -> Replay:
    """Run `setting` over `trace`, one sync per step, starting with the recorded number of replicas."""
    controller = Controller(setting.minimum, setting.maximum, setting.behavior)
    proposers = [_proposer(metric, trace.loads[metric.name], setting.behavior.tolerance) for metric in setting.metrics]
    first, step_s, start_s = trace.loads[setting.metrics[0].name], trace.step_s, setting.pod_start_s
    overload, stayed_s = setting.overload, -1.0
    replicas = _first_replicas(trace, setting)
    starting: deque[tuple[float, int]] = deque()
    ready, changes, counted, overloaded, unknown = replicas, [(0, replicas)], 0, 0, 0
    for step in range(trace.steps):
        now_s = step * step_s
        while starting and starting[0][0] <= now_s:
            ready += starting.popleft()[1]
        load = first[step]
        if not isfinite(load):
            unknown += 1
        elif load >= overload * ready and load > 0:
            overloaded += 1
        counted += replicas
        wanted, is_silent = -1, False
        for propose in proposers:
            proposal = propose(step, replicas, ready)
            if proposal is None:
                is_silent = True
            elif proposal > wanted:
                wanted = proposal
        if wanted < 0:
            continue  # no metric has a value: the controller keeps the count and remembers nothing
        if is_silent and wanted < replicas:
            continue  # nor if a metric without a value prevents scaling down
        if wanted == replicas and setting.behavior.is_given:
            stayed_s = now_s
            continue
        if stayed_s >= 0:  # of several syncs without a change, windows remember the last
            controller.stays(stayed_s, replicas)
            stayed_s = -1.0
        after = controller.decide(now_s, replicas, wanted).replicas
        if after > replicas:
            starting.append((now_s + start_s, after - replicas))
        elif after < replicas:
            ready -= _give_up(starting, replicas - after)
        if after != replicas:
            changes.append((step + 1, after))
            replicas = after
    minute = step_s / 60
    return Replay(
        tuple(changes),
        trace.steps,
        step_s,
        counted * minute,
        overloaded * minute,
        unknown * minute,
        direction_changes([count for _step, count in changes]),
        max(count for _step, count in changes),
    )


def direction_changes(counts: Sequence[int]) -> int:
    """How often the replicas change direction."""
    ups = [later > earlier for earlier, later in pairwise(counts) if later != earlier]
    return sum(one != next_ for one, next_ in pairwise(ups))


def _first_replicas(trace: Trace, setting: Setting) -> int:
    known = next((int(count) for count in trace.replicas if isfinite(count)), setting.minimum)
    return min(max(known, setting.minimum), setting.maximum)


def _give_up(starting: deque[tuple[float, int]], count: int) -> int:
    """Starting pods are removed first, the youngest first. Returns: the number of ready pods removed as well."""
    while count and starting:
        ready_s, young = starting.pop()
        gone = min(young, count)
        count -= gone
        if young > gone:
            starting.append((ready_s, young - gone))
    return count


# Proposal of a metric at a step, by replicas and ready replicas; None without a value.
Proposer = Callable[[int, int, int], "int | None"]


def _proposer(metric: PlannedMetric, loads: Sequence[float], tolerance: Tolerance) -> Proposer:
    """The arithmetic of replicas.py for pods with equal values, without lists: a day has thousands of steps."""
    target = in_thousandths(metric.target)
    most = inf if metric.most is None else metric.most
    low, high = tolerance.band
    is_average = metric.form == "average"

    def of_pods(step: int, replicas: int, ready: int) -> int | None:
        load = loads[step]
        if not isfinite(load) or not ready:
            return None
        value = load / ready
        ratio = int((value if value < most else most) * 1000) / target
        if low <= ratio <= high:
            return replicas
        if ratio <= 1 or ready >= replicas or is_average:
            return ceil(ratio * ready)
        usage = [min(value, most)] * ready
        return desired_replicas(usage, metric.target, current=replicas, unready=replicas - ready, tolerance=tolerance)

    def of_total(step: int, replicas: int, _ready: int) -> int | None:
        load = loads[step]
        if not isfinite(load):
            return None
        total = int(load * 1000)
        is_within = replicas and low <= total / (target * replicas) <= high
        return replicas if is_within else ceil(total / target)

    return of_total if metric.form == "total" else of_pods
