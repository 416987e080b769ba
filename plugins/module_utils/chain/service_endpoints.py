# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Whether a Service has pods that answer: those of admission webhooks, and KEDA's operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..kube.label_selectors import labels_match
from ..kube.objects import Manifest, is_ready, labels_of, name_of
from .state.cluster import State


def services_called(config: Manifest, resource: str) -> Iterator[str]:
    """Namespace and name of each Service without which a webhook configuration rejects a resource."""
    for webhook in config.get("webhooks") or ():
        service = (webhook.get("clientConfig") or {}).get("service") or {}
        rules = webhook.get("rules") or ()
        if (
            service
            and webhook.get("failurePolicy", "Fail") == "Fail"
            and any(resource in (rule.get("resources") or ()) for rule in rules)
        ):
            yield f"{service['namespace']}/{service['name']}"


def unserved(state: State, place: str) -> tuple[str, list[Manifest]]:
    """Why a Service, by namespace and name, has no pod that answers, and its pods; an empty reason if it has one.

    Silent if the Service has no selector, or if the pods of its namespace are not read.
    """
    service = next((service for service in state.services if name_of(service) == place), None)
    if service is None:
        return f"there is no Service {place}", []
    pods = _pods_behind(state, service)
    namespace = service["metadata"]["namespace"]
    is_read = any(pod["metadata"]["namespace"] == namespace for pod in state.component_pods)
    if not is_read or not service["spec"].get("selector") or any(map(is_ready, pods)):
        return "", pods
    return f"Service {place} has {_count(pods)}", pods


def _count(pods: Sequence[Manifest]) -> str:
    return f"{len(pods)} pods, none is ready" if pods else "no pods"


def _pods_behind(state: State, service: Manifest) -> list[Manifest]:
    selector, namespace = {"matchLabels": service["spec"].get("selector")}, service["metadata"]["namespace"]
    return [
        pod
        for pod in state.component_pods
        if pod["metadata"]["namespace"] == namespace and labels_match(selector, labels_of(pod))
    ]
