# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the values for an HPA's decision: one implementation per backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..autoscaling.keda_rules import Decisions
from ..autoscaling.manifests import external_labels
from ..autoscaling.promql import equal, quoted
from ..autoscaling.spec import ADAPTER, EXTERNAL, KEDA, PODS, WORKLOAD_LABELS, Autoscaler, MetricTarget, Target
from ..cluster.errors import ApiError, QueryError
from ..cluster.metrics_api import MetricsApi, MetricValue
from ..cluster.prometheus_client import PrometheusClient, Series


class ServedMetrics(Protocol):
    """Metrics as the HPA controller reads them."""

    def discovery_name(self, metric_target: MetricTarget, autoscaler: Autoscaler) -> str:
        """Name of a metric_target's metric in discovery."""

    def read(self, metric_target: MetricTarget, autoscaler: Autoscaler, pods: str) -> list[MetricValue]:
        """The values for the HPA's decision. Raises ApiError.

        pods: label selector; empty for all pods of the namespace.
        """


class AdapterMetrics:
    """Values of prometheus-adapter, with the generic rules of the role prometheus_adapter."""

    def __init__(self, api: MetricsApi) -> None:
        self._api = api

    def discovery_name(self, metric_target: MetricTarget, autoscaler: Autoscaler) -> str:
        name = metric_target.metric.name
        if metric_target.type == EXTERNAL:
            return name
        return f"pods/{name}" if metric_target.type == PODS else f"{_plural(autoscaler.target)}/{name}"

    def read(self, metric_target: MetricTarget, autoscaler: Autoscaler, pods: str) -> list[MetricValue]:
        name, target, namespace = metric_target.metric.name, autoscaler.target, autoscaler.namespace
        if metric_target.type == EXTERNAL:
            labels = ",".join(f"{key}={value}" for key, value in external_labels(metric_target, target).items())
            return self._api.external(name, namespace=namespace, label_selector=labels)
        if metric_target.type == PODS:
            return self._api.custom(name, namespace=namespace, label_selector=pods)
        return self._api.custom(name, namespace=namespace, resource=_plural(target), name=target.name)


class KedaMetrics:
    """The pod values behind the recorded decisions, and recorded totals of workloads.

    KEDA forwards decisions and totals. The HPA shows that they arrive, because it has a value of each external metric.
    """

    def __init__(self, prometheus: PrometheusClient) -> None:
        self._prometheus = prometheus

    def discovery_name(self, metric_target: MetricTarget, autoscaler: Autoscaler) -> str:
        """KEDA serves all metrics under one name."""
        return "externalmetrics"

    def read(self, metric_target: MetricTarget, autoscaler: Autoscaler, pods: str) -> list[MetricValue]:
        """Values of all pods in the namespace whose workloads have a decision; for a total only the target's."""
        namespace, target = autoscaler.namespace, autoscaler.target
        if metric_target.type != PODS:
            found = self._query(f"max({metric_target.series}{{{equal(target.labels(namespace))}}})")
            return [MetricValue(target.kind, namespace, target.name, row.values[-1], "") for row in found]
        series = Decisions(metric_target.metric.name).value
        found = self._query(f"{series}{{namespace={quoted(namespace)}}} / 1000")
        return [
            MetricValue("Pod", namespace, row.labels["pod"], row.values[-1], "") for row in found if "pod" in row.labels
        ]

    def _query(self, promql: str) -> Sequence[Series]:
        try:
            return self._prometheus.query(promql)
        except QueryError as err:
            raise ApiError(200, str(err), f"query {promql}") from err


def served_metrics(api: MetricsApi, prometheus: PrometheusClient) -> Mapping[str, ServedMetrics]:
    """Implementations by backend."""
    return {ADAPTER: AdapterMetrics(api), KEDA: KedaMetrics(prometheus)}


def _plural(target: Target) -> str:
    return f"{WORKLOAD_LABELS[target.kind]}s.{target.api_version.rpartition('/')[0]}"
