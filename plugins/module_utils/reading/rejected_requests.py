# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads how many requests the pods of model servers rejected, from their counters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..autoscaling.promql import MODEL_SERVER, one_of
from ..autoscaling.spec import Autoscaler
from ..chain.state.rejected_requests import Rejections
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus_client import PrometheusClient
from ..kube.objects import Key

_WINDOW = "5m"
_REJECTED, _COMPLETED = "vllm:admission_rejections_total", "vllm:request_success_total"


def read_rejections(
    prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler]
) -> dict[Key, dict[str, Rejections]]:
    """Rejections by pods in the namespaces of autoscalers for model servers; none if Prometheus does not answer.

    Only vLLM counts rejected requests.
    """
    readers = [autoscaler for autoscaler in autoscalers if _reads_model_servers(autoscaler)]
    if not readers:
        return {}
    namespaces = {autoscaler.namespace for autoscaler in readers}
    try:
        rejected, completed = (_per_second(prometheus, counter, namespaces) for counter in (_REJECTED, _COMPLETED))
    except (ApiError, QueryError):
        return {}
    found: dict[str, dict[str, Rejections]] = {namespace: {} for namespace in namespaces}
    for (namespace, pod), per_second in rejected.items():
        found[namespace][pod] = Rejections(per_second, completed.get((namespace, pod), 0.0))
    return {autoscaler.key: found[autoscaler.namespace] for autoscaler in readers}


def _reads_model_servers(autoscaler: Autoscaler) -> bool:
    return any(target.metric.reporter == MODEL_SERVER.name for target in autoscaler.metric_targets)


def _per_second(prometheus: PrometheusClient, counter: str, namespaces: Iterable[str]) -> dict[Key, float]:
    selector = f'{counter}{{{one_of("namespace", sorted(namespaces))},pod!=""}}'
    found = prometheus.query(f"sum by (namespace, pod) (rate({selector}[{_WINDOW}]))")
    return {(series.labels["namespace"], series.labels["pod"]): series.values[-1] for series in found}
