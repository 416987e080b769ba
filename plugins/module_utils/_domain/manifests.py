# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .autoscaler import Autoscaler, ScalingRules
from .metrics import Metric
from .quantity import format_quantity

Manifest = dict[str, Any]

MANAGER = "kubegpu.autoscale"
MANAGED_BY = "app.kubernetes.io/managed-by"
METRIC_LABEL = "kubegpu.autoscale/metric"


@dataclass(frozen=True)
class RuleOptions:
    """Where recording rules go so that Prometheus loads them, and how often they are evaluated."""

    namespace: str = "monitoring"
    labels: Mapping[str, str] = field(default_factory=lambda: {"release": "kube-prometheus-stack"})
    evaluation_interval_s: int = 2


def manifests(autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
    """All that has to exist: a PrometheusRule for each metric, then a HorizontalPodAutoscaler for each autoscaler."""
    return [
        *(prometheus_rule(metric, rules) for metric in metrics_of(autoscalers)),
        *(horizontal_pod_autoscaler(autoscaler) for autoscaler in autoscalers),
    ]


def metrics_of(autoscalers: Iterable[Autoscaler]) -> list[Metric]:
    """Each metric once, in the order of first use."""
    return list(dict.fromkeys(autoscaler.metric for autoscaler in autoscalers))


def prometheus_rule(metric: Metric, rules: RuleOptions) -> Manifest:
    """The recording rule that all autoscalers on `metric` share."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": metric.rule_name,
            "namespace": rules.namespace,
            "labels": {**rules.labels, **_labels(metric)},
        },
        "spec": {
            "groups": [
                {
                    "name": metric.rule_name,
                    "interval": f"{rules.evaluation_interval_s}s",
                    "rules": [{"record": metric.series, "expr": metric.query}],
                }
            ]
        },
    }


def horizontal_pod_autoscaler(autoscaler: Autoscaler) -> Manifest:
    """A Pods metric with AverageValue: pods that are pending or do not report yet damp it, so it does not overshoot."""
    target = autoscaler.target
    metric = {
        "type": "Pods",
        "pods": {
            "metric": {"name": autoscaler.metric.name},
            "target": {"type": "AverageValue", "averageValue": format_quantity(autoscaler.target_value)},
        },
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": autoscaler.name,
            "namespace": autoscaler.namespace,
            "labels": _labels(autoscaler.metric),
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": target.name},
            "minReplicas": autoscaler.min_replicas,
            "maxReplicas": autoscaler.max_replicas,
            "metrics": [metric, *(dict(extra) for extra in autoscaler.extra_metrics)],
            "behavior": {"scaleUp": _behavior(autoscaler.scale_up), "scaleDown": _behavior(autoscaler.scale_down)},
        },
    }


def _labels(metric: Metric) -> dict[str, str]:
    return {MANAGED_BY: MANAGER, METRIC_LABEL: metric.name}


def _behavior(rules: ScalingRules) -> Manifest:
    behavior: Manifest = {
        "stabilizationWindowSeconds": rules.stabilization_window_seconds,
        "selectPolicy": rules.select_policy,
        "policies": [
            {"type": policy.type, "value": policy.value, "periodSeconds": policy.period_seconds}
            for policy in rules.policies
        ],
    }
    if rules.tolerance is not None:
        behavior["tolerance"] = format_quantity(rules.tolerance)
    return behavior
