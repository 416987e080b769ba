# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reading KEDA's ScaledObjects. Source of names and defaults: KEDA 2.21, apis/keda/v1alpha1 and controllers/keda."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..autoscaling.manifests import SCALED_OBJECT_LABEL
from ..kube.known_components import ABOUT_GPUS
from ..kube.labels import is_managed
from ..kube.objects import Manifest, condition
from ..kube.quantity import parse_quantity
from ..secrets import without_login

ANNOTATION = "autoscaling.keda.sh/"
FINALIZER = "finalizer.keda.sh"
# KEDA's Service and pods, by its chart.
OPERATOR = "keda-operator"
# Default of maxReplicaCount.
MOST_REPLICAS = 100
# Fields of the HPA's target, by its type.
_TARGET_FIELDS = {"AverageValue": "averageValue", "Value": "value"}


def is_about_gpus(scaled_object: Manifest) -> bool:
    """Whether it is managed by this collection, or its triggers name GPUs."""
    triggers = json.dumps(scaled_object["spec"].get("triggers") or [])
    return is_managed(scaled_object) or bool(ABOUT_GPUS.search(triggers))


def is_set(scaled_object: Manifest, annotation: str) -> bool:
    """As KEDA reads it: what is no truth value counts as true."""
    text = (scaled_object["metadata"].get("annotations") or {}).get(ANNOTATION + annotation)
    return text is not None and text.lower() not in ("false", "f", "0")


def pause_of(scaled_object: Manifest) -> str:
    """The annotation for which KEDA has deleted its HPA, without prefix; empty if it is not paused."""
    if ANNOTATION + "paused-replicas" in (scaled_object["metadata"].get("annotations") or {}):
        return "paused-replicas"
    return "paused" if is_set(scaled_object, "paused") else ""


def prometheus_triggers(scaled_object: Manifest) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The triggers that query Prometheus, with their place in the list, by which the HPA names them."""
    for number, trigger in enumerate(scaled_object["spec"].get("triggers") or ()):
        if trigger.get("type") == "prometheus":
            yield number, trigger


def metadata_of(trigger: Mapping[str, Any]) -> Mapping[str, str]:
    return trigger.get("metadata") or {}


def queries_of(scaled_object: Manifest) -> list[str]:
    return [metadata_of(trigger).get("query", "") for _number, trigger in prometheus_triggers(scaled_object)]


def addresses_of(scaled_object: Manifest) -> list[str]:
    """Of each Prometheus that it queries, without a login."""
    found = (metadata_of(trigger).get("serverAddress", "") for _number, trigger in prometheus_triggers(scaled_object))
    return [*dict.fromkeys(without_login(address) for address in found if address)]


def metric_type(trigger: Mapping[str, Any]) -> str:
    return trigger.get("metricType") or "AverageValue"


def has_formula(scaled_object: Manifest) -> bool:
    """Whether one composite metric stands for all triggers."""
    return bool(((scaled_object["spec"].get("advanced") or {}).get("scalingModifiers") or {}).get("formula"))


def differences(scaled_object: Manifest, hpa: Manifest) -> list[str]:
    """What of an HPA is not as KEDA's operator writes it for the ScaledObject: its bounds, and Prometheus' metrics."""
    spec, found = scaled_object["spec"], hpa["spec"]
    bounds = {
        "minReplicas": max(int(spec.get("minReplicaCount") or 0), 1),
        "maxReplicas": spec.get("maxReplicaCount") or MOST_REPLICAS,
    }
    texts = [
        f"{field} is {found.get(field)}, and the ScaledObject asks for {wanted}"
        for field, wanted in bounds.items()
        if found.get(field, 1) != wanted
    ]
    if has_formula(scaled_object):
        return texts
    targets = _targets(hpa)
    for number, trigger in prometheus_triggers(scaled_object):
        name, field = f"s{number}-prometheus", _TARGET_FIELDS.get(metric_type(trigger), "")
        threshold = _number(metadata_of(trigger).get("threshold"))
        target = _number((targets.get(name) or {}).get(field))
        if name not in targets:
            texts.append(f"it has no metric {name}, which is trigger {number + 1} of the ScaledObject")
        elif threshold is not None and target is not None and abs(target - threshold) > 0.001:
            texts.append(f"the target of {name} is {target:g}, and the threshold is {threshold:g}")
    return texts


def served_for(hpa: Manifest) -> set[str]:
    """The ScaledObjects whose metrics an HPA asks KEDA for."""
    selectors = [metric.get("selector") or {} for metric in _external_metrics(hpa)]
    labels = [selector.get("matchLabels") or {} for selector in selectors]
    return {found[SCALED_OBJECT_LABEL] for found in labels if SCALED_OBJECT_LABEL in found}


def is_unseen(scaled_object: Manifest) -> bool:
    """Whether KEDA's operator has not written any condition yet."""
    return not (scaled_object.get("status") or {}).get("conditions")


def is_falling_back(scaled_object: Manifest) -> bool:
    return condition(scaled_object, "Fallback").get("status") == "True"


def failure_of(scaled_object: Manifest) -> Mapping[str, Any]:
    """The condition by which KEDA reports a trigger without a value; empty if none does.

    With a fallback KEDA reports the fallback alone.
    """
    ready = condition(scaled_object, "Ready")
    if ready.get("reason") in ("TriggerError", "PartialTriggerError"):
        return ready
    return condition(scaled_object, "Fallback") if is_falling_back(scaled_object) else {}


def _external_metrics(hpa: Manifest) -> list[Mapping[str, Any]]:
    return [entry["external"]["metric"] for entry in hpa["spec"].get("metrics") or () if entry["type"] == "External"]


def _targets(hpa: Manifest) -> dict[str, Mapping[str, Any]]:
    entries = [entry["external"] for entry in hpa["spec"].get("metrics") or () if entry["type"] == "External"]
    return {entry["metric"]["name"]: entry.get("target") or {} for entry in entries}


def _number(text: Any) -> float | None:
    """Of a quantity; None without one. A threshold is a decimal number, which is a quantity, too."""
    try:
        return parse_quantity(str(text))
    except ValueError:
        return None
