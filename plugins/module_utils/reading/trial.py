# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks whether Prometheus answers, and its results for queries to be recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..autoscaling.dcgm_fields import any_of
from ..autoscaling.manifests import metrics_of
from ..autoscaling.metrics import Metric
from ..autoscaling.spec import Autoscaler
from ..chain.objects import Key
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus import PrometheusClient, Series

# An empty result is a response, so this also shows whether Prometheus answers.
_GPU_FIELDS = any_of(("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
_GPU_JOBS = f'group by (job) ({{__name__=~"{_GPU_FIELDS}"}})'


@dataclass(frozen=True)
class Trial:
    """Results of Prometheus before a change.

    gpu_jobs:      jobs whose targets report GPUs.
    error:         why it could not be queried; can be empty.
    query_errors:  error of a custom query, by metric.
    empty_queries: custom metrics whose query returns nothing now.
    totals:        current values of custom metrics of a workload, by metric.
    """

    gpu_jobs: Sequence[str] = ()
    error: str = ""
    query_errors: Mapping[str, str] = field(default_factory=dict)
    empty_queries: Sequence[str] = ()
    totals: Mapping[str, float] = field(default_factory=dict)


def try_queries(prometheus: PrometheusClient, autoscalers: Iterable[Autoscaler]) -> Trial:
    wrong: dict[str, str] = {}
    empty: list[str] = []
    totals: dict[str, float] = {}
    jobs: tuple[str, ...] = ()
    try:
        jobs = gpu_jobs(prometheus)
        for metric in (*metrics_of(autoscalers), *_counters_of(autoscalers)):
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
        return Trial(jobs, str(err), wrong, empty, totals)
    return Trial(jobs, "", wrong, empty, totals)


def gpu_jobs(prometheus: PrometheusClient) -> tuple[str, ...]:
    """Jobs whose targets report GPUs."""
    return tuple(sorted({series.labels.get("job", "") for series in prometheus.query(_GPU_JOBS, retry=True)} - {""}))


def _counters_of(autoscalers: Iterable[Autoscaler]) -> Iterator[Metric]:
    """Queries of demands that are not recorded yet."""
    for autoscaler in autoscalers:
        if autoscaler.demand:
            yield from autoscaler.demand.probes(str(autoscaler))


def _try_query(prometheus: PrometheusClient, metric: Metric) -> tuple[str, Sequence[Series]]:
    """The error in a query's result, and its series."""
    try:
        found = prometheus.query(metric.query)
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
