# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Creates the ScaledObject of an autoscaler and its recording rules, for clusters with KEDA as the metrics backend.

KEDA creates the HPA. It decides like the collection's HPA for prometheus-adapter: see keda_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import HopError
from ..hops import Hop
from ..kube.api_versions import HPA_VERSION, SCALED_OBJECT_VERSION
from ..kube.labels import AUTOSCALER_ANNOTATION, DECISION_ANNOTATION
from ..kube.objects import Manifest
from .backend_limits import refuse
from .keda_rules import WORKLOAD_TYPES, Decisions
from .kube_names import LONGEST_LABEL
from .manifests import (
    SCALED_OBJECT,
    SCALED_OBJECT_LABEL,
    RuleOptions,
    behavior_of,
    dead_time_annotations,
    decision_annotation,
    object_labels,
    profile_rule,
    prometheus_rules,
    reference,
    rule_object,
    shared_profiles,
)
from .manifests import rule_names as names_of_rules
from .metrics import Profile, smoothed_interval_s
from .promql import equal
from .replicas import DEFAULT_TOLERANCE, Tolerance, in_thousandths
from .scaling_rules import ScalingRules
from .spec import EXTERNAL, OBJECT, PODS, Autoscaler, MetricTarget, workload_rule_name
from .zero import faults

# KEDA's webhook rejects a ScaledObject that adopts the HPA of the same name without it.
TRANSFER_ANNOTATION = "scaledobject.keda.sh/transfer-hpa-ownership"
# Seconds between two queries of KEDA for a workload that may be at zero.
POLLING_S = 5


def check(autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> None:
    """Raises: HopError that lists the autoscalers that KEDA's HPA would scale differently."""
    hidden = HopError(
        Hop.SPEC,
        seen="backend is keda, and prometheus has a login or a CA, which ScaledObjects do not get",
        fix="give KEDA a Prometheus inside the cluster (prometheus.service), or set backend to adapter",
    )
    found = (
        (
            autoscaler,
            [*((seen, f"{fix}, or set backend to adapter") for seen, fix in _limits(autoscaler)), *faults(autoscaler)],
        )
        for autoscaler in autoscalers
    )
    refuse(found, *([hidden] if autoscalers and not rules.prometheus_url else []))


def decision_rules(autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
    """The PrometheusRules: values and decisions of each profile, then the targets or totals of each workload."""
    deciding = [autoscaler for autoscaler in autoscalers if not reads_totals(autoscaler)]
    shared = shared_profiles(deciding)
    return [
        *(profile_rule(profile, rules, namespace) for namespace, profile in shared),
        *(decision_rule(profile, rules, namespace) for namespace, profile in shared),
        *(target_rule(autoscaler, rules) for autoscaler in deciding),
        *prometheus_rules([autoscaler for autoscaler in autoscalers if reads_totals(autoscaler)], rules),
    ]


def rule_names(autoscaler: Autoscaler) -> list[str]:
    """Names of the PrometheusRules for its ScaledObject."""
    if reads_totals(autoscaler):
        return names_of_rules(autoscaler)
    profiles = [profile for profile in autoscaler.profiles if profile.recorded]
    return [
        *(profile.rule_name(autoscaler.namespace) for profile in profiles),
        *(decision_rule_name(profile, autoscaler.namespace) for profile in profiles),
        workload_rule_name(autoscaler.key),
    ]


def reads_totals(autoscaler: Autoscaler) -> bool:
    """The controller ignores pods in decisions on a total, so KEDA's HPA reads the total unchanged."""
    return all(target.type != PODS for target in autoscaler.metric_targets)


def _limits(autoscaler: Autoscaler) -> Iterator[tuple[str, str]]:
    """What KEDA's HPA would decide differently: problem and fix."""
    targets = autoscaler.metric_targets
    other = next((target for target in targets if target.type != PODS and not _is_recorded_total(target)), None)
    if autoscaler.demand:
        yield "backend is keda, which does not support demand", "remove demand"
    elif other:
        yield (
            f"backend is keda, which supports metrics of type Pods, and totals of type Object, and {other.metric.name} "
            f"is {'an average' if other.type == OBJECT else 'a metric'} of type {other.type}",
            "set metric_type to Pods, or to Object with a query and per: workload",
        )
    elif not reads_totals(autoscaler) and any(target.type != PODS for target in targets):
        yield (
            "backend is keda, whose HPA has a tolerance of 0 for metrics of type Pods, and extra_metrics has a total",
            "scale on one of them",
        )
    elif not reads_totals(autoscaler) and autoscaler.target.kind not in WORKLOAD_TYPES:
        yield (
            f"backend is keda, which scales {' and '.join(WORKLOAD_TYPES)} only on metrics of type Pods, and the "
            f"target is a {autoscaler.target.kind}",
            "choose such a target",
        )
    if autoscaler.raw_metrics:
        yield (
            "backend is keda, which does not support entries of spec.metrics, and extra_metrics has one of type "
            f"{autoscaler.raw_metrics[0]['type']}",
            "remove it",
        )
    if len(autoscaler.name) > LONGEST_LABEL:
        yield (
            f"backend is keda, and the name has {len(autoscaler.name)} characters",
            f"use {LONGEST_LABEL} characters at most",
        )


def _is_recorded_total(target: MetricTarget) -> bool:
    return target.type == OBJECT and target.is_total


def decision_rule_name(profile: Profile, namespace: str) -> str:
    """Name of the PrometheusRule with the decisions for a profile. No profile begins with `decisions-`."""
    own = profile.rule_name(namespace)
    return f"{own}.decisions" if profile.is_own else own.replace("kubegpu-", "kubegpu-decisions-", 1)


def decision_rule(profile: Profile, rules: RuleOptions, namespace: str = "") -> Manifest:
    """Evaluated as often as smoothed values, or every 0.5 s in a small fleet, because evaluations delay decisions."""
    interval_s = smoothed_interval_s(rules.evaluation_interval_s)
    labels: Manifest = {"labels": {"namespace": namespace}} if namespace else {}
    recordings = [
        {"record": series, "expr": query, **labels}
        for metric in profile.recorded
        for series, query in Decisions(metric.name).recordings(metric.series, interval_s, namespace)
    ]
    interval = "500ms" if rules.evaluation_interval_s == 1 else f"{interval_s}s"
    name = decision_rule_name(profile, namespace)
    return rule_object(name, profile.name, recordings, rules, namespace, interval)


def target_rule(autoscaler: Autoscaler, rules: RuleOptions) -> Manifest:
    """Inputs of one workload for the shared rules: its target values and tolerances."""
    labels = _workload_labels(autoscaler)
    tolerance = _tolerance(autoscaler)
    recordings = [
        {"record": series, "expr": query, "labels": labels}
        for target in autoscaler.metric_targets
        for series, query in Decisions(target.metric.name).of_target(target.value, tolerance)
    ]
    return rule_object(
        workload_rule_name(autoscaler.key),
        autoscaler.profile.name,
        recordings,
        rules,
        autoscaler.namespace,
        annotations={AUTOSCALER_ANNOTATION: str(autoscaler)},
    )


def scaled_object(autoscaler: Autoscaler, rules: RuleOptions) -> Manifest:
    """KEDA copies its labels and annotations to the HPA, and replaces those that the HPA had."""
    annotations = {TRANSFER_ANNOTATION: "true", DECISION_ANNOTATION: decision_annotation(autoscaler)}
    annotations |= dead_time_annotations(autoscaler)
    return {
        "apiVersion": SCALED_OBJECT_VERSION,
        "kind": SCALED_OBJECT,
        "metadata": {
            "name": autoscaler.name,
            "namespace": autoscaler.namespace,
            "labels": object_labels(autoscaler.profile.name, rules.inventory),
            "annotations": annotations,
        },
        "spec": {
            "scaleTargetRef": reference(autoscaler.target),
            "minReplicaCount": autoscaler.min_replicas,
            "maxReplicaCount": autoscaler.max_replicas,
            **_activation(autoscaler),
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "name": autoscaler.name,
                    "behavior": {
                        "scaleUp": _behavior(autoscaler, autoscaler.scale_up),
                        "scaleDown": _behavior(autoscaler, autoscaler.scale_down),
                    },
                },
            },
            "triggers": [
                trigger
                for target in autoscaler.metric_targets
                for trigger in _triggers(target, autoscaler, rules.prometheus_url)
            ],
        },
    }


def hpa_of(live: Mapping[str, Any]) -> Manifest:
    """The HPA that KEDA creates for a ScaledObject of this collection. Source: KEDA 2.21, controllers/keda/hpa.go."""
    spec, metadata = live["spec"], live["metadata"]
    selector = {"matchLabels": {SCALED_OBJECT_LABEL: metadata["name"]}}
    fields = {"AverageValue": "averageValue", "Value": "value"}
    metrics = [
        {
            "type": EXTERNAL,
            "external": {
                "metric": {"name": f"s{number}-{trigger['type']}", "selector": selector},
                "target": {
                    "type": trigger["metricType"],
                    fields[trigger["metricType"]]: trigger["metadata"]["threshold"],
                },
            },
        }
        for number, trigger in enumerate(spec["triggers"])
    ]
    return {
        "apiVersion": HPA_VERSION,
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            **{part: metadata[part] for part in ("namespace", "labels", "annotations")},
            "name": hpa_name(live),
            "ownerReferences": [{"kind": SCALED_OBJECT, "name": metadata["name"]}],
        },
        "spec": {
            "scaleTargetRef": spec["scaleTargetRef"],
            "minReplicas": max(spec["minReplicaCount"], 1),
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": metrics,
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }


def hpa_name(live: Mapping[str, Any]) -> str:
    """Name of the HPA that KEDA creates for a ScaledObject."""
    config = (live["spec"].get("advanced") or {}).get("horizontalPodAutoscalerConfig") or {}
    return str(config.get("name") or f"keda-hpa-{live['metadata']['name']}")


def diverging_fields(live: Mapping[str, Any]) -> list[str]:
    """Fields of a live ScaledObject that the module never sets, and with which KEDA bypasses the HPA's rules.

    A fallback to the current replicas changes nothing.
    """
    spec, advanced = live["spec"], live["spec"].get("advanced") or {}
    fallback = spec.get("fallback") or {}
    candidates = {
        "spec.idleReplicaCount": spec.get("idleReplicaCount") is not None,
        "spec.fallback": bool(fallback) and fallback.get("behavior") != "currentReplicas",
        "spec.advanced.scalingModifiers": bool((advanced.get("scalingModifiers") or {}).get("formula")),
        "spec.advanced.restoreToOriginalReplicaCount": bool(advanced.get("restoreToOriginalReplicaCount")),
    }
    return [field for field, is_set in candidates.items() if is_set]


def _activation(autoscaler: Autoscaler) -> Manifest:
    """How KEDA scales to and from zero, which its HPA does not.

    It queries the metrics every pollingInterval, and scales to zero from any number once they have been 0 for the
    window. Before they exceed 0 for the first time, the window is initialCooldownPeriod. Missing values change nothing.
    Source: KEDA 2.21, pkg/scaling/executor/scale_scaledobjects.go.
    """
    if autoscaler.min_replicas:
        return {}
    window_s = autoscaler.scale_down.stabilization_window_seconds
    return {"pollingInterval": POLLING_S, "cooldownPeriod": window_s, "initialCooldownPeriod": window_s}


def _triggers(target: MetricTarget, autoscaler: Autoscaler, server_address: str) -> Iterator[Manifest]:
    """The HPA reads its metrics in this order, on which HELD_S relies."""
    decisions, name = Decisions(target.metric.name), target.metric.name.replace("_", "-")
    if target.type == PODS:
        labels = _workload_labels(autoscaler)
        yield _trigger(
            f"{name}-desired-replicas", server_address, decisions.desired_replicas, labels, "AverageValue", "1"
        )
        yield _trigger(f"{name}-unchanged", server_address, decisions.unchanged, labels, "Value", "1")
    else:
        labels = autoscaler.target.labels(autoscaler.namespace)
        yield _trigger(name, server_address, target.series, labels, "AverageValue", _threshold(target.value))


def _trigger(
    name: str, server_address: str, series: str, labels: Mapping[str, str], metric_type: str, threshold: str
) -> Manifest:
    return {
        "type": "prometheus",
        "name": name,
        "metricType": metric_type,
        "metadata": {
            "serverAddress": server_address,
            # KEDA accepts one series; Thanos may return one for each replica of Prometheus. KEDA 2.21 truncates the
            # query's time to the full second (pkg/scalers/prometheus_scaler.go), so it would miss the latest value.
            "query": f"max({series}{{{equal(labels)}}} offset -1s)",
            "threshold": threshold,
            # Without it, no value counts as 0.
            "ignoreNullValues": "false",
        },
    }


def _threshold(value: float) -> str:
    """As KEDA reads it: a decimal number, not a quantity."""
    return f"{in_thousandths(value) / 1000:f}".rstrip("0").rstrip(".")


def _workload_labels(autoscaler: Autoscaler) -> dict[str, str]:
    target = autoscaler.target
    return {
        "namespace": autoscaler.namespace,
        "workload": target.name,
        "workload_type": WORKLOAD_TYPES[target.kind],
    }


def _tolerance(autoscaler: Autoscaler) -> Tolerance:
    up, down = autoscaler.scale_up.tolerance, autoscaler.scale_down.tolerance
    return Tolerance(
        up=DEFAULT_TOLERANCE.up if up is None else up, down=DEFAULT_TOLERANCE.down if down is None else down
    )


def _behavior(autoscaler: Autoscaler, rules: ScalingRules) -> Manifest:
    """Every field, because KEDA would update the HPA forever if the API server added one.

    The tolerance of decisions is part of the recording rules.
    """
    return behavior_of(rules if reads_totals(autoscaler) else replace(rules, tolerance=0))
