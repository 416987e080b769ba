# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ScaledObject of an autoscaler and its recording rules, for clusters whose metrics come from KEDA.

KEDA makes the HPA. It decides like the HPA that the collection makes for prometheus-adapter: see keda_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import HopError, first_of_all
from ..hops import Hop
from .keda_rules import WORKLOAD_TYPES, Decisions
from .kube_names import LONGEST_LABEL
from .manifests import (
    AUTOSCALER_ANNOTATION,
    DEAD_TIME_ANNOTATION,
    DECISION_ANNOTATION,
    SCALED_OBJECT,
    SCALED_OBJECT_LABEL,
    Manifest,
    RuleOptions,
    behavior_of,
    decision_annotation,
    object_labels,
    profile_rule,
    reference,
    rule_object,
    shared_profiles,
)
from .metrics import Profile, smoothed_interval_s
from .promql import equal
from .replicas import DEFAULT_TOLERANCE, Tolerance
from .scaling import ScalingRules
from .spec import EXTERNAL, PODS, Autoscaler, MetricTarget, workload_rule_name

# KEDA's webhook rejects a ScaledObject that adopts the HPA of the same name without it.
TRANSFER_ANNOTATION = "scaledobject.keda.sh/transfer-hpa-ownership"


def check(autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> None:
    """Raises: HopError that names each autoscaler that KEDA's HPA would scale otherwise than the adapter's."""
    errors = [error for autoscaler in autoscalers if (error := why_not(autoscaler))]
    if autoscalers and not rules.prometheus_url:
        errors.append(
            HopError(
                Hop.SPEC,
                seen="backend is keda, and prometheus has a login or a CA, which ScaledObjects do not get",
                fix="give KEDA a Prometheus inside the cluster (prometheus.service), or set backend to adapter",
            )
        )
    if errors:
        raise first_of_all(errors)


def decision_rules(autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
    """The PrometheusRules: values and decisions of each profile, then the targets of each workload."""
    shared = shared_profiles(autoscalers)
    return [
        *(profile_rule(profile, rules, namespace) for namespace, profile in shared),
        *(decision_rule(profile, rules, namespace) for namespace, profile in shared),
        *(target_rule(autoscaler, rules) for autoscaler in autoscalers),
    ]


def rule_names(autoscaler: Autoscaler) -> list[str]:
    """Of the PrometheusRules that record what its ScaledObject reads."""
    profiles = [profile for profile in autoscaler.profiles if profile.recorded]
    return [
        *(profile.rule_name(autoscaler.namespace) for profile in profiles),
        *(decision_rule_name(profile, autoscaler.namespace) for profile in profiles),
        workload_rule_name(autoscaler.key),
    ]


def why_not(autoscaler: Autoscaler) -> HopError | None:
    """Why KEDA's HPA would decide otherwise than the adapter's, if it would."""
    return next(
        (
            HopError(Hop.SPEC, seen=f"autoscaler {autoscaler.name}: {seen}", fix=f"{fix}, or set backend to adapter")
            for is_so, seen, fix in _limits(autoscaler)
            if is_so
        ),
        None,
    )


def _limits(autoscaler: Autoscaler) -> Iterable[tuple[bool, str, str]]:
    """(whether it is beyond this limit, what was seen, what to do)"""
    other = next((target for target in autoscaler.metric_targets if target.type != PODS), None)
    yield (
        autoscaler.target.kind not in WORKLOAD_TYPES,
        f"backend is keda, which scales {' and '.join(WORKLOAD_TYPES)} only, and the target is a "
        f"{autoscaler.target.kind}",
        "choose such a target",
    )
    yield (
        autoscaler.demand is not None,
        "backend is keda, which does not support demand",
        "remove demand",
    )
    yield (
        other is not None,
        f"backend is keda, which supports metrics of type Pods only, and {other.metric.name if other else ''} is of "
        f"type {other.type if other else ''}",
        "set metric_type to Pods",
    )
    yield (
        bool(autoscaler.raw_metrics),
        f"backend is keda, whose HPA has a tolerance of 0, and extra_metrics has a metric of type "
        f"{autoscaler.raw_metrics[0]['type'] if autoscaler.raw_metrics else ''}",
        "remove it",
    )
    yield (
        len(autoscaler.name) > LONGEST_LABEL,
        f"backend is keda, and the name has {len(autoscaler.name)} characters",
        f"use {LONGEST_LABEL} characters at most",
    )


def decision_rule_name(profile: Profile, namespace: str) -> str:
    """Of the PrometheusRule with the decisions of all workloads on a profile. No profile begins with `decisions-`."""
    own = profile.rule_name(namespace)
    return f"{own}.decisions" if profile.is_own else own.replace("kubegpu-", "kubegpu-decisions-", 1)


def decision_rule(profile: Profile, rules: RuleOptions, namespace: str = "") -> Manifest:
    """Evaluated as often as what is smoothed, so that it adds at most one second to the reaction time."""
    interval_s = smoothed_interval_s(rules.evaluation_interval_s)
    labels: Manifest = {"labels": {"namespace": namespace}} if namespace else {}
    recordings = [
        {"record": series, "expr": query, **labels}
        for metric in profile.recorded
        for series, query in Decisions(metric.name).recordings(metric.series, interval_s, namespace)
    ]
    options = replace(rules, evaluation_interval_s=interval_s)
    return rule_object(decision_rule_name(profile, namespace), profile.name, recordings, options, namespace)


def target_rule(autoscaler: Autoscaler, rules: RuleOptions) -> Manifest:
    """What the shared rules need to know of one workload: its target values and tolerances."""
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
    decision = decision_annotation(autoscaler.metric_targets, autoscaler.scale_up, autoscaler.scale_down)
    annotations = {TRANSFER_ANNOTATION: "true", DECISION_ANNOTATION: decision}
    if autoscaler.is_measured:
        annotations[DEAD_TIME_ANNOTATION] = str(autoscaler.dead_time)
    return {
        "apiVersion": "keda.sh/v1alpha1",
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
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "name": autoscaler.name,
                    "behavior": {
                        "scaleUp": _without_tolerance(autoscaler.scale_up),
                        "scaleDown": _without_tolerance(autoscaler.scale_down),
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
    """The HPA that KEDA makes of a ScaledObject of this collection. Source: KEDA 2.21, controllers/keda/hpa.go."""
    spec, metadata = live["spec"], live["metadata"]
    selector = {"matchLabels": {SCALED_OBJECT_LABEL: metadata["name"]}}
    fields = {"AverageValue": "averageValue", "Value": "value"}
    metrics = [
        {
            "type": EXTERNAL,
            "external": {
                "metric": {"name": f"s{number}-{trigger['type']}", "selector": selector},
                "target": {"type": trigger["metricType"], fields[trigger["metricType"]]: "1"},
            },
        }
        for number, trigger in enumerate(spec["triggers"])
    ]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            **{part: metadata[part] for part in ("namespace", "labels", "annotations")},
            "name": hpa_name(live),
            "ownerReferences": [{"kind": SCALED_OBJECT, "name": metadata["name"]}],
        },
        "spec": {
            "scaleTargetRef": spec["scaleTargetRef"],
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": metrics,
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }


def hpa_name(live: Mapping[str, Any]) -> str:
    """Of the HPA that KEDA makes of a ScaledObject."""
    config = (live["spec"].get("advanced") or {}).get("horizontalPodAutoscalerConfig") or {}
    return str(config.get("name") or f"keda-hpa-{live['metadata']['name']}")


def diverging_fields(live: Mapping[str, Any]) -> list[str]:
    """Fields of a live ScaledObject that the module never sets, and by which KEDA sets replicas past the HPA's rules.

    A fallback to the current replicas moves nothing.
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


def _triggers(target: MetricTarget, autoscaler: Autoscaler, server_address: str) -> Iterable[Manifest]:
    """The HPA reads its metrics in this order, on which HELD_S relies."""
    decisions, name = Decisions(target.metric.name), target.metric.name.replace("_", "-")
    workload = equal(_workload_labels(autoscaler))
    for part, series, metric_type in (
        ("wanted", decisions.wanted, "AverageValue"),
        ("stays", decisions.stays, "Value"),
    ):
        yield {
            "type": "prometheus",
            "name": f"{name}-{part}",
            "metricType": metric_type,
            "metadata": {
                "serverAddress": server_address,
                # KEDA takes one series. Behind Thanos there may be one per replica of Prometheus.
                "query": f"max({series}{{{workload}}})",
                "threshold": "1",
                # Without it, no value counts as 0.
                "ignoreNullValues": "false",
            },
        }


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


def _without_tolerance(rules: ScalingRules) -> dict[str, Any]:
    """Every field, because KEDA updates the HPA for ever where the API server adds one."""
    return behavior_of(replace(rules, tolerance=0))
