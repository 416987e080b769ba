# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The field itself, no I/O: what an autoscaler is, what it becomes in a cluster, how the HPA will act on it."""

from __future__ import annotations

from ._domain.autoscaler import API_VERSIONS, Autoscaler, ScalingPolicy, ScalingRules, Target, autoscaler_key
from ._domain.budget import ReactionBudget
from ._domain.findings import (
    ADAPTER,
    API_SERVER,
    CUSTOM_METRIC,
    EXPORTER,
    HPA,
    RULE,
    SERIES,
    SPEC,
    WORKLOAD,
    Finding,
    HopError,
)
from ._domain.manifests import (
    MANAGED_BY,
    MANAGER,
    METRIC_LABEL,
    Manifest,
    RuleOptions,
    horizontal_pod_autoscaler,
    manifests,
    metrics_of,
    prometheus_rule,
)
from ._domain.metrics import PROFILES, Metric
from ._domain.quantity import format_quantity, parse_quantity
from ._domain.replicas import desired_replicas

__all__ = [
    "ADAPTER",
    "API_SERVER",
    "API_VERSIONS",
    "CUSTOM_METRIC",
    "EXPORTER",
    "HPA",
    "MANAGED_BY",
    "MANAGER",
    "METRIC_LABEL",
    "PROFILES",
    "RULE",
    "SERIES",
    "SPEC",
    "WORKLOAD",
    "Autoscaler",
    "Finding",
    "HopError",
    "Manifest",
    "Metric",
    "ReactionBudget",
    "RuleOptions",
    "ScalingPolicy",
    "ScalingRules",
    "Target",
    "autoscaler_key",
    "desired_replicas",
    "format_quantity",
    "horizontal_pod_autoscaler",
    "manifests",
    "metrics_of",
    "parse_quantity",
    "prometheus_rule",
]
