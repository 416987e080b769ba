# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What Prometheus has of each GPU, and of a service that only a PodMonitor makes known to it."""

from __future__ import annotations

from typing import Any

from ..autoscaling.manifests import RuleOptions
from ..cluster.errors import ApiError
from ..cluster.kube import POD_MONITORS, KubeClient
from ..cluster.prometheus_client import PrometheusClient
from ..proof import manifests
from .wait import Deadline, wait_until

# prometheus-operator and its reloader need this long for a new PodMonitor, if they see it at once.
SCRAPED_S = 90.0
_ROWS = '{__name__=~"(DCGM_FI|dcgm)_.+",UUID!=""}'
_SERVED = 'sum(sample_requests_total{{namespace="{namespace}",outcome="served"}})'


def scrape_service(kube: KubeClient, options: manifests.Options, rules: RuleOptions) -> str:
    """Have the proof's service scraped. Returns: why it cannot be; empty if it will be."""
    try:
        kube.apply(POD_MONITORS, manifests.pod_monitor(options, rules.labels))
    except ApiError as err:
        return f"the PodMonitor was not created: {err}"
    return ""


def gpu_series(prometheus: PrometheusClient) -> dict[str, Any]:
    """`gpus` with a series, and the names of their `series`, each with the number of GPUs that have it."""
    names = prometheus.query(f"count by (__name__) (count by (__name__, UUID) ({_ROWS}))")
    gpus = prometheus.query(f"count(count by (UUID) ({_ROWS}))")
    return {
        "gpus": int(gpus[0].values[-1]) if gpus else 0,
        "series": {found.labels["__name__"]: int(found.values[-1]) for found in names},
    }


def served_requests(prometheus: PrometheusClient, options: manifests.Options) -> float:
    """Requests that the service has counted, by Prometheus, once there are any; 0 if not in time."""
    query = _SERVED.format(namespace=options.namespace)

    def look() -> float:
        return next((series.values[-1] for series in prometheus.query(query)), 0.0)

    return wait_until(look, bool, Deadline(SCRAPED_S))
