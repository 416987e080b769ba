# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether KEDA lets its HPAs scale."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...diagnosis.check import CheckResult, Evidence, FindingType, check
from ...hops import Hop
from ..objects import Manifest, condition, key_of
from ..signs import ABOUT_GPUS
from ..state.cluster import State
from ..texts import condition_text
from .workload import target_of

_START_GRACE_S = 120
KEDA = "autoscaling.keda.sh/"

HPA_PAUSED = FindingType(
    "HPA_PAUSED",
    Hop.HPA,
    "warning",
    cause="the ScaledObject is paused: KEDA has removed its HPA, and nothing scales",
    fix="kubectl -n {namespace} annotate scaledobject {name} {annotation}-to scale again",
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
        annotation = "paused-replicas" if KEDA + "paused-replicas" in annotations else "paused"
        if annotation == "paused-replicas" or is_set(scaled_object, annotation):
            yield CheckResult(
                HPA_PAUSED,
                f"ScaledObject {namespace}/{name}",
                f"its annotation {KEDA}{annotation} is {annotations[KEDA + annotation]!r}",
                age_s=state.clock.last_change_age_s(scaled_object),
                template_vars={"namespace": namespace, "name": name, "annotation": KEDA + annotation},
            )


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


def is_set(scaled_object: Manifest, annotation: str) -> bool:
    """As KEDA reads it: what is no truth value counts as true."""
    text = (scaled_object["metadata"].get("annotations") or {}).get(KEDA + annotation)
    return text is not None and text.lower() not in ("false", "f", "0")
