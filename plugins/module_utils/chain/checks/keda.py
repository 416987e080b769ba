# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks whether KEDA allows its HPAs to scale."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from ...autoscaling.manifests import SCALED_OBJECT_LABEL
from ...diagnosis.check import CheckResult, Evidence, FindingType, check
from ...errors import enumeration
from ...hops import Hop
from ..objects import Manifest, condition, key_of, name_of
from ..signs import ABOUT_GPUS
from ..state.cluster import State
from ..texts import condition_text, quote
from .workload import target_of

_START_GRACE_S = 120
KEDA = "autoscaling.keda.sh/"
_FINALIZER = "finalizer.keda.sh"

HPA_PAUSED = FindingType(
    "HPA_PAUSED",
    Hop.HPA,
    "warning",
    cause="the ScaledObject is paused: KEDA has removed its HPA, and nothing scales",
    fix="to scale again: kubectl -n {namespace} annotate scaledobject {name} {annotation}-",
)


@check("no ScaledObject of GPUs is paused", HPA_PAUSED, needs=("scaled_objects",))
def keda_is_not_paused(state: State) -> Iterator[CheckResult]:
    """Without an HPA, nothing else is checked."""
    for scaled_object in _of_gpus(state):
        (namespace, name), annotations = key_of(scaled_object), scaled_object["metadata"].get("annotations") or {}
        annotation = "paused-replicas" if KEDA + "paused-replicas" in annotations else "paused"
        if annotation == "paused-replicas" or is_set(scaled_object, annotation):
            yield CheckResult(
                HPA_PAUSED,
                f"ScaledObject {namespace}/{name}",
                f"its annotation {KEDA}{annotation} is {annotations[KEDA + annotation]!r}",
                age_s=state.clock.last_change_age_s(scaled_object),
                template_vars={"namespace": namespace, "name": name, "annotation": KEDA + annotation},
            )


HPA_EMPTY_IS_ZERO = FindingType(
    "HPA_EMPTY_IS_ZERO",
    Hop.HPA,
    "warning",
    cause="KEDA counts an empty result of a query as 0: without an exporter or a rule the HPA scales to its minimum",
    fix='set ignoreNullValues: "false" in the metadata of the trigger; without a value the HPA then keeps its replicas',
)


@check("KEDA does not count a missing value as 0", HPA_EMPTY_IS_ZERO, needs=("scaled_objects",))
def empty_is_no_zero(state: State) -> Iterator[CheckResult]:
    for scaled_object in _of_gpus(state):
        triggers = scaled_object["spec"].get("triggers") or ()
        queries = [
            metadata.get("query", "")
            for trigger in triggers
            if trigger.get("type") == "prometheus" and not _is_false(metadata := trigger.get("metadata") or {})
        ]
        if queries:
            yield CheckResult(
                HPA_EMPTY_IS_ZERO,
                f"ScaledObject {name_of(scaled_object)}",
                f"ignoreNullValues is not false for {enumeration([quote(query) for query in queries])}",
                age_s=state.clock.last_change_age_s(scaled_object),
            )


def _is_false(metadata: Mapping[str, str]) -> bool:
    """As KEDA reads it; true by default."""
    return str(metadata.get("ignoreNullValues", "true")).lower() in ("false", "f", "0")


HPA_WITHOUT_SCALED_OBJECT = FindingType(
    "HPA_WITHOUT_SCALED_OBJECT",
    Hop.HPA,
    "error",
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
        for wanted in sorted(_served_for(autoscaler.hpa)):
            if (namespace, wanted) not in live:
                yield CheckResult(
                    HPA_WITHOUT_SCALED_OBJECT,
                    f"HPA {autoscaler}",
                    f"it asks for metrics of ScaledObject {namespace}/{wanted}, which does not exist",
                    state.affected_by([autoscaler]),
                    state.clock.condition_age_s(autoscaler.hpa, "ScalingActive"),
                    template_vars={"namespace": namespace, "name": name},
                )


def _served_for(hpa: Manifest) -> set[str]:
    """ScaledObjects whose metrics an HPA queries from KEDA."""
    entries = [entry["external"]["metric"] for entry in hpa["spec"].get("metrics") or () if entry["type"] == "External"]
    labels = [(metric.get("selector") or {}).get("matchLabels") or {} for metric in entries]
    return {found[SCALED_OBJECT_LABEL] for found in labels if SCALED_OBJECT_LABEL in found}


HPA_SCALED_OBJECT_STUCK = FindingType(
    "HPA_SCALED_OBJECT_STUCK",
    Hop.HPA,
    "error",
    cause="KEDA's operator does not remove its finalizer from a ScaledObject that is being deleted",
    fix="check that keda-operator runs, and read its log; where KEDA is uninstalled, remove the finalizer: "
    "kubectl -n {namespace} edit scaledobject {name}",
    grace_s=_START_GRACE_S,
)


@check("KEDA lets deleted ScaledObjects go", HPA_SCALED_OBJECT_STUCK, needs=("scaled_objects",))
def scaled_objects_end(state: State) -> Iterator[CheckResult]:
    for scaled_object in _of_gpus(state):
        metadata = scaled_object["metadata"]
        age_s = state.clock.seconds_since(metadata.get("deletionTimestamp"))
        if age_s is not None and _FINALIZER in (metadata.get("finalizers") or ()):
            namespace, name = key_of(scaled_object)
            yield CheckResult(
                HPA_SCALED_OBJECT_STUCK,
                f"ScaledObject {namespace}/{name}",
                f"it was deleted {age_s:.0f} s ago and still has the finalizer {_FINALIZER}",
                age_s=age_s,
                template_vars={"namespace": namespace, "name": name},
            )


def _of_gpus(state: State) -> Iterator[Manifest]:
    """ScaledObjects with a checked target, or with triggers about GPUs."""
    targets = {target_of(autoscaler.hpa) for autoscaler in state.autoscalers}
    for scaled_object in state.scaled_objects:
        in_scope = not state.scope.name and state.scope.namespace in (None, scaled_object["metadata"]["namespace"])
        triggers = json.dumps(scaled_object["spec"].get("triggers") or [])
        if target_of(scaled_object) in targets or (in_scope and ABOUT_GPUS.search(triggers)):
            yield scaled_object


HPA_SCALED_OBJECT_FAILS = FindingType(
    "HPA_SCALED_OBJECT_FAILS",
    Hop.HPA,
    "error",
    cause="KEDA cannot process the ScaledObject of the HPA",
    fix="follow the message; kubectl -n {namespace} describe scaledobject {name}",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    evidence=(
        Evidence(
            r"Fallback is True",
            "KEDA gets no value from a trigger and uses the replicas of the ScaledObject's fallback",
            "check the trigger's source: kubectl -n {namespace} describe scaledobject {name}",
        ),
    ),
)


@check("KEDA works with the ScaledObjects", HPA_SCALED_OBJECT_FAILS, needs=("scaled_objects",))
def keda_works(state: State) -> Iterator[CheckResult]:
    """ScaledObjects with a checked target."""
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


def is_set(scaled_object: Manifest, annotation: str) -> bool:
    """As KEDA reads it: any value that is not a boolean counts as true."""
    text = (scaled_object["metadata"].get("annotations") or {}).get(KEDA + annotation)
    return text is not None and text.lower() not in ("false", "f", "0")
