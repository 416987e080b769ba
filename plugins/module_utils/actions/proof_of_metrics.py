# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What Prometheus has of each GPU, and of a service that only a PodMonitor makes known to it."""

from __future__ import annotations

from collections.abc import Collection

from ..autoscaling.inputs import Selectors, with_selectors
from ..autoscaling.manifests import RuleOptions
from ..chain.rule_queries import NODE_LABELS
from ..cluster.errors import ApiError
from ..cluster.kube import POD_MONITORS, KubeClient
from ..cluster.prometheus_client import PrometheusClient
from ..proof import manifests
from .wait import Deadline, wait_until

# prometheus-operator and its reloader need this long for a new PodMonitor, if they see it at once.
SCRAPED_S = 90.0
_ROWS = '{__name__=~"(DCGM_FI|dcgm)_.+",UUID!="",<exporter>}'
_SERVED = 'sum(sample_requests_total{{namespace="{namespace}",outcome="served"}})'


def scrape_service(kube: KubeClient, options: manifests.Options, rules: RuleOptions) -> str:
    """Have the proof's service scraped. Returns: why it cannot be; empty if it will be."""
    try:
        kube.apply(POD_MONITORS, manifests.pod_monitor(options, rules.labels))
    except ApiError as err:
        return f"the PodMonitor was not created: {err}"
    return ""


def gpu_series(prometheus: PrometheusClient, nodes: Collection[str], selectors: Selectors) -> dict[str, dict[str, int]]:
    """Names of the series of GPUs, each with the number of GPUs that have it by node. Other nodes are left out."""
    labels = ", ".join(NODE_LABELS)
    rows = with_selectors(_ROWS, selectors)
    series: dict[str, dict[str, int]] = {}
    for found in prometheus.query(f"count by (__name__, {labels}) (count by (__name__, UUID, {labels}) ({rows}))"):
        node = next(filter(None, map(found.labels.get, NODE_LABELS)), "")
        if node in nodes:
            gpus = series.setdefault(found.labels["__name__"], {})
            gpus[node] = max(int(found.values[-1]), gpus.get(node, 0))
    return series


def served_requests(prometheus: PrometheusClient, options: manifests.Options) -> float:
    """Requests that the service has counted, by Prometheus, once there are any; 0 if not in time."""
    query = _SERVED.format(namespace=options.namespace)

    def look() -> float:
        return next((series.values[-1] for series in prometheus.query(query)), 0.0)

    return wait_until(look, bool, Deadline(SCRAPED_S))
