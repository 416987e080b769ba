# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""KEDA as the server of metrics: whether its operator runs, and whether its triggers get values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...errors import enumeration
from ...hops import Hop
from ...kube.objects import Manifest, condition, key_of, last_seen, name_of, trouble, unix, youngest
from ..finding_texts import condition_text, quote
from ..scaled_objects import OPERATOR, addresses_of, failure_of, is_falling_back, pause_of, queries_of
from ..service_endpoints import unserved
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from .keda import scaled_objects_of_gpus
from .workload import target_of

_METRICS_API = FindingTypes(Hop.METRICS_API)

_START_GRACE_S = 120
# An API server keeps events for an hour.
_RECENT_S = 3600
# KEDA's own reasons of events for a trigger without a value.
_FAILURES = ("KEDAScalerFailed", "KEDAMetricSourceFailed")
# The HPA controller quotes KEDA's metrics server. A composite metric is that of scalingModifiers.
_NO_VALUE = re.compile(r"metric:\S+ encountered error")

KEDA_OPERATOR_DOWN = _METRICS_API.error(
    "KEDA_OPERATOR_DOWN",
    cause="KEDA's operator does not run. It queries the triggers, also for KEDA's metrics server, so no HPA of a "
    "ScaledObject has a value",
    fix="kubectl -n {namespace} describe pods -l app=keda-operator; kubectl -n {namespace} logs "
    "deployment/keda-operator --previous",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    explained_by=(Hop.NODE,),
    evidence=(
        Evidence(
            r"OOMKilled",
            "KEDA's operator runs out of memory, so no HPA of a ScaledObject has a value",
            "raise resources.operator.limits.memory in the values of KEDA's chart (keda_values of the role keda)",
        ),
    ),
)


@check("KEDA's operator runs", KEDA_OPERATOR_DOWN, needs=("apis", "services", "component_pods"))
def operator_runs(state: State) -> Iterator[CheckResult]:
    for api in state.apis:
        service = ((api.service or {}).get("spec") or {}).get("service") or {}
        namespace = service.get("namespace", "")
        is_known = api.is_keda and any(name_of(service) == f"{namespace}/{OPERATOR}" for service in state.services)
        missing, pods = unserved(state, f"{namespace}/{OPERATOR}") if is_known else ("", [])
        if missing:
            reasons = filter(None, map(trouble, pods))
            users = [user for user in state.autoscalers if any(metric.group == api.group for metric in user.metrics)]
            yield CheckResult(
                KEDA_OPERATOR_DOWN,
                f"Deployment {namespace}/{OPERATOR}",
                ": ".join([missing, *dict.fromkeys(reasons)]),
                state.affected_by(users) if users else frozenset(),
                youngest(state.clock.condition_age_s(pod, "Ready") for pod in pods),
                template_vars={"namespace": namespace},
                is_cut_off=state.are_cut_off(pods),
            )


KEDA_TRIGGER_FAILS = _METRICS_API.error(
    "KEDA_TRIGGER_FAILS",
    cause="KEDA gets no value from the source of a trigger",
    fix="kubectl -n {namespace} get events --field-selector involvedObject.name={name} has the reason, as does the log "
    "of keda-operator; try {queries} in Prometheus",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    evidence=(
        Evidence(
            r"target may be lost, the (?:result|value list) is empty",
            "the query of a trigger has no result: its series does not exist",
            "query {queries} at {addresses}. If that is empty, check that its exporter is scraped and its rule loaded",
        ),
        Evidence(
            r"returned multiple elements",
            "the query of a trigger has several results, and KEDA takes one",
            "aggregate it: max(...) or sum(...) without `by`",
        ),
        Evidence(
            r"x509|certificate|tls:",
            "KEDA does not trust the certificate of {addresses}",
            "add its CA: KEDA reads one from a TriggerAuthentication only if authModes is set, otherwise from the "
            "operator's --ca-dir (certificates.certManager or volumes of its chart)",
        ),
        Evidence(
            r"no such host|connection refused|no route|i/o timeout|deadline exceeded|Client\.Timeout|dial tcp",
            "KEDA's operator does not reach {addresses}",
            "correct serverAddress: the operator resolves it in its own namespace, so write SERVICE.NAMESPACE.svc; "
            "allow the connection in NetworkPolicies",
        ),
        Evidence(
            r"status: 40[13]",
            "{addresses} rejects KEDA's login",
            "set authModes in the trigger's metadata, and the login in a TriggerAuthentication",
        ),
        Evidence(
            r"status: 4(?:00|22)",
            "Prometheus rejects the query of a trigger",
            "correct {queries}; Prometheus shows the error if you query it there",
        ),
        Evidence(
            r"status: (?:404|3\d\d|5\d\d)|invalid character",
            "{addresses} is not the API of a Prometheus that is ready",
            "correct serverAddress: KEDA appends /api/v1/query to it",
        ),
    ),
)


@check("KEDA's triggers have a value", KEDA_TRIGGER_FAILS, needs=("scaled_objects",))
def triggers_have_values(state: State) -> Iterator[CheckResult]:
    """By conditions of the ScaledObject and of its HPA; KEDA's events have the reason."""
    users = {target_of(autoscaler.hpa): autoscaler for autoscaler in state.autoscalers}
    for scaled_object in scaled_objects_of_gpus(state):
        if pause_of(scaled_object) or scaled_object["metadata"].get("deletionTimestamp"):
            continue
        user = users.get(target_of(scaled_object))
        failure, unanswered = failure_of(scaled_object), _without_value(user)
        event = _last_failure(state, scaled_object)
        # A fallback alone is a finding of the HPA.
        if not (unanswered or (failure and (event or not is_falling_back(scaled_object)))):
            continue
        namespace, name = key_of(scaled_object)
        said = [" ".join(event["message"].split())] if event else []
        since_s = state.clock.seconds_since(event.get("firstTimestamp") or event.get("eventTime"))
        yield CheckResult(
            KEDA_TRIGGER_FAILS,
            f"ScaledObject {namespace}/{name}",
            "; ".join([unanswered or condition_text(failure), *said]),
            state.affected_by([user]) if user else frozenset(),
            state.clock.condition_age_s(user.hpa, "ScalingActive") if user and unanswered else since_s,
            template_vars={
                "namespace": namespace,
                "name": name,
                "queries": enumeration([quote(query) for query in queries_of(scaled_object)]) or "its source",
                "addresses": enumeration(addresses_of(scaled_object)) or "the source",
            },
        )


def _without_value(autoscaler: AutoscalerState | None) -> str:
    """The HPA's condition, if its controller got no value of KEDA's metrics server; empty otherwise."""
    active = condition(autoscaler.hpa, "ScalingActive") if autoscaler else {}
    has_none = active.get("status") == "False" and _NO_VALUE.search(active.get("message") or "")
    return condition_text(active) if has_none else ""


def _last_failure(state: State, scaled_object: Manifest) -> Manifest:
    """KEDA's last event about a trigger since the last change of a ScaledObject; empty without one."""
    changed_s = state.clock.last_change_age_s(scaled_object)
    recent_s = _RECENT_S if changed_s is None else min(changed_s + 1, _RECENT_S)
    found = [
        event
        for event in state.warnings.about_scaled_object(scaled_object)
        if event.get("reason") in _FAILURES and state.now_s - (unix(last_seen(event) or None) or 0.0) <= recent_s
    ]
    return found[-1] if found else {}
