# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...autoscaling.quantity import parse_quantity
from ...diagnosis.check import CheckResult, Evidence, FindingType, check
from ...errors import enumeration
from ...hops import Hop
from ..adapter_config import name_given
from ..controllers import CONTROLLER_MANAGER, SILENT_S, silence_s
from ..exporter_options import repeats_values
from ..objects import Manifest, condition, key_of, name_of, owners, youngest
from ..rollouts import STABLE
from ..signs import ABOUT_GPUS
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from ..state.metric import MetricState
from ..texts import condition_text, quote
from .workload import holders_of_targets, target_of

_START_GRACE_S = 120
_LONG_S = 1800
_KEDA = "autoscaling.keda.sh/"
# Of the HPA controller, unless it is told otherwise.
_TOLERANCE = 0.1
# Model servers keep the GPU's memory and engine busy whatever the load.
_MODEL_SERVERS = re.compile(r"vllm|sglang|text-generation-inference")
_STANDS_STILL = frozenset({"gpu", "gpu_util", "gpu_memory", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"})
# An HPA that looks so often at one value compounds its own decision; stock (30 s and 15 s) is just at the edge.
_LOOKS_AT_ONE_VALUE = 2
# Fields that DCGM gives as 0 to 1.
_RATIO = re.compile(r"DCGM_FI_PROF_(?:GR_ENGINE_ACTIVE|SM_ACTIVE|SM_OCCUPANCY|DRAM_ACTIVE|PIPE_\w+_ACTIVE)")
_MADE_PERCENT = re.compile(r"\b100\b|\b1e2\b|\b0?\.01\b")
_FIELD = "DCGM_FI_"
# The minor version of Kubernetes that a version of HPAs is gone from.
_REMOVED = {"autoscaling/v2beta1": 25, "autoscaling/v2beta2": 26}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Of the metrics APIs, as the API server names it to the controller.
_REFUSED_GROUP = re.compile(r"\b(?:(?:custom|external)\.)?metrics\.k8s\.io\b")
_APPLIED_VERSION = re.compile(r'"apiVersion":\s*"(autoscaling/\w+)"')

HPA_CONTROLLER_SILENT = FindingType(
    "HPA_CONTROLLER_SILENT",
    Hop.HPA,
    "error",
    cause="kube-controller-manager, which runs the HPA controller, does not renew its lease: no HPA is evaluated any "
    "more, and its conditions are old",
    fix="kubectl -n kube-system get pods -l component=kube-controller-manager, and read their logs",
    grace_s=_START_GRACE_S,
)


@check("the HPA controller is alive", HPA_CONTROLLER_SILENT, needs=("hpas", "leases"))
def hpa_controller_is_alive(state: State) -> Iterator[CheckResult]:
    """A control plane of one server may have a lease that nobody renews: then its writes show that it is alive."""
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


HPA_NOT_SEEN = FindingType(
    "HPA_NOT_SEEN",
    Hop.HPA,
    "error",
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


HPA_CANNOT_SCALE = FindingType(
    "HPA_CANNOT_SCALE",
    Hop.HPA,
    "error",
    cause="the controller cannot read or set the replicas of the target",
    fix="correct scaleTargetRef, or install the CRD of that kind with its scale subresource",
    grace_s=_START_GRACE_S,
    evidence=(
        Evidence(
            r"denied|webhook|exceeded quota",
            "an admission webhook or a quota refuses the new number of replicas",
            "follow the message; kubectl get validatingwebhookconfigurations",
        ),
        Evidence(
            r"forbidden",
            "the HPA controller may not read or set the scale of the target",
            "grant system:controller:horizontal-pod-autoscaler get and update on the scale subresource of that kind",
        ),
    ),
)
HPA_SELECTOR_AMBIGUOUS = FindingType(
    "HPA_SELECTOR_AMBIGUOUS",
    Hop.HPA,
    "error",
    cause="the pods belong to several autoscalers, so none of them acts",
    fix="give each workload's pods a label of their own, and have one autoscaler for each",
    grace_s=_START_GRACE_S,
)
HPA_FORBIDDEN = FindingType(
    "HPA_FORBIDDEN",
    Hop.HPA,
    "error",
    cause="the HPA controller may not read the metrics API",
    fix="grant its service account get and list on {group}; prometheus-adapter's chart does for custom.metrics.k8s.io "
    "with rbac.create: true",
    grace_s=_START_GRACE_S,
)
HPA_NOT_ACTIVE = FindingType(
    "HPA_NOT_ACTIVE",
    Hop.HPA,
    "error",
    cause="the controller cannot work out a number of replicas, so it leaves them as they are",
    fix="kubectl -n {namespace} describe hpa {name}",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    evidence=(
        Evidence(
            r"FailedGetResourceMetric|metrics\.k8s\.io\)?: the server could not|resource metrics API",
            "metrics.k8s.io gives no CPU or memory of the pods",
            "install metrics-server, or see its log; or take CPU and memory out of extra_metrics",
        ),
        Evidence(
            r"missing request for",
            "a container of the pods has no request of the resource that a Utilization target is a share of",
            "set resources.requests in the pod template, or use an AverageValue target",
        ),
        Evidence(
            r"InvalidSelector",
            "the scale subresource of the target has no selector that can be read",
            "see status.selector of the target's scale subresource, which its controller sets",
        ),
    ),
)


@check(
    "conditions of the HPA", HPA_CANNOT_SCALE, HPA_SELECTOR_AMBIGUOUS, HPA_FORBIDDEN, HPA_NOT_ACTIVE, needs=("hpas",)
)
def hpa_conditions(state: State) -> Iterator[CheckResult]:
    """Without target or pods, or beside a second HPA, an HPA can do nothing: that is said of the workload."""
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


HPA_METRIC_WITHOUT_VALUE = FindingType(
    "HPA_METRIC_WITHOUT_VALUE",
    Hop.HPA,
    "error",
    cause="the HPA has no current value of one of its metrics, so it can scale up, but not down",
    fix="kubectl -n {namespace} describe hpa {name}; CPU and memory need metrics-server",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("the HPA has a value of each metric", HPA_METRIC_WITHOUT_VALUE, needs=("hpas", "metrics"))
def hpa_metrics(state: State) -> Iterator[CheckResult]:
    """Where no metric works at all, the condition ScalingActive says so."""
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


HPA_AT_MAXIMUM = FindingType(
    "HPA_AT_MAXIMUM",
    Hop.HPA,
    "warning",
    cause="the HPA has wanted more replicas than it may have for long",
    fix="raise max_replicas if there are GPUs for them; see whether the target value can be reached at all",
    grace_s=_LONG_S,
    evidence=(
        Evidence(
            r"min_replicas",
            "min_replicas is as large as max_replicas, so the HPA can never scale, and it has wanted more for long",
            "raise max_replicas if there are GPUs for them; remove the HPA if the number is meant to be fixed",
        ),
    ),
)


@check("the HPA is not at its maximum for long", HPA_AT_MAXIMUM, needs=("hpas",))
def hpa_maximum(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        limited = condition(autoscaler.hpa, "ScalingLimited")
        if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
            age_s = _limited_age_s(state, autoscaler)
            spec = autoscaler.hpa["spec"]
            both = " and min_replicas" if spec.get("minReplicas", 1) == spec["maxReplicas"] else ""
            seen = f"ScalingLimited for {(age_s or 0) / 60:.0f} minutes at max_replicas{both} {spec['maxReplicas']}"
            yield CheckResult(HPA_AT_MAXIMUM, f"HPA {autoscaler}", seen, age_s=age_s)


HPA_UP_DISABLED = FindingType(
    "HPA_UP_DISABLED",
    Hop.HPA,
    "warning",
    cause="the HPA's own scaling rules forbid it to add replicas",
    fix="set scale_up.select_policy to Max, or leave scale_up out",
    evidence=(
        Evidence(
            r"paused-scale-out",
            "an annotation of the ScaledObject has KEDA forbid the HPA to add replicas",
            "kubectl -n {namespace} annotate scaledobject {owner} autoscaling.keda.sh/paused-scale-out-",
        ),
    ),
)


@check("the HPA may scale up", HPA_UP_DISABLED, needs=("hpas",))
def hpa_may_scale_up(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        if _rules(autoscaler, "scaleUp").get("selectPolicy") == "Disabled":
            paused, template_vars = _paused_by_keda(state, autoscaler, "paused-scale-out")
            seen = f"spec.behavior.scaleUp.selectPolicy is Disabled{paused}"
            age_s = state.clock.last_change_age_s(autoscaler.hpa)
            yield CheckResult(HPA_UP_DISABLED, f"HPA {autoscaler}", seen, age_s=age_s, template_vars=template_vars)


HPA_DOWN_DISABLED = FindingType(
    "HPA_DOWN_DISABLED",
    Hop.HPA,
    "warning",
    cause="the HPA's own scaling rules forbid it to remove replicas, and it has wanted fewer for long",
    fix="set scale_down.select_policy to Max, or leave scale_down out",
    grace_s=_LONG_S,
    evidence=(
        Evidence(
            r"paused-scale-in",
            "an annotation of the ScaledObject has KEDA forbid the HPA to remove replicas, and it has wanted fewer for "
            "long",
            "kubectl -n {namespace} annotate scaledobject {owner} autoscaling.keda.sh/paused-scale-in-",
        ),
        Evidence(
            r"tolerance",
            "with a tolerance of 1 or more no value is low enough for the HPA to remove replicas",
            "set scale_down.tolerance below 1, 0.1 for instance",
        ),
    ),
)


@check("the HPA may scale down", HPA_DOWN_DISABLED, needs=("hpas",))
def hpa_may_scale_down(state: State) -> Iterator[CheckResult]:
    """Who forbids it may mean it, so that counts once the HPA has wanted fewer for long. A tolerance never says so."""
    for autoscaler in state.autoscalers:
        rules, limited = _rules(autoscaler, "scaleDown"), condition(autoscaler.hpa, "ScalingLimited")
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
    """For how long the reason may have been what it is: with a new reason the condition keeps its time."""
    scaled = state.clock.seconds_since((autoscaler.hpa.get("status") or {}).get("lastScaleTime"))
    return youngest([state.clock.condition_age_s(autoscaler.hpa, "ScalingLimited"), scaled])


def _rules(autoscaler: AutoscalerState, direction: str) -> Mapping[str, Any]:
    return (autoscaler.hpa["spec"].get("behavior") or {}).get(direction) or {}


def _paused_by_keda(state: State, autoscaler: AutoscalerState, annotation: str) -> tuple[str, dict[str, str]]:
    """Whose annotation it is, for the words of a finding; empty if it is nobody's."""
    owner = next((name for kind, name in owners(autoscaler.hpa) if kind == "ScaledObject"), "")
    template_vars = {"namespace": autoscaler.key[0], "owner": owner}
    for scaled_object in state.scaled_objects:
        if key_of(scaled_object) == (autoscaler.key[0], owner) and _is_set(scaled_object, annotation):
            return f" by ScaledObject {name_of(scaled_object)}, {_KEDA}{annotation}", template_vars
    return "", template_vars


def _is_set(scaled_object: Manifest, annotation: str) -> bool:
    """As KEDA reads it: what is no truth value counts as true."""
    text = (scaled_object["metadata"].get("annotations") or {}).get(_KEDA + annotation)
    return text is not None and text.lower() not in ("false", "f", "0")


HPA_PAUSED = FindingType(
    "HPA_PAUSED",
    Hop.HPA,
    "warning",
    cause="the ScaledObject is paused: KEDA has removed its HPA, and nothing scales",
    fix="kubectl -n {namespace} annotate scaledobject {name} {annotation}-, once it is to scale again",
)


@check("no ScaledObject of GPUs is paused", HPA_PAUSED, needs=("scaled_objects",))
def keda_is_not_paused(state: State) -> Iterator[CheckResult]:
    """Of ScaledObjects whose target is looked at, or whose triggers are about GPUs: without an HPA nothing else is."""
    targets = {target_of(autoscaler.hpa) for autoscaler in state.autoscalers}
    for scaled_object in state.scaled_objects:
        (namespace, name), annotations = key_of(scaled_object), scaled_object["metadata"].get("annotations") or {}
        in_scope = not state.scope.name and state.scope.namespace in (None, namespace)
        triggers = json.dumps(scaled_object["spec"].get("triggers") or [])
        if target_of(scaled_object) not in targets and not (in_scope and ABOUT_GPUS.search(triggers)):
            continue
        annotation = "paused-replicas" if _KEDA + "paused-replicas" in annotations else "paused"
        if annotation == "paused-replicas" or _is_set(scaled_object, annotation):
            yield CheckResult(
                HPA_PAUSED,
                f"ScaledObject {namespace}/{name}",
                f"its annotation {_KEDA}{annotation} is {annotations[_KEDA + annotation]!r}",
                age_s=state.clock.last_change_age_s(scaled_object),
                template_vars={"namespace": namespace, "name": name, "annotation": _KEDA + annotation},
            )


HPA_SCALED_OBJECT_FAILS = FindingType(
    "HPA_SCALED_OBJECT_FAILS",
    Hop.HPA,
    "error",
    cause="KEDA cannot work with the ScaledObject that makes the HPA",
    fix="follow the message; kubectl -n {namespace} describe scaledobject {name}",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    evidence=(
        Evidence(
            r"Fallback is True",
            "KEDA gets no value of a trigger and has set the replicas that the ScaledObject's fallback names",
            "see the trigger's source: kubectl -n {namespace} describe scaledobject {name}",
        ),
    ),
)


@check("KEDA works with the ScaledObjects", HPA_SCALED_OBJECT_FAILS, needs=("scaled_objects",))
def keda_works(state: State) -> Iterator[CheckResult]:
    """Of those whose target is looked at."""
    users = {target_of(autoscaler.hpa): autoscaler for autoscaler in state.autoscalers}
    for scaled_object in state.scaled_objects:
        autoscaler = users.get(target_of(scaled_object))
        ready, fallback = condition(scaled_object, "Ready"), condition(scaled_object, "Fallback")
        bad = ready if ready.get("status") == "False" else fallback if fallback.get("status") == "True" else None
        if autoscaler and bad:
            namespace, name = key_of(scaled_object)
            yield CheckResult(
                HPA_SCALED_OBJECT_FAILS,
                f"ScaledObject {namespace}/{name}",
                condition_text(bad),
                state.affected_by([autoscaler]),
                state.clock.condition_age_s(scaled_object, bad["type"]),
                template_vars={"namespace": namespace, "name": name},
            )


HPA_FASTER_THAN_METRIC = FindingType(
    "HPA_FASTER_THAN_METRIC",
    Hop.HPA,
    "warning",
    cause="the HPA looks several times at a value that has not changed yet, and adds pods each time: it overshoots",
    fix="lower the interval that is longest: dcgm_exporter_collect_interval, dcgm_exporter_scrape_interval or "
    "prometheus.evaluation_interval; or use a Pods metric",
)


@check("the metric keeps up with the HPA", HPA_FASTER_THAN_METRIC, needs=("hpas", "metrics"))
def metric_keeps_up(state: State) -> Iterator[CheckResult]:
    """Only by periods that are known: an assumed period accuses nobody."""
    for autoscaler in state.autoscalers:
        budget = autoscaler.budget or {}
        sources = budget.get("sources") or {}
        known = [period for period in ("collect", "scrape", "evaluate") if sources.get(period, "assumed") != "assumed"]
        if not known or not budget.get("sync_s") or _is_held_up(state, budget):
            continue
        slowest = max(known, key=lambda period: budget[f"{period}_s"])
        looks = budget[f"{slowest}_s"] / budget["sync_s"]
        compounds = any(metric.type != "Pods" for metric in autoscaler.metrics) and not autoscaler.has_readiness_probe
        if looks > _LOOKS_AT_ONE_VALUE or (compounds and looks == _LOOKS_AT_ONE_VALUE):
            yield CheckResult(
                HPA_FASTER_THAN_METRIC,
                f"HPA {autoscaler}",
                f"{slowest} takes {budget[f'{slowest}_s']:g} s, the HPA looks every {budget['sync_s']:g} s",
            )


def _is_held_up(state: State, budget: Mapping[str, Any]) -> bool:
    """By an exporter that is slower than its scrapes, which is said of the exporter."""
    return bool(state.agents.exporters) and repeats_values(budget["collect_s"], budget["scrape_s"])


HPA_RATIO_AS_PERCENT = FindingType(
    "HPA_RATIO_AS_PERCENT",
    Hop.HPA,
    "error",
    cause="DCGM's profiling fields are 0 to 1, the target is meant in percent, so it is never reached. The HPA only "
    "scales down",
    fix="multiply by 100 in the rule that makes the metric, or give the target as a ratio",
)


@check("targets are in the metric's unit", HPA_RATIO_AS_PERCENT, needs=("hpas", "prometheus", "metrics"))
def target_units(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        for metric in autoscaler.metrics:
            text = next(filter(_is_bare_ratio, _texts_of(state, metric)), "")
            most, largest = _most(autoscaler, metric, text), max(metric.values.values(), default=math.inf)
            if text and most and largest <= most < (metric.target_value or 0):
                yield CheckResult(
                    HPA_RATIO_AS_PERCENT,
                    f"HPA {autoscaler}",
                    f"the target of {metric.name} is {metric.target_value:g}, its values are at most "
                    f"{largest:g}; it is made by {quote(text)}",
                    state.affected_by([autoscaler]),
                )


def _texts_of(state: State, metric: MetricState) -> Iterator[str]:
    """The texts that make a metric: its name, recording rules, rules of the adapter."""
    yield metric.name
    for name in dict.fromkeys(filter(None, (metric.name, metric.series))):
        for rule in (state.prometheus.rules or {}).get(name, ()):
            yield str(rule.get("query", ""))
    for api in state.apis:
        for rule in api.config.rules if api.config else ():
            if name_given(rule) == metric.name:
                yield f"{rule.get('seriesQuery')} {rule.get('metricsQuery')}"


def _is_bare_ratio(text: str) -> bool:
    return bool(_RATIO.search(text)) and not _MADE_PERCENT.search(text)


def _most(autoscaler: AutoscalerState, metric: MetricState, text: str) -> int:
    """The largest possible value. For a sum it is the GPUs of a pod; 0 if that is not known."""
    if "sum" not in text:
        return 1
    return sum(autoscaler.gpus.values()) if metric.type == "Pods" else 0


HPA_METRIC_OF_ALL_GPUS = FindingType(
    "HPA_METRIC_OF_ALL_GPUS",
    Hop.HPA,
    "error",
    cause="the metric is of the exporter's Service: one number of all GPUs behind it, whoever holds them",
    fix="use a Pods metric: run gpu_autoscaler for the workload, with adopt: true",
)


@check("metrics are of the workload's GPUs", HPA_METRIC_OF_ALL_GPUS, needs=("hpas",))
def metrics_are_of_the_workload(state: State) -> Iterator[CheckResult]:
    """Only DCGM's own names: what a Service of the workload reports may well be of its pods."""
    for autoscaler in state.autoscalers:
        for entry in autoscaler.hpa["spec"].get("metrics") or ():
            described = (entry.get("object") or {}).get("describedObject") or {}
            name = ((entry.get("object") or {}).get("metric") or {}).get("name", "")
            if described.get("kind") == "Service" and name.startswith(_FIELD):
                seen = f"it reads {name} of Service {described['name']}"
                affected, age_s = state.affected_by([autoscaler]), state.clock.last_change_age_s(autoscaler.hpa)
                yield CheckResult(HPA_METRIC_OF_ALL_GPUS, f"HPA {autoscaler}", seen, affected, age_s)


HPA_MANIFEST_OUTDATED = FindingType(
    "HPA_MANIFEST_OUTDATED",
    Hop.HPA,
    "warning",
    cause="the HPA's manifest has apiVersion {version}, which Kubernetes refuses from {gone} on. It cannot be applied "
    "again",
    fix="write apiVersion: autoscaling/v2 in the manifest, with target.type under each metric; kubectl convert does it",
)


@check("its manifest can be applied again", HPA_MANIFEST_OUTDATED, needs=("hpas",))
def hpa_manifest(state: State) -> Iterator[CheckResult]:
    """Silent if the HPA was written later in a version that is served: then there is another manifest."""
    for autoscaler in state.autoscalers:
        text = (autoscaler.hpa["metadata"].get("annotations") or {}).get(_LAST_APPLIED, "")
        match = _APPLIED_VERSION.search(text)
        gone = _REMOVED.get(match[1]) if match else None
        if match and gone and _minor_version(state) >= gone and not _is_written_otherwise(autoscaler.hpa):
            yield CheckResult(
                HPA_MANIFEST_OUTDATED,
                f"HPA {autoscaler}",
                f"it was last applied as {match[1]}, the API server is {state.server_version}",
                age_s=state.clock.last_change_age_s(autoscaler.hpa),
                template_vars={"version": match[1], "gone": f"1.{gone}"},
            )


def _minor_version(state: State) -> int:
    match = re.match(r"v1\.(\d+)", state.server_version or "")
    return int(match[1]) if match else 0


def _is_written_otherwise(hpa: Manifest) -> bool:
    return any(
        "f:spec" in (entry.get("fieldsV1") or {}) and entry.get("apiVersion") not in _REMOVED
        for entry in hpa["metadata"].get("managedFields") or ()
        if not entry.get("subresource")
    )


HPA_METRIC_STANDS_STILL = FindingType(
    "HPA_METRIC_STANDS_STILL",
    Hop.HPA,
    "warning",
    cause="model servers take all GPU memory and keep the GPU busy whatever the load, so the value says little",
    fix="use the metric llm, waiting requests and use of the KV cache; or llm_in_flight, all requests of a server",
)


@check("the metric follows the load of model servers", HPA_METRIC_STANDS_STILL, needs=("hpas", "targets"))
def model_servers(state: State) -> Iterator[CheckResult]:
    for autoscaler in state.autoscalers:
        images = [container.get("image", "") for container in autoscaler.template.get("containers") or ()]
        served = next((image for image in images if _MODEL_SERVERS.search(image)), None)
        names = {metric.name for metric in autoscaler.metrics}
        if served and names and names <= _STANDS_STILL:
            seen = f"image {served} scales on {', '.join(sorted(names))} alone"
            yield CheckResult(HPA_METRIC_STANDS_STILL, f"HPA {autoscaler}", seen)


HPA_AVERAGES_REVISIONS = FindingType(
    "HPA_AVERAGES_REVISIONS",
    Hop.HPA,
    "warning",
    cause="a rollout tries a new version, and one of its revisions is over the target. The HPA averages over both, so "
    "it adds no pods",
    fix="let traffic follow the pods (setCanaryScale with matchTrafficWeight: true), or promote or abort: "
    "kubectl argo rollouts -n {namespace} get rollout {name}",
    grace_s=_START_GRACE_S,
)


@check("both revisions of a rollout are within the target", HPA_AVERAGES_REVISIONS, needs=("targets", "metrics"))
def revisions_are_within_the_target(state: State) -> Iterator[CheckResult]:
    """By the HPA's own tolerance. Where the average is over the target as well, the HPA acts."""
    for autoscaler in state.autoscalers:
        revisions, tolerance = autoscaler.revisions, _rules(autoscaler, "scaleUp").get("tolerance")
        more = _TOLERANCE if tolerance is None else parse_quantity(str(tolerance))
        for metric in autoscaler.metrics if revisions else ():
            means = {name: mean for name, pods in revisions.items() if (mean := _mean(metric, pods)) is not None}
            together = _mean(metric, [pod for pods in revisions.values() for pod in pods])
            limit = (metric.target_value or math.inf) * (1 + more)
            if together is None or together > limit or max(means.values()) <= limit:
                continue
            new = [pod for pod in autoscaler.ready_pods if pod["metadata"]["name"] not in revisions[STABLE]]
            counts = ", ".join(f"{len(revisions[name])} {name} pods at {mean:.0f}" for name, mean in means.items())
            yield CheckResult(
                HPA_AVERAGES_REVISIONS,
                f"HPA {autoscaler}",
                f"{metric.name}: {counts}; {together:.0f} on average, and the target is {metric.target_value:g}",
                state.affected_by([autoscaler]),
                state.clock.longest_ready_s(new),
                template_vars={"namespace": autoscaler.key[0], "name": autoscaler.reference["name"]},
            )


def _mean(metric: MetricState, pods: Iterable[str]) -> float | None:
    """Of the pods that have a value; None if there is none, as with metrics of another type."""
    values = [metric.values[pod] for pod in pods if pod in metric.values]
    return sum(values) / len(values) if values else None


def summary(state: State) -> str:
    return f"{len(state.autoscalers)} autoscalers are looked at"


def nothing(state: State) -> str:
    return "" if state.autoscalers else "no autoscaler is looked at"
