# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The workloads that autoscalers scale, and their pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..autoscaling.manifests import Manifest
from ..autoscaling.spec import Autoscaler
from ..chain.objects import labels_of
from ..chain.selectors import Selector, format_selector, labels_match, parse_selector
from ..cluster.errors import ApiError
from ..cluster.kube import PODS, KubeClient, Resource
from ..cluster.parallel import all_in_parallel, in_parallel
from ..errors import HopError

Key = tuple[str, str]

# Up to so many namespaces are listed one by one: what else is in the cluster is then not read.
NAMESPACES_LISTED_ALONE = 50
# In a namespace with more autoscalers than this, all its pods are read in one request.
AUTOSCALERS_ASKED_ALONE = 3


@dataclass(frozen=True)
class TargetState:
    """One target, as the cluster has it.

    served:   its kind exists.  scalable: that kind has a scale subresource.
    manifest: the object itself, None if there is none.
    replicas: number that it is to have.
    selector: of its pods; None if it is not known.
    """

    served: bool
    scalable: bool
    manifest: Manifest | None
    replicas: int = 0
    selector: Selector | None = None


def key_of(manifest: Mapping[str, Any]) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def read_targets(kube: KubeClient, autoscalers: Iterable[Autoscaler]) -> dict[Key, TargetState]:
    """By namespace and name of the autoscaler. Discovery once a version, a list once a kind and namespace."""
    autoscalers = list(autoscalers)
    kinds = {
        version: kube.discover(version) for version in {autoscaler.target.api_version for autoscaler in autoscalers}
    }
    resources = {
        autoscaler.key: kinds[autoscaler.target.api_version].get(autoscaler.target.kind) for autoscaler in autoscalers
    }
    places: dict[Resource, set[str]] = {}
    for (namespace, _name), resource in resources.items():
        if resource is not None:
            places.setdefault(resource, set()).add(namespace)
    listed = {resource: list_in(kube, resource, namespaces) for resource, namespaces in places.items()}
    states = {
        autoscaler.key: TargetState(False, False, None)
        if (resource := resources[autoscaler.key]) is None
        else _state(resource, listed[resource].get((autoscaler.namespace, autoscaler.target.name)))
        for autoscaler in autoscalers
    }
    unknown = [
        autoscaler
        for autoscaler in autoscalers
        if states[autoscaler.key].manifest is not None and not states[autoscaler.key].selector
    ]

    def read_scale(autoscaler: Autoscaler) -> Manifest | None:
        resource = kinds[autoscaler.target.api_version][autoscaler.target.kind]
        return kube.get(resource, autoscaler.target.name, autoscaler.namespace, subresource="scale")

    for autoscaler, scale in zip(unknown, in_parallel(read_scale, unknown), strict=True):
        states[autoscaler.key] = _state_of_scale(states[autoscaler.key], scale)
    return states


def list_in(kube: KubeClient, resource: Resource, namespaces: Collection[str]) -> dict[Key, Manifest]:
    """The objects of a kind in some namespaces: each by itself, or the cluster's in one list if there are many.

    Raises: ApiError.
    """
    if len(namespaces) > NAMESPACES_LISTED_ALONE:
        try:
            return {key_of(manifest): manifest for manifest in kube.list(resource) or ()}
        except ApiError as err:
            if err.status != 403:
                raise
    answers = all_in_parallel(lambda namespace: kube.list(resource, namespace=namespace) or (), sorted(namespaces))
    return {key_of(manifest): manifest for answer in answers for manifest in answer}


def read_pods(
    kube: KubeClient, autoscalers: Sequence[Autoscaler], targets: Mapping[Key, TargetState]
) -> dict[Key, list[Manifest]]:
    """The pods of each target that are not being deleted. Raises: ApiError."""
    members: dict[str, list[Autoscaler]] = {}
    for autoscaler in autoscalers:
        if targets[autoscaler.key].selector:
            members.setdefault(autoscaler.namespace, []).append(autoscaler)
    requests = [
        (namespace, text)
        for namespace, few in members.items()
        if len(few) <= AUTOSCALERS_ASKED_ALONE
        for text in dict.fromkeys(format_selector(targets[autoscaler.key].selector or {}) for autoscaler in few)
    ]
    answers = all_in_parallel(
        lambda request: kube.list(PODS, namespace=request[0], label_selector=request[1]) or (), requests
    )
    found = {key_of(pod): pod for answer in answers for pod in answer}
    crowded = {namespace for namespace, many in members.items() if len(many) > AUTOSCALERS_ASKED_ALONE}
    found |= list_in(kube, PODS, crowded) if crowded else {}
    by_namespace: dict[str, list[Manifest]] = {}
    for (namespace, _name), pod in found.items():
        if not pod["metadata"].get("deletionTimestamp"):
            by_namespace.setdefault(namespace, []).append(pod)
    return {
        autoscaler.key: [
            pod
            for pod in by_namespace.get(autoscaler.namespace, ())
            if labels_match(targets[autoscaler.key].selector, labels_of(pod))
        ]
        for autoscaler in autoscalers
    }


def _state(resource: Resource, manifest: Manifest | None) -> TargetState:
    """From the object, where it keeps its selector as Deployments and StatefulSets do."""
    if manifest is None:
        return TargetState(True, resource.scalable, None)
    spec = manifest.get("spec") or {}
    selector = spec.get("selector")
    is_one = isinstance(selector, dict) and bool({"matchLabels", "matchExpressions"} & set(selector))
    return TargetState(True, resource.scalable, manifest, spec.get("replicas", 1), selector if is_one else None)


def _state_of_scale(state: TargetState, scale: Manifest | ApiError | HopError | None) -> TargetState:
    if not isinstance(scale, dict):
        return state
    selector = parse_selector((scale.get("status") or {}).get("selector", ""))
    return TargetState(state.served, state.scalable, state.manifest, scale["spec"].get("replicas", 0), selector)
