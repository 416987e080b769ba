# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an autoscaler would do on a recorded load: the loop of load, metric, controller and pods, without a cluster.

The load is what the pods did together: their mean value times their number. It is kept, and spread over the pods that
another setting would have had. Of a metric that saturates, more than all pods full cannot be seen in what was recorded.
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

# How an HPA reads a metric: a value a pod, the average of the pods as one value, or one total for any number of pods.
Form = Literal["pods", "average", "total"]


@dataclass(frozen=True)
class PlannedMetric:
    """A metric of an HPA.

    most:          what a pod's value cannot exceed, 100 for percent; None for no end.
    shares_target: its target is that of the first metric, as a demand's is.
    """

    name: str
    form: Form
    target: float
    most: float | None = None
    shares_target: bool = False


@dataclass(frozen=True)
class Trace:
    """What was recorded of one workload, a sample a step.

    loads:    by metric: the sum over the pods, or the total; nan where there is no sample. Infinity counts as none.
    replicas: that there were; nan where that is not known.
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
    pod_start_s: until a replica that is wanted is capacity and has a value. One that is given up is none at once.
    overload:    value of the first metric, for each ready pod, from which on the pods are overloaded.
    """

    metrics: tuple[PlannedMetric, ...]
    minimum: int
    maximum: int
    behavior: Behavior = field(default_factory=Behavior)
    pod_start_s: float = 60
    overload: float = 90


@dataclass(frozen=True)
class Replay:
    """How it went. changes: step and replicas from then on, the first at step 0. Minutes are of replicas, of time."""

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
    """Run `setting` over `trace`, one look of the controller a step, from as many replicas as there were."""
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
            continue  # no metric has a value: the controller leaves the count alone and remembers nothing
        if is_silent and wanted < replicas:
            continue  # nor does it where a metric without a value forbids fewer
        if wanted == replicas and setting.behavior.is_given:
            stayed_s = now_s
            continue
        if stayed_s >= 0:  # of several looks at which all stayed, windows remember the last
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
    """How often replicas that went up go down, or the other way round."""
    ups = [later > earlier for earlier, later in pairwise(counts) if later != earlier]
    return sum(one != next_ for one, next_ in pairwise(ups))


def _first_replicas(trace: Trace, setting: Setting) -> int:
    known = next((int(count) for count in trace.replicas if isfinite(count)), setting.minimum)
    return min(max(known, setting.minimum), setting.maximum)


def _give_up(starting: deque[tuple[float, int]], count: int) -> int:
    """Pods that still start go first, the youngest before all. Returns: how many ready ones go besides."""
    while count and starting:
        ready_s, young = starting.pop()
        gone = min(young, count)
        count -= gone
        if young > gone:
            starting.append((ready_s, young - gone))
    return count


# What a metric asks for at a step, with so many replicas of which so many are ready; None without a value.
Proposer = Callable[[int, int, int], "int | None"]


def _proposer(metric: PlannedMetric, loads: Sequence[float], tolerance: Tolerance) -> Proposer:
    """The arithmetic of replicas.py for pods that all have one value, without lists: a day has thousands of steps."""
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
