# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""How long model servers take for an answer, from their own latency series."""

from __future__ import annotations

from collections.abc import Sequence

from ..autoscaling.promql import one_of
from ..autoscaling.spec import Autoscaler
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus_client import PrometheusClient
from ..kube.objects import Key

_WINDOW = "1h"
# From the request until the last byte of its answer, streams included.
_BUCKETS = "|".join(
    (
        "vllm:e2e_request_latency_seconds_bucket",
        "sglang:e2e_request_latency_seconds_bucket",
        "trtllm_e2e_request_latency_seconds_bucket",
        "tgi_request_duration_bucket",
    )
)
# Triton computes quantiles itself, and only with --metrics-config summary_latencies=true.
_TRITON = "nv_inference_request_summary_us"


def read_answer_times(prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler]) -> dict[Key, dict[str, float]]:
    """By autoscaler, the 99th percentile in seconds of each pod of its namespace.

    Pods without requests in the last hour, or without such a series, are left out. Nothing while Prometheus does not
    answer.
    """
    namespaces = sorted({autoscaler.namespace for autoscaler in autoscalers})
    if not namespaces:
        return {}
    try:
        found = prometheus.query(answer_times_query(namespaces))
    except (ApiError, QueryError):
        return {}
    times: dict[str, dict[str, float]] = {}
    for series in found:
        times.setdefault(series.labels["namespace"], {})[series.labels["pod"]] = series.values[-1]
    return {autoscaler.key: times.get(autoscaler.namespace, {}) for autoscaler in autoscalers}


def answer_times_query(namespaces: Sequence[str]) -> str:
    """PromQL: the 99th percentile of each pod, which is no number while it has no requests."""
    pods = f'{one_of("namespace", namespaces)},pod!=""'
    rates = f'rate({{__name__=~"{_BUCKETS}",{pods}}}[{_WINDOW}])'
    quantiles = f"histogram_quantile(0.99, sum by (namespace, pod, le) ({rates}))"
    triton = f'max by (namespace, pod) (max_over_time({_TRITON}{{quantile="0.99",{pods}}}[{_WINDOW}])) / 1e6'
    return f"({quantiles} or {triton}) > 0"
