# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Decides, as the operator does, whether a Prometheus object selects a monitor or a PrometheusRule."""

from __future__ import annotations

from ..kube.label_selectors import labels_match
from ..kube.objects import Manifest, labels_of, name_of
from .finding_texts import selector_text
from .state.cluster import State


def why_not_selected(state: State, thing: Manifest, selector: str, namespaces: str) -> str:
    """Why no Prometheus object selects an object; empty if one does. selector, namespaces: fields of its spec."""
    reasons = [_why_not(state, prometheus, thing, selector, namespaces) for prometheus in state.prometheuses]
    return reasons[0] if reasons and all(reasons) else ""


def _why_not(state: State, prometheus: Manifest, thing: Manifest, selector: str, namespaces: str) -> str:
    spec, name = prometheus["spec"], f"Prometheus {name_of(prometheus)}"
    if not labels_match(spec.get(selector), labels_of(thing)):
        return f"{selector} of {name} is {selector_text(spec.get(selector))}"
    if not _is_namespace_selected(state, prometheus, thing, spec.get(namespaces)):
        return f"{namespaces} of {name} is {selector_text(spec.get(namespaces))}"
    return ""


def _is_namespace_selected(state: State, prometheus: Manifest, thing: Manifest, selector: Manifest | None) -> bool:
    """Without a selector it is the namespace of the Prometheus object."""
    name = thing["metadata"]["namespace"]
    if selector is None:
        return name == prometheus["metadata"]["namespace"]
    labels = {namespace["metadata"]["name"]: labels_of(namespace) for namespace in state.namespaces}
    return labels_match(selector, labels.get(name, {"kubernetes.io/metadata.name": name}))
