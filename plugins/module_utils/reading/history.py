# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads recent values of metric and replicas, from recorded series and from kube-state-metrics if available."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, nan
from statistics import fmean
from typing import Any

from ..autoscaling.pod_names import pod_names
from ..autoscaling.spec import PODS, WORKLOAD_LABELS, Autoscaler
from ..chain.state.autoscaler import AutoscalerState
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus_client import PrometheusClient, Series
from ..kube.objects import Key

# Points in a history, as many as a small plot shows.
_POINTS = 60
_SHORTEST_STEP_S = 5
_REPLICAS = {
    "replicas": "kube_horizontalpodautoscaler_status_current_replicas",
    "desired": "kube_horizontalpodautoscaler_status_desired_replicas",
}

Points = Mapping[float, float]


def read_history(
    prometheus: PrometheusClient,
    autoscalers: Sequence[Autoscaler],
    seen: Mapping[Key, AutoscalerState],
    history_s: int,
) -> dict[Key, dict[str, Any]]:
    """History of each autoscaler's first metric; one query per recorded series.

    Autoscalers without data in Prometheus are omitted.
    """
    step_s = max(_SHORTEST_STEP_S, round(history_s / _POINTS))
    window = f"[{history_s}s:{step_s}s]"
    counts = {name: _by_hpa(_read(prometheus, series + window)) for name, series in _REPLICAS.items()}
    leading = {
        autoscaler.key: autoscaler.metric_targets[0].series for autoscaler in autoscalers if autoscaler.metric_targets
    }
    recorded = {name: _by_namespace(_read(prometheus, name + window)) for name in sorted(set(leading.values()) - {""})}
    found = {}
    for autoscaler in autoscalers:
        of_namespace = recorded.get(leading.get(autoscaler.key, ""), {}).get(autoscaler.namespace, ())
        values = _mean([series for series in of_namespace if _belongs_to(series, autoscaler, seen.get(autoscaler.key))])
        parts = {"value": values, **{name: by_hpa.get(autoscaler.key, {}) for name, by_hpa in counts.items()}}
        if any(parts.values()):
            found[autoscaler.key] = _aligned(parts, step_s)
    return found


def _read(prometheus: PrometheusClient, query: str) -> list[Series]:
    try:
        return prometheus.query(query)
    except (ApiError, QueryError):
        return []


def _by_hpa(found: Iterable[Series]) -> dict[Key, Points]:
    return {
        (_label(series, "namespace"), _label(series, "horizontalpodautoscaler")): _points(series) for series in found
    }


def _label(series: Series, name: str) -> str:
    """With honorLabels: false, labels of kube-state-metrics' series are exported_*."""
    return series.labels.get(f"exported_{name}") or series.labels.get(name, "")


def _by_namespace(found: Iterable[Series]) -> dict[str, list[Series]]:
    groups: dict[str, list[Series]] = {}
    for series in found:
        groups.setdefault(series.labels.get("namespace", ""), []).append(series)
    return groups


def _belongs_to(series: Series, autoscaler: Autoscaler, seen: AutoscalerState | None) -> bool:
    """Existing pods are known. Deleted pods are matched by the names that their controllers generate."""
    target = autoscaler.target
    if autoscaler.metric_targets[0].type != PODS:
        return series.labels.get(WORKLOAD_LABELS.get(target.kind, "")) == target.name
    pod = series.labels.get("pod", "")
    is_known = seen is not None and (autoscaler.namespace, pod) in seen.pod_keys
    return is_known or bool(re.fullmatch(pod_names(target.kind, target.name), pod))


def _mean(found: Sequence[Series]) -> Points:
    at: dict[float, list[float]] = {}
    for series in found:
        for time, value in _points(series).items():
            at.setdefault(time, []).append(value)
    return {time: round(fmean(values), 3) for time, values in at.items()}


def _points(series: Series) -> Points:
    return dict(zip(series.times, series.values, strict=True))


def _aligned(parts: Mapping[str, Points], step_s: int) -> dict[str, Any]:
    times = sorted({time for points in parts.values() for time in points})

    def row(name: str, as_number: type) -> list[Any]:
        values = [parts[name].get(time, nan) for time in times]
        return [as_number(value) if isfinite(value) else None for value in values]

    return {
        "step_s": step_s,
        "times": times,
        "value": row("value", float),
        "replicas": row("replicas", int),
        "desired": row("desired", int),
    }
