# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What was seen of an autoscaler while its load changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..kube.objects import Manifest
from ..kube.quantity import parse_quantity

# A look at which nothing has changed is left out when the one before it is no older.
KEPT_EVERY_S = 2.0


@dataclass(frozen=True)
class Sample:
    """One look at an autoscaler.

    time_s:  Unix seconds, of the machine that looks.
    desired: replicas that the HPA asks for.
    current: replicas that there are, ready: those that are ready.
    ratio:   of value to target, for the metric where it is highest; None without a value.
    """

    time_s: float
    desired: int
    current: int
    ready: int
    ratio: float | None

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.desired, self.current, self.ready


class Samples:
    """Looks in their order: the last before each change, the change, and one every two seconds."""

    def __init__(self) -> None:
        self._kept: list[Sample] = []

    def add(self, sample: Sample) -> None:
        kept = self._kept
        is_repeated = len(kept) > 1 and kept[-2].counts == kept[-1].counts == sample.counts
        if is_repeated and sample.time_s - kept[-2].time_s < KEPT_EVERY_S:
            kept[-1] = sample
        else:
            kept.append(sample)

    def as_dicts(self) -> list[dict[str, Any]]:
        return [asdict(sample) for sample in self._kept]


@dataclass
class End:
    """A pod that ended.

    began_s, seen_s, ended_s: Unix seconds of the machine that looks: when it was first seen terminating, when it was
                      last seen, and when it was gone; None if it was not gone in the end.
    """

    uid: str
    name: str
    began_s: float
    seen_s: float
    ended_s: float | None = None


class Ends:
    """Pods that ended, by looks at all pods of the workload."""

    def __init__(self) -> None:
        self._ends: dict[str, End] = {}
        self._last: dict[str, str] = {}
        self._last_s = 0.0

    def add(self, pods: Sequence[Manifest], time_s: float) -> None:
        """A pod without a grace period is gone without having been seen terminating."""
        present = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in pods}
        for uid in self._last.keys() - present.keys():
            gone = End(uid, self._last[uid], self._last_s, self._last_s)
            self._ends.setdefault(uid, gone).ended_s = time_s
        for pod in pods:
            if pod["metadata"].get("deletionTimestamp"):
                uid = pod["metadata"]["uid"]
                self._ends.setdefault(uid, End(uid, present[uid], time_s, time_s)).seen_s = time_s
        self._last, self._last_s = present, time_s

    def as_dicts(self) -> list[dict[str, Any]]:
        return [asdict(end) for end in sorted(self._ends.values(), key=lambda end: (end.began_s, end.name))]


def sample_of(hpa: Mapping[str, Any], ready: int, time_s: float) -> Sample:
    """hpa: an HorizontalPodAutoscaler of autoscaling/v2, as the API server has it."""
    status = hpa.get("status") or {}
    current = int(status.get("currentReplicas") or 0)
    return Sample(time_s, int(status.get("desiredReplicas") or current), current, ready, highest_ratio(hpa))


def highest_ratio(hpa: Mapping[str, Any]) -> float | None:
    """Of value to target over the HPA's metrics, from its own status. At zero replicas an average is no number."""
    if not (hpa.get("status") or {}).get("currentReplicas"):
        return None
    values = {_name(metric): _part(metric).get("current") or {} for metric in _current(hpa)}
    ratios = []
    for metric in (hpa.get("spec") or {}).get("metrics") or ():
        target = _part(metric).get("target") or {}
        value = values.get(_name(metric), {})
        for field in ("averageUtilization", "averageValue", "value"):
            if target.get(field) and value.get(field) is not None:
                ratios.append(_amount(value[field]) / _amount(target[field]))
                break
    return max(ratios, default=None)


def pod_targets(hpa: Mapping[str, Any]) -> dict[str, float]:
    """Target value of each metric of type Pods, by its name: what one pod's value is compared with."""
    targets = {}
    for metric in (hpa.get("spec") or {}).get("metrics") or ():
        average = (_part(metric).get("target") or {}).get("averageValue")
        if metric["type"] == "Pods" and average is not None:
            targets[str(_part(metric)["metric"]["name"])] = _amount(average)
    return targets


def _current(hpa: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    # A metric that has no value yet is an empty entry.
    return [metric for metric in (hpa.get("status") or {}).get("currentMetrics") or () if metric.get("type")]


def _part(metric: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section of a metric that is called as its type, with a small first letter."""
    kind = metric["type"]
    return metric.get(kind[0].lower() + kind[1:]) or {}


def _name(metric: Mapping[str, Any]) -> tuple[str, ...]:
    part = _part(metric)
    described = part.get("describedObject") or {}
    name = part.get("name") or (part.get("metric") or {}).get("name") or ""
    return metric["type"], name, part.get("container") or "", described.get("kind") or "", described.get("name") or ""


def _amount(value: str | float) -> float:
    return parse_quantity(value) if isinstance(value, str) else float(value)
