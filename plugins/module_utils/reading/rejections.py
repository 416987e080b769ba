# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..autoscaling.promql import MODEL_SERVER, one_of
from ..autoscaling.spec import Autoscaler
from ..chain.objects import Key
from ..chain.rejections import Rejections
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus import PrometheusClient

_WINDOW = "5m"
_REJECTED, _COMPLETED = "vllm:admission_rejections_total", "vllm:request_success_total"


def read_rejections(prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler]) -> dict[Key, Rejections]:
    """Of model servers' pods, by namespace and name; none while Prometheus does not answer.

    Only vLLM counts the requests that it does not admit.
    """
    namespaces = {autoscaler.namespace for autoscaler in autoscalers if _reads_model_servers(autoscaler)}
    if not namespaces:
        return {}
    try:
        rejected, completed = (_per_second(prometheus, counter, namespaces) for counter in (_REJECTED, _COMPLETED))
    except (ApiError, QueryError):
        return {}
    return {pod: Rejections(value, completed.get(pod, 0.0)) for pod, value in rejected.items()}


def _reads_model_servers(autoscaler: Autoscaler) -> bool:
    return any(target.metric.reporter == MODEL_SERVER.name for target in autoscaler.metric_targets)


def _per_second(prometheus: PrometheusClient, counter: str, namespaces: Iterable[str]) -> dict[Key, float]:
    selector = f'{counter}{{{one_of("namespace", sorted(namespaces))},pod!=""}}'
    found = prometheus.query(f"sum by (namespace, pod) (rate({selector}[{_WINDOW}]))")
    return {(series.labels["namespace"], series.labels["pod"]): series.values[-1] for series in found}
