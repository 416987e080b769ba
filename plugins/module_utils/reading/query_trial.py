# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks whether Prometheus answers, and its results for queries to be recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..autoscaling.backends import inputs_read
from ..autoscaling.inputs import INPUTS, with_selectors
from ..autoscaling.manifests import metrics_of
from ..autoscaling.metrics import Metric
from ..autoscaling.spec import Autoscaler
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus_client import PrometheusClient, Series
from ..kube.objects import Key

_INPUT = "kubegpu_input"
# Labels of the targets that report an input.
Candidates = Mapping[str, Sequence[Mapping[str, str]]]


@dataclass(frozen=True)
class Trial:
    """Results of Prometheus before a change.

    candidates:    labels of the targets that report an input, by input.
    error:         why it could not be queried; can be empty.
    query_errors:  error of a custom query, by metric.
    empty_queries: custom metrics whose query returns nothing now.
    totals:        current values of custom metrics of a workload, by metric.
    """

    candidates: Candidates = field(default_factory=dict)
    error: str = ""
    query_errors: Mapping[str, str] = field(default_factory=dict)
    empty_queries: Sequence[str] = ()
    totals: Mapping[str, float] = field(default_factory=dict)


def try_queries(
    prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler], metrics: Sequence[Metric] = ()
) -> Trial:
    """metrics: those that are recorded without an autoscaler."""
    wrong: dict[str, str] = {}
    empty: list[str] = []
    totals: dict[str, float] = {}
    candidates: Candidates = {}
    try:
        # An empty result is a response, so this also shows whether Prometheus answers.
        candidates = candidates_of(prometheus, inputs_read(autoscalers) | {"exporter"})
        for metric in (*metrics_of(autoscalers), *_counters_of(autoscalers), *metrics):
            if metric.sources or not metric.query:
                continue
            error, found = _try_query(prometheus, metric)
            if error:
                wrong[metric.name] = error
            elif not found:
                empty.append(metric.name)
            elif metric.per == "workload":
                totals[metric.name] = sum(series.values[-1] for series in found)
    except ApiError as err:
        return Trial(candidates, str(err), wrong, empty, totals)
    return Trial(candidates, "", wrong, empty, totals)


def candidates_of(prometheus: PrometheusClient, inputs: Iterable[str]) -> Candidates:
    """Labels of the targets that report each input, without empty ones. Rows that rules recorded have no job."""
    found: dict[str, list[Mapping[str, str]]] = {name: [] for name in sorted(inputs)}
    query = "\nor\n".join(
        f'label_replace({INPUTS[name].candidates_query}, "{_INPUT}", "{name}", "", "")' for name in found
    )
    for series in prometheus.query(query, retry=True):
        name = series.labels.get(_INPUT, "")
        if name in found:
            row = {label: series.labels[label] for label in INPUTS[name].by if series.labels.get(label)}
            found[name] += [row] if "job" in row or "job" not in INPUTS[name].by else []
    return {name: sorted(rows, key=str) for name, rows in found.items()}


def _counters_of(autoscalers: Iterable[Autoscaler]) -> Iterator[Metric]:
    """Queries of demands that are not recorded yet."""
    for autoscaler in autoscalers:
        if autoscaler.demand:
            yield from autoscaler.demand.probes(str(autoscaler))


def _try_query(prometheus: PrometheusClient, metric: Metric) -> tuple[str, Sequence[Series]]:
    """The error in a query's result, and its series."""
    try:
        found = prometheus.query(with_selectors(metric.query, {}))
    except QueryError as err:
        return str(err), ()
    if metric.per == "workload":
        return "", found
    pods: dict[Key, int] = {}
    for series in found:
        namespace, pod = series.labels.get("namespace"), series.labels.get("pod")
        if not namespace or not pod:
            return f"a series has no label {'pod' if namespace else 'namespace'}: {dict(series.labels)}", found
        pods[namespace, pod] = pods.get((namespace, pod), 0) + 1
    several = next((key for key, count in pods.items() if count > 1), None)
    if several:
        return f"pod {'/'.join(several)} has {pods[several]} series", found
    return "", found
