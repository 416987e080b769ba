# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Requests that have waited in model servers for long."""

from __future__ import annotations

from collections.abc import Sequence

from ..autoscaling.promql import one_of
from ..autoscaling.spec import Autoscaler
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus_client import PrometheusClient
from ..kube.objects import Key

_WINDOW_S, _STEP_S = 300, 15
_BY_REASON = "vllm:num_requests_waiting_by_reason"
_WAITING = "sglang:num_queue_reqs|tgi_queue_size|trtllm_num_requests_waiting"


def read_queues(prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler]) -> dict[Key, dict[str, float]]:
    """By autoscaler, the fewest requests that waited in each pod of its namespace at any time in five minutes.

    Pods without a value for all of that time, or whose queue was empty once, are left out. Nothing while Prometheus
    does not answer.
    """
    namespaces = sorted({autoscaler.namespace for autoscaler in autoscalers})
    if not namespaces:
        return {}
    try:
        found = prometheus.query(queues_query(namespaces))
    except (ApiError, QueryError):
        return {}
    waiting: dict[str, dict[str, float]] = {}
    for series in found:
        waiting.setdefault(series.labels["namespace"], {})[series.labels["pod"]] = series.values[-1]
    return {autoscaler.key: waiting.get(autoscaler.namespace, {}) for autoscaler in autoscalers}


def queues_query(namespaces: Sequence[str]) -> str:
    """PromQL: the fewest requests that waited in each pod in these minutes, without pods in which none did once."""
    pods = f'{one_of("namespace", namespaces)},pod!=""'
    # vLLM defers requests for other reasons, too, for a transfer of KV blocks for instance. They wait for no room.
    rows = (
        f'{{__name__=~"{_WAITING}",{pods}}} or {_BY_REASON}{{reason="capacity",{pods}}} '
        f"or vllm:num_requests_waiting{{{pods}}} unless on (namespace, pod) {_BY_REASON}{{{pods}}}"
    )
    window = f"(sum by (namespace, pod) ({rows}))[{_WINDOW_S}s:{_STEP_S}s]"
    # A window holds one value more or less, by where its steps lie.
    return f"min_over_time({window}) > 0 and count_over_time({window}) >= {_WINDOW_S // _STEP_S}"
