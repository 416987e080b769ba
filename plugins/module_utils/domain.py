# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The field itself, no I/O: what an autoscaler is, what it becomes in a cluster, how the HPA will act on it."""

from __future__ import annotations

from ._domain.autoscaler import (
    API_VERSIONS,
    EXTERNAL,
    OBJECT,
    PODS,
    WORKLOAD_LABELS,
    Autoscaler,
    Goal,
    Target,
    autoscaler_key,
)
from ._domain.budget import Period, ReactionBudget
from ._domain.capacity import gpus_of, gpus_per_pod, replicas_that_fit
from ._domain.doctor import CHECKS
from ._domain.doctor_adapter import config_map_of
from ._domain.doctor_catalogue import CATALOGUE
from ._domain.doctor_catalogue import HOPS as DOCTOR_HOPS
from ._domain.doctor_objects import labels_match
from ._domain.doctor_queries import labels_joined
from ._domain.doctor_report import report
from ._domain.doctor_state import (
    AdapterConfig,
    ApiState,
    AutoscalerState,
    MetricState,
    PrometheusState,
    Row,
    Scope,
    State,
)
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
    enumeration,
    first_of_all,
    merged,
)
from ._domain.manifests import (
    AUTOSCALER_ANNOTATION,
    DEAD_TIME_ANNOTATION,
    MANAGED_BY,
    MANAGER,
    METRIC_LABEL,
    Manifest,
    RuleOptions,
    autoscaler_of,
    external_labels,
    horizontal_pod_autoscaler,
    manifests,
    metric_names,
    metrics_of,
    profile_rule,
    profiles_of,
    prometheus_rules,
    workload_rule,
)
from ._domain.metrics import PROFILES, Metric, Profile
from ._domain.ownership import is_settled, other_managers
from ._domain.quantity import format_quantity, parse_quantity
from ._domain.replicas import (
    Tolerance,
    desired_replicas,
    desired_replicas_by_total,
    desired_replicas_by_value,
    desired_replicas_together,
)
from ._domain.scaling import ScalingPolicy, ScalingRules, dead_time_s

__all__ = [
    "ADAPTER",
    "API_SERVER",
    "API_VERSIONS",
    "AUTOSCALER_ANNOTATION",
    "CATALOGUE",
    "CHECKS",
    "CUSTOM_METRIC",
    "DEAD_TIME_ANNOTATION",
    "DOCTOR_HOPS",
    "EXPORTER",
    "EXTERNAL",
    "HPA",
    "MANAGED_BY",
    "MANAGER",
    "METRIC_LABEL",
    "OBJECT",
    "PODS",
    "PROFILES",
    "RULE",
    "SERIES",
    "SPEC",
    "WORKLOAD",
    "WORKLOAD_LABELS",
    "AdapterConfig",
    "ApiState",
    "Autoscaler",
    "AutoscalerState",
    "Finding",
    "Goal",
    "HopError",
    "Manifest",
    "Metric",
    "MetricState",
    "Period",
    "Profile",
    "PrometheusState",
    "ReactionBudget",
    "Row",
    "RuleOptions",
    "ScalingPolicy",
    "ScalingRules",
    "Scope",
    "State",
    "Target",
    "Tolerance",
    "autoscaler_key",
    "autoscaler_of",
    "config_map_of",
    "dead_time_s",
    "desired_replicas",
    "desired_replicas_by_total",
    "desired_replicas_by_value",
    "desired_replicas_together",
    "enumeration",
    "external_labels",
    "first_of_all",
    "format_quantity",
    "gpus_of",
    "gpus_per_pod",
    "horizontal_pod_autoscaler",
    "is_settled",
    "labels_joined",
    "labels_match",
    "manifests",
    "merged",
    "metric_names",
    "metrics_of",
    "other_managers",
    "parse_quantity",
    "profile_rule",
    "profiles_of",
    "prometheus_rules",
    "replicas_that_fit",
    "report",
    "workload_rule",
]
