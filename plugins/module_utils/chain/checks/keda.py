# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""ScaledObjects: whether KEDA works with them, and whether they scale as an HPA on the load of GPUs should."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...autoscaling.scaled_object import hpa_name
from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...errors import enumeration
from ...hops import Hop
from ...kube.known_components import ABOUT_GPUS
from ...kube.objects import Manifest, condition, key_of, name_of, owners, youngest
from ..finding_texts import condition_text, quote
from ..scaled_objects import (
    ANNOTATION,
    FINALIZER,
    differences,
    has_formula,
    is_about_gpus,
    is_falling_back,
    is_unseen,
    metadata_of,
    metric_type,
    pause_of,
    prometheus_triggers,
    served_for,
)
from ..service_endpoints import services_called, unserved
from ..state.cluster import State
from .workload import target_of

_HPA = FindingTypes(Hop.HPA)

_START_GRACE_S = 120
_AVERAGE = re.compile(r"\s*(?:avg|max|min|quantile)\b")
# What Prometheus has recorded for a whole workload is made for such an HPA.
_RECORDED_FOR_WORKLOAD = re.compile(r"\bnamespace_workload:")

HPA_PAUSED = _HPA.warning(
    "HPA_PAUSED",
    cause="the ScaledObject is paused: KEDA has removed its HPA, and nothing scales",
    fix="to scale again: kubectl -n {namespace} annotate scaledobject {name} {annotation}-",
)


@check("no ScaledObject of GPUs is paused", HPA_PAUSED, needs=("scaled_objects",))
def keda_is_not_paused(state: State) -> Iterator[CheckResult]:
    """Without an HPA, nothing else is checked."""
    for scaled_object in scaled_objects_of_gpus(state):
        if annotation := pause_of(scaled_object):
            text = scaled_object["metadata"]["annotations"][ANNOTATION + annotation]
            yield CheckResult(
                HPA_PAUSED,
                _title(scaled_object),
                f"its annotation {ANNOTATION}{annotation} is {text!r}",
                age_s=state.clock.last_change_age_s(scaled_object),
                template_vars={**_place_of(scaled_object), "annotation": ANNOTATION + annotation},
            )


HPA_EMPTY_IS_ZERO = _HPA.warning(
    "HPA_EMPTY_IS_ZERO",
    cause="KEDA counts an empty result of a query as 0: without an exporter or a rule the HPA scales to its minimum",
    fix='set ignoreNullValues: "false" in the metadata of the trigger; without a value the HPA then keeps its replicas',
)


@check("KEDA does not count a missing value as 0", HPA_EMPTY_IS_ZERO, needs=("scaled_objects",))
def empty_is_no_zero(state: State) -> Iterator[CheckResult]:
    for scaled_object in scaled_objects_of_gpus(state):
        queries = [
            metadata.get("query", "")
            for _number, trigger in prometheus_triggers(scaled_object)
            if not _is_false(metadata := metadata_of(trigger))
        ]
        if queries:
            yield CheckResult(
                HPA_EMPTY_IS_ZERO,
                _title(scaled_object),
                f"ignoreNullValues is not false for {enumeration([quote(query) for query in queries])}",
                age_s=state.clock.last_change_age_s(scaled_object),
            )


def _is_false(metadata: Mapping[str, str]) -> bool:
    """As KEDA reads it; true by default."""
    return str(metadata.get("ignoreNullValues", "true")).lower() in ("false", "f", "0")


HPA_WITHOUT_SCALED_OBJECT = _HPA.error(
    "HPA_WITHOUT_SCALED_OBJECT",
    cause="KEDA serves the HPA's metrics for a ScaledObject that does not exist: the HPA keeps its replicas",
    fix="create the ScaledObject again; or remove the HPA, which moves no replica: kubectl -n {namespace} delete hpa "
    "{name}",
    grace_s=_START_GRACE_S,
)


@check("KEDA's HPAs have a ScaledObject", HPA_WITHOUT_SCALED_OBJECT, needs=("hpas", "scaled_objects"))
def hpas_have_scaled_objects(state: State) -> Iterator[CheckResult]:
    live = {key_of(scaled_object) for scaled_object in state.scaled_objects}
    for autoscaler in state.autoscalers:
        namespace, name = autoscaler.key
        for wanted in sorted(served_for(autoscaler.hpa)):
            if (namespace, wanted) not in live:
                yield CheckResult(
                    HPA_WITHOUT_SCALED_OBJECT,
                    f"HPA {autoscaler}",
                    f"it asks for metrics of ScaledObject {namespace}/{wanted}, which does not exist",
                    state.affected_by([autoscaler]),
                    state.clock.condition_age_s(autoscaler.hpa, "ScalingActive"),
                    template_vars={"namespace": namespace, "name": name},
                )


HPA_SCALED_OBJECT_STUCK = _HPA.error(
    "HPA_SCALED_OBJECT_STUCK",
    cause="KEDA's operator does not remove its finalizer from a ScaledObject that is being deleted",
    fix="check that keda-operator runs, and read its log; where KEDA is uninstalled, remove the finalizer: "
    "kubectl -n {namespace} edit scaledobject {name}",
    grace_s=_START_GRACE_S,
)


@check("KEDA lets deleted ScaledObjects go", HPA_SCALED_OBJECT_STUCK, needs=("scaled_objects",))
def scaled_objects_end(state: State) -> Iterator[CheckResult]:
    for scaled_object in scaled_objects_of_gpus(state):
        metadata = scaled_object["metadata"]
        age_s = state.clock.seconds_since(metadata.get("deletionTimestamp"))
        if age_s is not None and FINALIZER in (metadata.get("finalizers") or ()):
            yield CheckResult(
                HPA_SCALED_OBJECT_STUCK,
                _title(scaled_object),
                f"it was deleted {age_s:.0f} s ago and still has the finalizer {FINALIZER}",
                _users(state, scaled_object),
                age_s,
                template_vars=_place_of(scaled_object),
            )


HPA_SCALED_OBJECT_UNSEEN = _HPA.error(
    "HPA_SCALED_OBJECT_UNSEEN",
    cause="KEDA's operator has not written a condition of the ScaledObject: it does not run, or watches other "
    "namespaces (watchNamespace) or other labels",
    fix="check the pod of keda-operator, its log, and its environment variable WATCH_NAMESPACE",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("KEDA has seen the ScaledObjects", HPA_SCALED_OBJECT_UNSEEN, needs=("scaled_objects",))
def scaled_objects_are_seen(state: State) -> Iterator[CheckResult]:
    for scaled_object in _live(state):
        if is_unseen(scaled_object):
            yield CheckResult(
                HPA_SCALED_OBJECT_UNSEEN,
                _title(scaled_object),
                "status.conditions is empty",
                _users(state, scaled_object),
                state.clock.age_s(scaled_object),
                template_vars=_place_of(scaled_object),
            )


HPA_SCALED_OBJECT_FAILS = _HPA.error(
    "HPA_SCALED_OBJECT_FAILS",
    cause="KEDA cannot process the ScaledObject, so its HPA is missing or out of date",
    fix="follow the message; kubectl -n {namespace} describe scaledobject {name}",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    evidence=(
        Evidence(
            r"scaleTargetRef",
            "the target of the ScaledObject does not exist, has no scale subresource, or KEDA has no permission to "
            "read it",
            "correct spec.scaleTargetRef. Of the role keda, keda_scaled_kinds lists what it may scale",
        ),
        Evidence(
            r"no scaler found for type",
            "KEDA does not know the type of a trigger",
            "correct the type, or install a version of KEDA that has it",
        ),
        Evidence(
            r"(?:is|are) required when \w+ auth is enabled",
            "a trigger has authModes, and its TriggerAuthentication is missing or lacks the login",
            "kubectl -n {namespace} get triggerauthentication: it needs the name in authenticationRef of the trigger, "
            "and the parameters that the message names",
        ),
        Evidence(
            r"error parsing \S+ metadata|missing required parameter|unable to (?:set|get) param",
            "the metadata of a trigger is not valid",
            "correct the field that the message names. All values of metadata are strings, so quote numbers and "
            "booleans",
        ),
        Evidence(
            r"Idle/Min/Max Replica",
            "the numbers of replicas contradict each other",
            "set idleReplicaCount < minReplicaCount <= maxReplicaCount",
        ),
        Evidence(
            r"no more than 63|must be a valid label|too long",
            "the name of the ScaledObject is longer than 63 characters, which a label of its HPA cannot hold",
            "create it anew with a shorter name",
        ),
        Evidence(
            r"forbidden",
            "KEDA's operator lacks a permission",
            "grant the permission that the message names to the service account of keda-operator",
        ),
    ),
)


@check("KEDA works with the ScaledObjects", HPA_SCALED_OBJECT_FAILS, needs=("scaled_objects",))
def keda_works(state: State) -> Iterator[CheckResult]:
    """Skips triggers without a value, which the metrics API's check reports."""
    for scaled_object in _live(state):
        ready = condition(scaled_object, "Ready")
        if ready.get("status") == "False" and ready.get("reason") != "TriggerError":
            yield CheckResult(
                HPA_SCALED_OBJECT_FAILS,
                _title(scaled_object),
                condition_text(ready),
                _users(state, scaled_object),
                state.clock.last_change_age_s(scaled_object),
                template_vars=_place_of(scaled_object),
            )


HPA_OF_SCALED_OBJECT_MISSING = _HPA.error(
    "HPA_OF_SCALED_OBJECT_MISSING",
    cause="KEDA accepts the ScaledObject, but its HPA does not exist: nothing scales",
    fix="check that keda-operator runs, and read its log; it creates the HPA again",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)
HPA_BEHIND_SCALED_OBJECT = _HPA.error(
    "HPA_BEHIND_SCALED_OBJECT",
    cause="KEDA's operator has not written the ScaledObject's last change to its HPA, which scales by the old one",
    fix="check that keda-operator runs, and read its log",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check(
    "HPAs are as their ScaledObjects ask",
    HPA_OF_SCALED_OBJECT_MISSING,
    HPA_BEHIND_SCALED_OBJECT,
    needs=("hpas", "scaled_objects"),
)
def hpas_follow_scaled_objects(state: State) -> Iterator[CheckResult]:
    """Of those that KEDA accepts. An HPA of that name that another owner made is a second autoscaler."""
    hpas = {key_of(hpa): hpa for hpa in state.hpas}
    for scaled_object in _live(state):
        if pause_of(scaled_object) or condition(scaled_object, "Ready").get("status") == "False":
            continue
        if is_unseen(scaled_object):
            continue
        (namespace, name), wanted = key_of(scaled_object), hpa_name(scaled_object)
        hpa = hpas.get((namespace, wanted))
        age_s, affected = state.clock.last_change_age_s(scaled_object), _users(state, scaled_object)
        if hpa is None:
            seen = f"there is no HPA {namespace}/{wanted}"
            yield CheckResult(HPA_OF_SCALED_OBJECT_MISSING, _title(scaled_object), seen, affected, age_s)
        elif ("ScaledObject", name) in owners(hpa) and (texts := differences(scaled_object, hpa)):
            yield CheckResult(HPA_BEHIND_SCALED_OBJECT, f"HPA {namespace}/{wanted}", "; ".join(texts), affected, age_s)


HPA_FALLBACK_ACTIVE = _HPA.error(
    "HPA_FALLBACK_ACTIVE",
    cause="KEDA gets no value from a trigger, and the HPA reads the fallback of the ScaledObject instead: the number "
    "of replicas does not follow the load",
    fix="check the trigger's source: kubectl -n {namespace} describe scaledobject {name}",
    is_consequence=True,
)


@check("no ScaledObject uses its fallback", HPA_FALLBACK_ACTIVE, needs=("scaled_objects",))
def fallbacks_rest(state: State) -> Iterator[CheckResult]:
    for scaled_object in _live(state):
        if is_falling_back(scaled_object):
            options = scaled_object["spec"].get("fallback") or {}
            failures = [
                f"{metric} failed {health.get('numberOfFailures')} times"
                for metric, health in ((scaled_object.get("status") or {}).get("health") or {}).items()
                if health.get("status") == "Failing"
            ]
            behavior = f"fallback is {options.get('replicas')} replicas, behavior {options.get('behavior', 'static')}"
            yield CheckResult(
                HPA_FALLBACK_ACTIVE,
                _title(scaled_object),
                "; ".join([condition_text(condition(scaled_object, "Fallback")), *failures, behavior]),
                _users(state, scaled_object),
                template_vars=_place_of(scaled_object),
            )


HPA_AVERAGE_DIVIDED = _HPA.error(
    "HPA_AVERAGE_DIVIDED",
    cause="with metricType AverageValue an HPA divides the value by the replicas, and it is an average already: the "
    "more replicas there are, the less the HPA asks for",
    fix="set metricType: Value on the trigger; better, create the autoscaler by gpu_autoscaler with backend: keda and "
    "adopt: true (docs/backends.md)",
)


@check("queries of ScaledObjects are made for an HPA", HPA_AVERAGE_DIVIDED, needs=("scaled_objects",))
def averages_are_not_divided(state: State) -> Iterator[CheckResult]:
    """Only queries about GPUs."""
    for scaled_object in _live(state):
        if has_formula(scaled_object):
            continue
        for _number, trigger in prometheus_triggers(scaled_object):
            query = metadata_of(trigger).get("query", "")
            if metric_type(trigger) != "AverageValue" or not ABOUT_GPUS.search(query):
                continue
            if _AVERAGE.match(query) and not _RECORDED_FOR_WORKLOAD.search(query):
                yield CheckResult(
                    HPA_AVERAGE_DIVIDED,
                    _title(scaled_object),
                    f"metricType is AverageValue, and the query is {quote(query)}",
                    age_s=state.clock.last_change_age_s(scaled_object),
                )


HPA_WEBHOOK_UNSERVED = _HPA.error(
    "HPA_WEBHOOK_UNSERVED",
    cause="KEDA's admission webhook does not answer: no ScaledObject can be created or changed",
    fix="check the pods of keda-admission-webhooks; delete the webhook of a removed KEDA: kubectl delete "
    "validatingwebhookconfiguration {name}",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    explained_by=(Hop.NODE,),
)


@check(
    "webhooks of ScaledObjects answer",
    HPA_WEBHOOK_UNSERVED,
    needs=("scaled_objects", "webhooks", "services", "component_pods"),
)
def scaled_object_webhooks(state: State) -> Iterator[CheckResult]:
    if not any(scaled_objects_of_gpus(state)):
        return
    for config in state.webhooks:
        name = config["metadata"]["name"]
        for place in dict.fromkeys(services_called(config, "scaledobjects")):
            missing, pods = unserved(state, place)
            if missing:
                yield CheckResult(
                    HPA_WEBHOOK_UNSERVED,
                    f"webhook {name}",
                    f"{missing}, failurePolicy is Fail",
                    frozenset(f"node {pod['spec'].get('nodeName')}" for pod in pods),
                    youngest(state.clock.condition_age_s(pod, "Ready") for pod in pods),
                    template_vars={"name": name},
                )


def scaled_objects_of_gpus(state: State) -> Iterator[Manifest]:
    """ScaledObjects with a checked target, or with triggers about GPUs."""
    targets = {target_of(autoscaler.hpa) for autoscaler in state.autoscalers}
    for scaled_object in state.scaled_objects:
        in_scope = not state.scope.name and state.scope.namespace in (None, scaled_object["metadata"]["namespace"])
        if target_of(scaled_object) in targets or (in_scope and is_about_gpus(scaled_object)):
            yield scaled_object


def _live(state: State) -> Iterator[Manifest]:
    """Those that are not being deleted."""
    return (found for found in scaled_objects_of_gpus(state) if not found["metadata"].get("deletionTimestamp"))


def _users(state: State, scaled_object: Manifest) -> frozenset[str]:
    """What a fault of a ScaledObject affects: the autoscalers of its target."""
    target = target_of(scaled_object)
    users = [autoscaler for autoscaler in state.autoscalers if target_of(autoscaler.hpa) == target]
    return state.affected_by(users) if users else frozenset()


def _title(scaled_object: Manifest) -> str:
    return f"ScaledObject {name_of(scaled_object)}"


def _place_of(scaled_object: Manifest) -> dict[str, Any]:
    return dict(zip(("namespace", "name"), key_of(scaled_object), strict=True))
