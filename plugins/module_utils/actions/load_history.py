# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the recorded load of workloads over a day. Prometheus adds it up, so the results do not grow with the pods."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

from ..autoscaling.pod_names import ends
from ..autoscaling.promql import literal, one_of, quoted
from ..autoscaling.spec import OBJECT, PODS, WORKLOAD_LABELS, Autoscaler
from ..cluster.prometheus_client import PrometheusClient, Series
from ..kube.objects import Key

# Concurrent queries: so many results of a day fit into memory.
_AT_ONCE = 25
_DESIRED = "kube_horizontalpodautoscaler_status_desired_replicas"


@dataclass(frozen=True)
class Window:
    """A time range in steps of step_s; Prometheus evaluates at multiples of the step."""

    end_s: float
    length_s: int
    step_s: int

    @property
    def start_s(self) -> float:
        return (self.end_s - self.length_s) // self.step_s * self.step_s + self.step_s

    @property
    def steps(self) -> int:
        return int((self.end_s - self.start_s) // self.step_s) + 1

    @property
    def promql(self) -> str:
        return f"[{self.length_s}s:{self.step_s}s]"

    def array(self, series: Series) -> array[float]:
        """One value per step, or nan."""
        found = array("d", [nan]) * self.steps
        for time, value in zip(series.times, series.values, strict=True):
            place = round((time - self.start_s) / self.step_s)
            if 0 <= place < self.steps:
                found[place] = value
        return found


@dataclass
class Recorded:
    """History of one autoscaler, one value per step.

    loads:    by series of a metric: the sum over its pods, their average for an Object's Value, or the total.
    speaking: by series of a Pods metric: number of pods with a value.
    desired:  replicas set by the HPA; None without kube-state-metrics.
    """

    loads: dict[str, array[float]] = field(default_factory=dict)
    speaking: dict[str, array[float]] = field(default_factory=dict)
    desired: array[float] | None = None


def read_loads(prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler], window: Window) -> dict[Key, Recorded]:
    """Raises: ApiError, QueryError if Prometheus does not answer."""
    found: dict[Key, Recorded] = {autoscaler.key: Recorded() for autoscaler in autoscalers}
    for begin in range(0, len(autoscalers), _AT_ONCE):
        _read(prometheus, autoscalers[begin : begin + _AT_ONCE], window, found)
    return found


def _read(
    prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler], window: Window, found: Mapping[Key, Recorded]
) -> None:
    groups: dict[tuple[str, str, str], list[Autoscaler]] = {}
    for autoscaler in autoscalers:
        for target in autoscaler.metric_targets:
            if target.series:
                groups.setdefault((target.series, target.type, autoscaler.target.kind), []).append(autoscaler)
        groups.setdefault((demand_series(autoscaler), OBJECT, autoscaler.target.kind), []).append(autoscaler)
    for (series, metric_type, kind), members in groups.items():
        of = {(member.namespace, member.target.name): found[member.key] for member in members}
        if metric_type == PODS:
            pods = _of_pods(series, kind, members)
            for operation, keep in (("sum", "loads"), ("count", "speaking")):
                query = f"{operation} by (namespace, workload) ({pods})"
                for key, values in _asked(prometheus, query, "workload", window):
                    if key in of:
                        getattr(of[key], keep)[series] = values
        elif label := WORKLOAD_LABELS.get(kind):
            query = f"max by (namespace, {label}) ({_finite(series, _in('namespace', members, _namespace))})"
            for key, values in _asked(prometheus, query, label, window):
                if key in of:
                    of[key].loads[series] = values
    names = _in("horizontalpodautoscaler", autoscalers, lambda autoscaler: autoscaler.name)
    query = f"max by (namespace, exported_namespace, horizontalpodautoscaler) ({_DESIRED}{{{names}}})"
    for key, values in _asked(prometheus, query, "horizontalpodautoscaler", window):
        if key in found:
            found[key].desired = values


def recorded_samples(length_s: int) -> str:
    """PromQL: the largest number of samples of an HPA in so many seconds."""
    return f"max(count_over_time({_DESIRED}[{length_s}s]))"


def demand_series(autoscaler: Autoscaler) -> str:
    """The series of the requested load in the unit of the first metric, if it is recorded."""
    return f"namespace_workload:{autoscaler.demand_name}:sum"


def _of_pods(series: str, kind: str, members: Sequence[Autoscaler]) -> str:
    """PromQL: the pods' series with a label for the workload, which is the beginning of the pods' names."""
    workloads = "|".join(sorted({literal(member.target.name) for member in members}))
    pattern = f"({workloads})-{ends(kind)}"
    matched = _finite(series, f"{_in('namespace', members, _namespace)},pod=~{quoted(pattern)}")
    return f'label_replace({matched}, "workload", "$1", "pod", {quoted(pattern)})'


def _finite(series: str, matchers: str) -> str:
    """PromQL: the values that the adapter serves (roles/prometheus_adapter), without NaN, which would spoil the sum."""
    return f"{series}{{{matchers}}} > -Inf < Inf"


def _asked(prometheus: PrometheusClient, query: str, label: str, window: Window) -> Iterable[tuple[Key, array[float]]]:
    for series in prometheus.query(f"({query}){window.promql}"):
        # With honorLabels: false, the namespace of kube-state-metrics' series is exported_namespace.
        namespace = series.labels.get("exported_namespace") or series.labels.get("namespace", "")
        yield (namespace, series.labels.get(label, "")), window.array(series)


def _in(label: str, autoscalers: Sequence[Autoscaler], value: Callable[[Autoscaler], str]) -> str:
    return one_of(label, sorted(map(value, autoscalers)))


def _namespace(autoscaler: Autoscaler) -> str:
    return autoscaler.namespace
