# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks that HPAs act: their controller, conditions and scaling rules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...errors import counted, enumeration
from ...hops import Hop
from ...kube.objects import condition, key_of, name_of, owners, youngest
from ...kube.quantity import parse_quantity
from ..controller_reports import CONTROLLER_MANAGER, SILENT_S, silence_s
from ..finding_texts import condition_text
from ..scaled_objects import ANNOTATION, is_set
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from .workload import holders_of_targets, target_of

_HPA = FindingTypes(Hop.HPA)

_START_GRACE_S = 120
_LONG_S = 1800
# Metrics APIs as they occur in the API server's errors.
_REFUSED_GROUP = re.compile(r"\b(?:(?:custom|external)\.)?metrics\.k8s\.io\b")

HPA_CONTROLLER_SILENT = _HPA.error(
    "HPA_CONTROLLER_SILENT",
    cause="kube-controller-manager, which runs the HPA controller, does not renew its lease: no HPA is evaluated any "
    "more, and its conditions are old",
    fix="kubectl -n kube-system get pods -l component=kube-controller-manager, and read their logs",
    grace_s=_START_GRACE_S,
)


@check("the HPA controller is alive", HPA_CONTROLLER_SILENT, needs=("hpas", "leases"))
def hpa_controller_is_alive(state: State) -> Iterator[CheckResult]:
    """The lease of a single control plane may not be renewed. Then writes show that the controller is alive."""
    silent_s = silence_s(state, CONTROLLER_MANAGER)
    written = [state.clock.last_write_age_s(autoscaler.hpa) for autoscaler in state.autoscalers]
    if silent_s is None or silent_s <= SILENT_S or (youngest(written) or math.inf) < silent_s - SILENT_S:
        return
    holder = (state.leases[CONTROLLER_MANAGER].get("spec") or {}).get("holderIdentity")
    yield CheckResult(
        HPA_CONTROLLER_SILENT,
        f"lease kube-system/{CONTROLLER_MANAGER}",
        f"renewed {silent_s:.0f} s ago by {holder}",
        state.affected_by(state.autoscalers),
        silent_s,
    )


HPA_NOT_SEEN = _HPA.error(
    "HPA_NOT_SEEN",
    cause="the HPA has no condition: its controller does not run",
    fix="kubectl -n kube-system get pods -l component=kube-controller-manager",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    explained_by=(Hop.HPA,),
)


@check("the controller has seen the HPA", HPA_NOT_SEEN, needs=("hpas",))
def hpa_is_seen(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        if not (autoscaler.hpa.get("status") or {}).get("conditions"):
            yield CheckResult(
                HPA_NOT_SEEN,
                f"HPA {autoscaler}",
                "status.conditions is empty",
                state.affected_by([autoscaler]),
                state.clock.age_s(autoscaler.hpa),
            )


HPA_CANNOT_SCALE = _HPA.error(
    "HPA_CANNOT_SCALE",
    cause="the controller cannot read or set the replicas of the target",
    fix="correct scaleTargetRef, or install the CRD of that kind with its scale subresource",
    grace_s=_START_GRACE_S,
    evidence=(
        Evidence(
            r"denied|webhook|exceeded quota",
            "an admission webhook or a quota rejects the new number of replicas",
            "follow the message; kubectl get validatingwebhookconfigurations",
        ),
        Evidence(
            r"forbidden",
            "the HPA controller has no permission to read or set the scale of the target",
            "grant system:controller:horizontal-pod-autoscaler get and update on the scale subresource of that kind",
        ),
    ),
)
HPA_SELECTOR_AMBIGUOUS = _HPA.error(
    "HPA_SELECTOR_AMBIGUOUS",
    cause="the pods belong to several autoscalers, so none of them scales",
    fix="give the pods of each workload a different label, and create one autoscaler for each",
    grace_s=_START_GRACE_S,
)
HPA_FORBIDDEN = _HPA.error(
    "HPA_FORBIDDEN",
    cause="the HPA controller has no permission to read the metrics API",
    fix="grant its service account get and list on {group}; prometheus-adapter's chart does for custom.metrics.k8s.io "
    "with rbac.create: true",
    grace_s=_START_GRACE_S,
)
HPA_NOT_ACTIVE = _HPA.error(
    "HPA_NOT_ACTIVE",
    cause="the controller cannot compute a number of replicas, so it does not change them",
    fix="kubectl -n {namespace} describe hpa {name}",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    evidence=(
        Evidence(
            r"FailedGet(?:Container)?ResourceMetric|metrics\.k8s\.io\)?: the server could not|resource metrics API",
            "metrics.k8s.io has no CPU or memory of the pods",
            "install metrics-server, or check its log; or remove CPU and memory from extra_metrics",
        ),
        Evidence(
            r"missing request for",
            "a container of the pods has no request of the resource that a Utilization target is a share of",
            "set resources.requests in the pod template, or use an AverageValue target",
        ),
        Evidence(
            r"InvalidSelector",
            "the scale subresource of the target has no readable selector",
            "check status.selector of the target's scale subresource, which its controller sets",
        ),
        Evidence(
            # Without its operator the metrics server answers nothing for a minute.
            r"gRPC connection to KEDA|time allotted.*\(get s\d+-\S+\.external\.metrics",
            "KEDA's metrics server does not reach the operator, although its pod is ready",
            "check that keda-operator runs and that port 9666 is open to it; then kubectl -n keda rollout restart "
            "deployment keda-operator-metrics-apiserver",
        ),
        Evidence(
            r"no matching metrics found for s\d+-",
            "the HPA asks for a trigger that its ScaledObject does not have any more",
            "check that keda-operator runs: it writes the HPA anew after each change of the ScaledObject",
        ),
        Evidence(
            r"metric:s\d+-\S+ encountered error",
            "KEDA got no value from the source of a trigger",
            "read the cause in the log of keda-operator, and try the trigger's query in Prometheus",
        ),
    ),
)


@check(
    "conditions of the HPA", HPA_CANNOT_SCALE, HPA_SELECTOR_AMBIGUOUS, HPA_FORBIDDEN, HPA_NOT_ACTIVE, needs=("hpas",)
)
def hpa_conditions(state: State) -> Iterator[CheckResult]:
    """Without a target or pods, or beside a second HPA, an HPA cannot act: findings of the workload report that."""
    holders = holders_of_targets(state)
    for autoscaler in state.autoscalers:
        name, affected = f"HPA {autoscaler}", state.affected_by([autoscaler])
        reached = affected | {f"node {node}" for node in autoscaler.nodes}
        group = autoscaler.metrics[0].group if autoscaler.metrics else "metrics.k8s.io"
        template_vars = {"namespace": autoscaler.key[0], "name": autoscaler.key[1], "group": group}
        able, active = condition(autoscaler.hpa, "AbleToScale"), condition(autoscaler.hpa, "ScalingActive")
        if able.get("status") == "False" and (autoscaler.target is not None or "targets" in state.unavailable):
            since_s = state.clock.condition_age_s(autoscaler.hpa, "AbleToScale")
            seen = condition_text(able)
            yield CheckResult(HPA_CANNOT_SCALE, name, seen, reached, since_s, template_vars=template_vars)
        if active.get("status") != "False" or not autoscaler.ready_pods or active.get("reason") == "ScalingDisabled":
            continue
        since_s, seen = state.clock.condition_age_s(autoscaler.hpa, "ScalingActive"), condition_text(active)
        if active.get("reason") == "AmbiguousSelector":
            if len(holders[target_of(autoscaler.hpa)]) < 2:
                yield CheckResult(HPA_SELECTOR_AMBIGUOUS, name, seen, reached, since_s, template_vars=template_vars)
        elif "forbidden" in active.get("message", "").lower():
            if named := _REFUSED_GROUP.search(active["message"]):
                template_vars["group"] = named[0]
            yield CheckResult(HPA_FORBIDDEN, name, seen, reached, since_s, template_vars=template_vars)
        else:
            age_s = youngest([since_s, state.clock.longest_ready_s(autoscaler.ready_pods)])
            yield CheckResult(HPA_NOT_ACTIVE, name, seen, reached, age_s, autoscaler.lag_s, template_vars)


HPA_METRIC_WITHOUT_VALUE = _HPA.error(
    "HPA_METRIC_WITHOUT_VALUE",
    cause="the HPA has no current value of one of its metrics, so it can scale up, but not down",
    fix="kubectl -n {namespace} describe hpa {name}; CPU and memory need metrics-server",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("the HPA has a value of each metric", HPA_METRIC_WITHOUT_VALUE, needs=("hpas", "metrics"))
def hpa_metrics(state: State) -> Iterator[CheckResult]:
    """If no metric works at all, the condition ScalingActive reports it."""
    for autoscaler in state.autoscalers:
        missing = autoscaler.metrics_without_value
        if missing and autoscaler.ready_pods and autoscaler.is_scaling:
            yield CheckResult(
                HPA_METRIC_WITHOUT_VALUE,
                f"HPA {autoscaler}",
                f"status.currentMetrics has no value of {enumeration(missing)}",
                state.affected_by([autoscaler]) | {f"node {node}" for node in autoscaler.nodes},
                youngest(
                    [state.clock.last_change_age_s(autoscaler.hpa), state.clock.longest_ready_s(autoscaler.ready_pods)]
                ),
                autoscaler.lag_s,
                {"namespace": autoscaler.key[0], "name": autoscaler.key[1]},
            )


HPA_AT_MAXIMUM = _HPA.warning(
    "HPA_AT_MAXIMUM",
    cause="the HPA has wanted more replicas than its maximum for a long time",
    fix="raise max_replicas if enough GPUs are available; check that the target value can be reached",
    grace_s=_LONG_S,
    evidence=(
        Evidence(
            r"min_replicas",
            "min_replicas is as large as max_replicas, so the HPA can never scale, and it has wanted more for a long "
            "time",
            "raise max_replicas if enough GPUs are available; delete the HPA if the number should be fixed",
        ),
    ),
)


@check("the HPA is not at its maximum for a long time", HPA_AT_MAXIMUM, needs=("hpas",))
def hpa_maximum(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        limited = condition(autoscaler.hpa, "ScalingLimited")
        if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
            age_s = _limited_age_s(state, autoscaler)
            spec = autoscaler.hpa["spec"]
            both = " and min_replicas" if spec.get("minReplicas", 1) == spec["maxReplicas"] else ""
            seen = f"ScalingLimited for {(age_s or 0) / 60:.0f} minutes at max_replicas{both} {spec['maxReplicas']}"
            yield CheckResult(HPA_AT_MAXIMUM, f"HPA {autoscaler}", seen, age_s=age_s)


HPA_UP_DISABLED = _HPA.warning(
    "HPA_UP_DISABLED",
    cause="the scaling rules of the HPA forbid adding replicas",
    fix="set scale_up.select_policy to Max, or remove scale_up",
    evidence=(
        Evidence(
            r"paused-scale-out",
            "an annotation of the ScaledObject makes KEDA forbid the HPA to add replicas",
            "kubectl -n {namespace} annotate scaledobject {owner} autoscaling.keda.sh/paused-scale-out-",
        ),
    ),
)


@check("the HPA may scale up", HPA_UP_DISABLED, needs=("hpas",))
def hpa_may_scale_up(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        if rules_of(autoscaler, "scaleUp").get("selectPolicy") == "Disabled":
            paused, template_vars = _paused_by_keda(state, autoscaler, "paused-scale-out")
            seen = f"spec.behavior.scaleUp.selectPolicy is Disabled{paused}"
            age_s = state.clock.last_change_age_s(autoscaler.hpa)
            yield CheckResult(HPA_UP_DISABLED, f"HPA {autoscaler}", seen, age_s=age_s, template_vars=template_vars)


HPA_DOWN_DISABLED = _HPA.warning(
    "HPA_DOWN_DISABLED",
    cause="the scaling rules of the HPA forbid removing replicas, and it has wanted fewer for a long time",
    fix="set scale_down.select_policy to Max, or remove scale_down",
    grace_s=_LONG_S,
    evidence=(
        Evidence(
            r"paused-scale-in",
            "an annotation of the ScaledObject makes KEDA forbid the HPA to remove replicas, and it has wanted fewer "
            "for a long time",
            "kubectl -n {namespace} annotate scaledobject {owner} autoscaling.keda.sh/paused-scale-in-",
        ),
        Evidence(
            r"tolerance",
            "with a tolerance of 1 or more no value is low enough for the HPA to remove replicas",
            "set scale_down.tolerance below 1, for example 0.1",
        ),
    ),
)


@check("the HPA may scale down", HPA_DOWN_DISABLED, needs=("hpas",))
def hpa_may_scale_down(state: State) -> Iterator[CheckResult]:
    """May be intended, so it counts only if the HPA has wanted fewer for long. A tolerance sets no condition."""
    for autoscaler in state.autoscalers:
        rules, limited = rules_of(autoscaler, "scaleDown"), condition(autoscaler.hpa, "ScalingLimited")
        paused, template_vars = _paused_by_keda(state, autoscaler, "paused-scale-in")
        tolerance = parse_quantity(str(rules.get("tolerance") or 0))
        if rules.get("selectPolicy") == "Disabled":
            if limited.get("status") != "True" or limited.get("reason") != "ScaleDownLimit":
                continue
            age_s = _limited_age_s(state, autoscaler)
            seen = f"spec.behavior.scaleDown.selectPolicy is Disabled{paused}; {condition_text(limited)}"
        elif tolerance >= 1:
            age_s = state.clock.last_change_age_s(autoscaler.hpa)
            seen = f"spec.behavior.scaleDown.tolerance is {tolerance:g}"
        else:
            continue
        yield CheckResult(HPA_DOWN_DISABLED, f"HPA {autoscaler}", seen, age_s=age_s, template_vars=template_vars)


def _limited_age_s(state: State, autoscaler: AutoscalerState) -> float | None:
    """Longest possible age of the reason: with a new reason the condition keeps its time."""
    scaled = state.clock.seconds_since((autoscaler.hpa.get("status") or {}).get("lastScaleTime"))
    return youngest([state.clock.condition_age_s(autoscaler.hpa, "ScalingLimited"), scaled])


def rules_of(autoscaler: AutoscalerState, direction: str) -> Mapping[str, Any]:
    return (autoscaler.hpa["spec"].get("behavior") or {}).get(direction) or {}


def _paused_by_keda(state: State, autoscaler: AutoscalerState, annotation: str) -> tuple[str, dict[str, str]]:
    """Owner of the annotation, for the text of a finding; empty without the annotation."""
    owner = next((name for kind, name in owners(autoscaler.hpa) if kind == "ScaledObject"), "")
    template_vars = {"namespace": autoscaler.key[0], "owner": owner}
    for scaled_object in state.scaled_objects:
        if key_of(scaled_object) == (autoscaler.key[0], owner) and is_set(scaled_object, annotation):
            return f" by ScaledObject {name_of(scaled_object)}, {ANNOTATION}{annotation}", template_vars
    return "", template_vars


def summary(state: State) -> str:
    return f"{counted(len(state.autoscalers), 'autoscaler')} checked"


def nothing(state: State) -> str:
    return "" if state.autoscalers else "no autoscaler was checked"
