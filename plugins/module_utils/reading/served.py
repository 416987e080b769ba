# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The values that an HPA would get: one implementation for each way in which a cluster may serve them."""

from __future__ import annotations

from typing import Protocol

from ..autoscaling.manifests import external_labels
from ..autoscaling.spec import EXTERNAL, PODS, WORKLOAD_LABELS, MetricTarget, Target
from ..cluster.kube import KubeClient
from ..cluster.metrics_api import GROUPS, MetricsApi, MetricValue


class ServedMetrics(Protocol):
    """Metrics as the HPA controller reads them."""

    def listed(self, metric_type: str) -> set[str]:
        """The metrics that the API for this type offers, as discovery names them. Raises ApiError."""

    def discovery_name(self, metric_target: MetricTarget, target: Target) -> str:
        """How discovery names the metric of a metric_target."""

    def read(self, metric_target: MetricTarget, target: Target, namespace: str, pods: str) -> list[MetricValue]:
        """The values that the HPA would get. Raises ApiError.

        pods: label selector; empty for all pods of the namespace.
        """


class AdapterMetrics:
    """Those of prometheus-adapter, with the generic rules of the role prometheus_adapter."""

    def __init__(self, kube: KubeClient) -> None:
        self._api = MetricsApi(kube.get_raw)

    def listed(self, metric_type: str) -> set[str]:
        return self._api.listed(GROUPS[metric_type])

    def discovery_name(self, metric_target: MetricTarget, target: Target) -> str:
        name = metric_target.metric.name
        if metric_target.type == EXTERNAL:
            return name
        return f"pods/{name}" if metric_target.type == PODS else f"{_plural(target)}/{name}"

    def read(self, metric_target: MetricTarget, target: Target, namespace: str, pods: str) -> list[MetricValue]:
        name = metric_target.metric.name
        if metric_target.type == EXTERNAL:
            labels = ",".join(f"{key}={value}" for key, value in external_labels(metric_target, target).items())
            return self._api.external(name, namespace=namespace, label_selector=labels)
        if metric_target.type == PODS:
            return self._api.custom(name, namespace=namespace, label_selector=pods)
        return self._api.custom(name, namespace=namespace, resource=_plural(target), name=target.name)


def _plural(target: Target) -> str:
    return f"{WORKLOAD_LABELS[target.kind]}s.{target.api_version.rpartition('/')[0]}"
