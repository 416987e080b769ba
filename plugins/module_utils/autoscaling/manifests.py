# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import json
import re
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from textwrap import indent
from typing import Any

from ..kube.api_versions import HPA_VERSION
from ..kube.labels import (
    AUTOSCALER_ANNOTATION,
    DEAD_TIME_ANNOTATION,
    DECISION_ANNOTATION,
    DEFAULT_INVENTORY,
    METRIC_LABEL,
    NAMESPACE,
    SELECTORS_ANNOTATION,
    is_managed,
    namespace_of,
)
from ..kube.labels import labels as inventory_labels
from ..kube.objects import Manifest
from ..kube.quantity import format_quantity, parse_quantity
from . import defaults
from .controller import Behavior
from .demand import recordings as demand_recordings
from .inputs import INPUTS, Selectors, as_labels, read_by, with_selectors
from .metrics import PROFILES, Metric, Profile, smoothed_interval_s, sustained_name
from .pod_names import pod_names
from .pod_owners import FROZEN_STATES, lost_pods, pods_of
from .promql import quoted
from .scaling_rules import ASSUMED_DEAD_TIME_S, LONGEST_DEAD_TIME_S, ScalingRules
from .spec import (
    ADAPTER,
    EXTERNAL,
    KEDA,
    OBJECT,
    PODS,
    WORKLOAD_LABELS,
    Autoscaler,
    MetricTarget,
    Target,
    workload_rule_name,
)

# The owner of KEDA's HPAs, and its label on each metric of such an HPA: the name of that object.
SCALED_OBJECT = "ScaledObject"
SCALED_OBJECT_LABEL = "scaledobject.keda.sh/name"


@dataclass(frozen=True)
class RuleOptions:
    """How recording rules are created: location and labels for Prometheus, evaluation interval, and scrape targets.

    selectors:      labels of the scrape targets by input, empty for any target; without inputs that are still unknown.
    inventory:      ID of the inventory of the objects.
    prometheus_url: Address at which KEDA queries Prometheus; empty if that needs a login or a private CA.
    """

    namespace: str = defaults.NAMESPACE
    labels: Mapping[str, str] = field(default_factory=lambda: {"release": defaults.RELEASE})
    evaluation_interval_s: int = defaults.EVALUATION_INTERVAL_S
    selectors: Selectors = field(default_factory=dict)
    inventory: str = DEFAULT_INVENTORY
    prometheus_url: str = f"http://{defaults.SERVICE}.{defaults.NAMESPACE}.svc:{defaults.PORT}"


def prometheus_rules(autoscalers: Sequence[Autoscaler], rules: RuleOptions) -> list[Manifest]:
    """One rule for each profile, shared by its autoscalers, and one for each workload with a separate value.

    A profile is shared in the whole cluster, and a custom metric in its namespace.
    """
    shared = [profile_rule(profile, rules, namespace) for namespace, profile in shared_profiles(autoscalers)]
    own = [workload_rule(autoscaler, rules) for autoscaler in autoscalers if _workload_metrics(autoscaler)]
    return [*shared, *own]


def is_shared(rule: Manifest) -> bool:
    """Whether the autoscalers of all namespaces may read the rule, so that one team must not change it."""
    return not namespace_of(rule) and not autoscaler_behind(rule)


def autoscaler_behind(rule: Mapping[str, Any]) -> str:
    """Namespace and name of the one autoscaler that the rule serves; empty if it serves several."""
    return str((rule["metadata"].get("annotations") or {}).get(AUTOSCALER_ANNOTATION) or "")


def rule_names(autoscaler: Autoscaler) -> list[str]:
    """Names of the PrometheusRules for this autoscaler."""
    shared = [profile.rule_name(autoscaler.namespace) for profile in autoscaler.profiles if profile.recorded]
    return [*shared, workload_rule_name(autoscaler.key)] if _workload_metrics(autoscaler) else shared


def shared_profiles(autoscalers: Iterable[Autoscaler]) -> list[tuple[str, Profile]]:
    """Each profile with a rule, once for each namespace that has its own rule; in the order of first use.

    The namespace is empty for a profile whose rule serves the whole cluster.
    """
    return list(
        dict.fromkeys(
            (autoscaler.namespace if profile.is_own else "", profile)
            for autoscaler in autoscalers
            for profile in autoscaler.profiles
            if profile.recorded
        )
    )


def metrics_of(autoscalers: Iterable[Autoscaler]) -> list[Metric]:
    """Each metric once, in the order of first use."""
    return list(
        dict.fromkeys(metric_target.metric for autoscaler in autoscalers for metric_target in autoscaler.metric_targets)
    )


def resources_of(autoscaler: Autoscaler) -> list[str]:
    """Resources that it needs from metrics.k8s.io: cpu and memory of pods or containers."""
    entries = [raw.get("resource") or raw.get("containerResource") or {} for raw in autoscaler.raw_metrics]
    return [entry["name"] for entry in entries if "name" in entry]


def profile_rule(profile: Profile, rules: RuleOptions, namespace: str = "") -> Manifest:
    """The recording rules that all autoscalers on `profile` share, in one namespace if one is given."""
    # The adapter treats a series with a job as scraped.
    labels: Manifest = {"labels": {"namespace": namespace, "job": ""}} if namespace else {}
    recordings = [
        {"record": series, "expr": query_in(namespace, query), **labels}
        for metric in profile.recorded
        for series, query in metric.recordings()
    ]
    if any(metric.is_smoothed for metric in profile.recorded):
        rules = replace(rules, evaluation_interval_s=smoothed_interval_s(rules.evaluation_interval_s))
    return rule_object(profile.rule_name(namespace), profile.name, recordings, rules, namespace)


def query_in(namespace: str, query: str) -> str:
    """The query limited to the pods of the namespace, so that no namespace records values for another."""
    if not namespace:
        return query
    return (
        f"(\n{indent(query, '  ')}\n)\nand on (namespace)\n"
        f'label_replace(vector(1), "namespace", {quoted(namespace)}, "", "")'
    )


def workload_rule(autoscaler: Autoscaler, rules: RuleOptions) -> Manifest:
    """The recording rules of one workload, for Object and External metrics."""
    labels = autoscaler.target.labels(autoscaler.namespace)
    queries = [
        *_demand_queries(autoscaler, rules),
        *(
            (metric_target.series, _workload_query(autoscaler, metric_target))
            for metric_target in _workload_metrics(autoscaler)
        ),
    ]
    recordings = [{"record": series, "expr": query, "labels": labels} for series, query in queries]
    return rule_object(
        workload_rule_name(autoscaler.key),
        autoscaler.profile.name,
        recordings,
        rules,
        autoscaler.namespace,
        annotations={AUTOSCALER_ANNOTATION: str(autoscaler)},
    )


def selectors_of(rule: Mapping[str, Any]) -> Selectors:
    """The selectors recorded on a rule; empty if the annotation was edited."""
    noted = (rule["metadata"].get("annotations") or {}).get(SELECTORS_ANNOTATION, "{}")
    with suppress(ValueError):
        selectors = json.loads(noted)
        if isinstance(selectors, dict):
            return {name: labels for name in INPUTS if (labels := as_labels(selectors.get(name)))}
    return {}


def horizontal_pod_autoscaler(autoscaler: Autoscaler, inventory: str = DEFAULT_INVENTORY) -> Manifest:
    metadata: dict[str, Any] = {
        "name": autoscaler.name,
        "namespace": autoscaler.namespace,
        "labels": object_labels(autoscaler.profile.name, inventory),
    }
    if annotations := dead_time_annotations(autoscaler):
        metadata["annotations"] = annotations
    return {
        "apiVersion": HPA_VERSION,
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {
            "scaleTargetRef": reference(autoscaler.target),
            "minReplicas": autoscaler.min_replicas,
            "maxReplicas": autoscaler.max_replicas,
            "metrics": [
                *(
                    _METRIC_SPECS[metric_target.type](metric_target, autoscaler)
                    for metric_target in autoscaler.metric_targets
                ),
                *(dict(raw) for raw in autoscaler.raw_metrics),
            ],
            "behavior": {"scaleUp": behavior_of(autoscaler.scale_up), "scaleDown": behavior_of(autoscaler.scale_down)},
        },
    }


def autoscaler_of(hpa: Mapping[str, Any], queries: Mapping[str, str]) -> Autoscaler:
    """The autoscaler of an HPA, as far as the HPA shows it.

    CPU and memory stay raw metrics, as does a metric of an object other than the target.
    queries: recorded queries by series.
    """
    backend = backend_behind(hpa)
    hpa = as_decided(hpa)
    spec, metadata = hpa["spec"], hpa["metadata"]
    labels = metadata.get("labels") or {}
    ref = spec["scaleTargetRef"]
    target = Target(ref["kind"], ref["name"], ref.get("apiVersion", "apps/v1"))
    entries = spec.get("metrics") or ()
    of_target = [entry for entry in entries if _is_of(target, entry)]
    is_ours = is_managed(hpa)
    metric_targets = [
        _metric_target_of(entry, queries if _is_recorded(target, entry) else {}, is_ours=is_ours) for entry in of_target
    ]
    name = labels.get(METRIC_LABEL) or (metric_targets[0].metric.name if metric_targets else "")
    behavior, (dead_time, is_given) = Behavior.of_hpa(spec), dead_time_of(hpa)
    computed = Autoscaler(
        name=metadata["name"],
        namespace=metadata["namespace"],
        target=target,
        profile=PROFILES.get(name) or Profile(name, tuple(metric_target.metric for metric_target in metric_targets)),
        metric_targets=tuple(metric_targets),
        min_replicas=spec.get("minReplicas", 1),
        max_replicas=spec["maxReplicas"],
        raw_metrics=tuple(entry for entry in entries if entry not in of_target),
        dead_time=dead_time or ASSUMED_DEAD_TIME_S,
        is_given=is_given,
        is_measured=bool(dead_time) and not is_given,
        backend=backend,
    )
    return replace(
        computed,
        given_scale_up=behavior.scale_up.apart_from(computed.scale_up),
        given_scale_down=behavior.scale_down.apart_from(computed.scale_down),
    )


def reads_recorded(autoscaler: Autoscaler) -> bool:
    """Whether an HPA, of any owner, reads a metric that a rule of this collection records."""
    return any(metric_target.metric.query for metric_target in autoscaler.metric_targets)


def decision_annotation(autoscaler: Autoscaler) -> str:
    """The annotation from which `autoscaler_of` restores the autoscaler of KEDA's HPA.

    There, a Pods metric is two metrics, and the tolerance is 0. A total has another type, and the minimum is not 0.
    """
    tolerances = {"scaleUp": autoscaler.scale_up.tolerance, "scaleDown": autoscaler.scale_down.tolerance}
    targets = autoscaler.metric_targets
    decision: dict[str, Any] = {
        "targets": {target.metric.name: format_quantity(target.value) for target in targets},
        "tolerances": {way: format_quantity(given) for way, given in tolerances.items() if given is not None},
    }
    if all(target.type != PODS for target in targets):
        decision["type"] = OBJECT
    if not autoscaler.min_replicas:
        decision["minimum"] = autoscaler.min_replicas
    return json.dumps(decision)


def as_decided(hpa: Mapping[str, Any]) -> Mapping[str, Any]:
    """KEDA's HPA with the metrics and tolerances of its autoscaler; any other HPA unchanged."""
    decision, spec = _decision(hpa), hpa["spec"]
    if not decision:
        return hpa
    type_ = decision.get("type", PODS)
    described = {"describedObject": spec["scaleTargetRef"]} if type_ == OBJECT else {}
    metrics = [
        {
            "type": type_,
            type_.lower(): {
                "metric": {"name": name},
                **described,
                "target": {"type": "AverageValue", "averageValue": value},
            },
        }
        for name, value in decision["targets"].items()
    ]
    minimum = {"minReplicas": decision["minimum"]} if "minimum" in decision else {}
    behavior = {}
    for way, rules in (spec.get("behavior") or {}).items():
        given = {"tolerance": decision["tolerances"][way]} if way in decision["tolerances"] else {}
        behavior[way] = {**{key: value for key, value in rules.items() if key != "tolerance"}, **given}
    return {**hpa, "spec": {**spec, **minimum, "metrics": metrics, "behavior": behavior}}


def backend_behind(hpa: Mapping[str, Any]) -> str:
    """The backend whose metrics an HPA of this collection reads; of any other HPA the adapter."""
    return KEDA if _decision(hpa) else ADAPTER


def _decision(scaler: Mapping[str, Any]) -> Mapping[str, Any]:
    """Annotation of KEDA's HPAs and ScaledObjects of this collection; empty otherwise."""
    text = (scaler["metadata"].get("annotations") or {}).get(DECISION_ANNOTATION, "{}")
    decision: Mapping[str, Any] = json.loads(text) if is_managed(scaler) and _is_of_keda(scaler) else {}
    return decision


def _is_of_keda(scaler: Mapping[str, Any]) -> bool:
    """Whether KEDA owns the HPA, by its owner or metrics: annotations of KEDA remain when the backend changes."""
    references = scaler["metadata"].get("ownerReferences") or ()
    entries = [entry["external"] for entry in scaler["spec"].get("metrics") or () if entry["type"] == EXTERNAL]
    selectors = [(entry["metric"].get("selector") or {}).get("matchLabels") or {} for entry in entries]
    return (
        scaler.get("kind") == SCALED_OBJECT
        or any(reference["kind"] == SCALED_OBJECT for reference in references)
        or any(SCALED_OBJECT_LABEL in labels for labels in selectors)
    )


def dead_time_annotations(autoscaler: Autoscaler) -> dict[str, str]:
    """The annotation from which `dead_time_of` reads; empty if the dead time is assumed.

    Scaling rules do not show it: those of GPU activity do not depend on it.
    """
    given = " given" if autoscaler.is_given else ""
    known = autoscaler.is_given or autoscaler.is_measured
    return {DEAD_TIME_ANNOTATION: f"{autoscaler.dead_time}{given}"} if known else {}


def dead_time_of(hpa: Mapping[str, Any]) -> tuple[int, bool]:
    """The dead time of an HPA in seconds, 0 if it is missing or invalid, and whether the user sets it."""
    text = (hpa["metadata"].get("annotations") or {}).get(DEAD_TIME_ANNOTATION, "")
    found = re.fullmatch("([0-9]{1,6})( given)?", text)
    seconds = int(found[1]) if found else 0
    return (seconds, bool(found and found[2])) if 0 < seconds <= LONGEST_DEAD_TIME_S else (0, False)


def _is_of(target: Target, entry: Manifest) -> bool:
    """Whether the metrics APIs can be queried for an entry's value by the target or its pods."""
    if entry["type"] == OBJECT:
        described = entry["object"]["describedObject"]
        return target.kind in WORKLOAD_LABELS and (described["kind"], described["name"]) == (target.kind, target.name)
    return entry["type"] in _METRIC_SPECS


def _is_recorded(target: Target, entry: Manifest) -> bool:
    """Whether a rule can record it: for a target's total only if Prometheus can identify the target's pods."""
    return entry["type"] == PODS or target.kind in WORKLOAD_LABELS


def _metric_target_of(entry: Manifest, queries: Mapping[str, str], *, is_ours: bool) -> MetricTarget:
    """The metric_target of an entry of an HPA's metrics.

    In a third-party HPA, a metric name of this collection counts only if the metric is recorded.
    """
    content = entry[entry["type"].lower()]
    name, target = content["metric"]["name"], content["target"]
    value = parse_quantity(target.get("averageValue") or target.get("value"))
    profiles = [metric for profile in PROFILES.values() for metric in profile.metrics]
    known = next((metric for metric in profiles if metric.name == name), None)
    lasting = next((metric for metric in profiles if sustained_name(metric.name) == name), None)
    selector = tuple(sorted((content["metric"].get("selector") or {}).get("matchLabels", {}).items()))
    for per in ("pod", "workload"):
        metric = replace(lasting, name=name, per=per) if lasting else Metric(name, "recorded", per=per)
        metric_target = MetricTarget(known or metric, value, entry["type"])
        if query := queries.get(metric_target.series):
            return replace(metric_target, metric=known or replace(metric_target.metric, query=query))
    return MetricTarget((known if is_ours else None) or Metric(name, "", selector=selector), value, entry["type"])


def recordings_of(rule: Mapping[str, Any]) -> Iterator[Manifest]:
    """The recording rules of a PrometheusRule, to which others may have added alerts and empty groups."""
    for group in (rule.get("spec") or {}).get("groups") or ():
        yield from (recording for recording in group.get("rules") or () if recording.get("record"))


class RecordedQueries:
    """Recorded queries by series: for all namespaces, or for one."""

    def __init__(self, rules: Iterable[Mapping[str, Any]]) -> None:
        self._by_namespace: dict[str, dict[str, str]] = {}
        for rule in rules:
            queries = self._by_namespace.setdefault(namespace_of(rule), {})
            queries.update((recording["record"], recording.get("expr", "")) for recording in recordings_of(rule))

    def of(self, hpa: Mapping[str, Any]) -> Mapping[str, str]:
        """Queries that the HPA may read."""
        return ChainMap(self._by_namespace.get(hpa["metadata"]["namespace"], {}), self._by_namespace.get("", {}))


def metric_of(manifest: Manifest) -> str:
    """The metric of an object of this collection; empty for other objects."""
    return (manifest["metadata"].get("labels") or {}).get(METRIC_LABEL, "")


def metric_names(hpa: Manifest, types: Collection[str] = (PODS, OBJECT, EXTERNAL)) -> set[str]:
    """Metrics that an HPA queries, of these types.

    For KEDA's HPAs and ScaledObjects of this collection, the metrics that their rules read.
    """
    if decision := _decision(hpa):
        return {name for metric in decision["targets"] for name in (metric, f"{metric}_decision", f"{metric}_target")}
    entries = [entry for entry in hpa["spec"].get("metrics") or () if entry["type"] in types]
    return {entry[entry["type"].lower()]["metric"]["name"] for entry in entries}


def _pods_metric(metric_target: MetricTarget, _autoscaler: Autoscaler) -> Manifest:
    """Pods that are pending or have no value yet damp the average, so it does not overshoot."""
    return {
        "type": PODS,
        "pods": {"metric": {"name": metric_target.metric.name}, "target": _average(metric_target.value)},
    }


def _object_metric(metric_target: MetricTarget, autoscaler: Autoscaler) -> Manifest:
    target = (
        _average(metric_target.value)
        if metric_target.is_total
        else {"type": "Value", "value": format_quantity(metric_target.value)}
    )
    described = {"metric": {"name": metric_target.metric.name}, "describedObject": reference(autoscaler.target)}
    return {"type": OBJECT, "object": {**described, "target": target}}


def external_labels(metric_target: MetricTarget, target: Target) -> dict[str, str]:
    """Selector of the workload's series in external.metrics.k8s.io: the user's labels, or the recorded ones."""
    return (
        {WORKLOAD_LABELS[target.kind]: target.name}
        if metric_target.metric.query
        else dict(metric_target.metric.selector)
    )


def _external_metric(metric_target: MetricTarget, autoscaler: Autoscaler) -> Manifest:
    selector = external_labels(metric_target, autoscaler.target)
    metric: dict[str, Any] = {"name": metric_target.metric.name}
    if selector:
        metric["selector"] = {"matchLabels": selector}
    return {"type": EXTERNAL, "external": {"metric": metric, "target": _average(metric_target.value)}}


_METRIC_SPECS = {PODS: _pods_metric, OBJECT: _object_metric, EXTERNAL: _external_metric}


def _average(value: float) -> Manifest:
    return {"type": "AverageValue", "averageValue": format_quantity(value)}


def _workload_metrics(autoscaler: Autoscaler) -> list[MetricTarget]:
    return [
        metric_target
        for metric_target in autoscaler.metric_targets
        if metric_target.type != PODS and metric_target.metric.query
    ]


def _demand_queries(autoscaler: Autoscaler, rules: RuleOptions) -> Iterator[tuple[str, str]]:
    """Series and PromQL of the demand's parts, and of the pod values beside it."""
    target, [leading, *_others] = autoscaler.target, autoscaler.metric_targets
    if autoscaler.demand:
        if leading.type == PODS:
            yield leading.series, leading.metric.query
        yield from demand_recordings(
            autoscaler.demand,
            autoscaler.profile.metrics[0],
            target.labels(autoscaler.namespace),
            pod_names(target.kind, target.name),
            rules.evaluation_interval_s,
        )


def _workload_query(autoscaler: Autoscaler, metric_target: MetricTarget) -> str:
    """PromQL: the workload's value, without labels; missing while a running pod has none, or a pod is unknown."""
    metric, target = metric_target.metric, autoscaler.target
    if metric.per == "workload":
        return f"sum (\n{indent(metric.query, '  ')}\n)"
    namespace = quoted(autoscaler.namespace)
    pods = indent(pods_of(target.kind, target.name, autoscaler.namespace), "  ")
    values = f"{metric.series}{{namespace={namespace}}}"
    operator = "sum" if metric_target.is_total else "avg"
    lost = f"\nunless on ()\n{lost}" if (lost := lost_pods(target.kind, target.name, autoscaler.namespace)) else ""
    return f"""\
{operator} (
  {values}
  and on (namespace, pod)
{pods}
)
unless on ()
(
{pods}
  and on (namespace, pod)
  kube_pod_status_phase{{namespace={namespace},phase="Running",<kube_state_metrics>}} == 1
  unless on (namespace, pod)
  {values}
){lost}
unless on ()
{FROZEN_STATES}"""


def rule_object(
    name: str,
    profile: str,
    recordings: Sequence[Manifest],
    rules: RuleOptions,
    namespace: str = "",
    interval: str = "",
    **metadata: Manifest,
) -> Manifest:
    """A PrometheusRule that reads only the selected targets of each input, and names these in an annotation.

    namespace: namespace that the rule serves; empty for all. interval: between evaluations, if not the usual one.
    """
    labels = {
        **rules.labels,
        **object_labels(profile, rules.inventory),
        **({NAMESPACE: namespace} if namespace else {}),
    }
    read = set().union(*(read_by(recording["expr"]) for recording in recordings))
    if noted := {name: rules.selectors[name] for name in sorted(read) if rules.selectors.get(name)}:
        notes = {SELECTORS_ANNOTATION: json.dumps(noted, sort_keys=True)}
        metadata["annotations"] = {**metadata.get("annotations", {}), **notes}
    selected = [{**recording, "expr": with_selectors(recording["expr"], rules.selectors)} for recording in recordings]
    group = {"name": name, "interval": interval or f"{rules.evaluation_interval_s}s", "rules": selected}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "namespace": rules.namespace, "labels": labels, **metadata},
        "spec": {"groups": [group]},
    }


def reference(target: Target) -> Manifest:
    return {"apiVersion": target.api_version, "kind": target.kind, "name": target.name}


def object_labels(profile: str, inventory: str) -> dict[str, str]:
    return {**inventory_labels(inventory), METRIC_LABEL: profile}


def behavior_of(rules: ScalingRules) -> Manifest:
    behavior: dict[str, Any] = {
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
