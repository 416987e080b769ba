# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the workloads of autoscalers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..autoscaling.spec import Autoscaler
from ..cluster.errors import ApiError
from ..cluster.kube import KubeClient, Resource
from ..cluster.listing import list_in
from ..cluster.parallel import in_parallel
from ..errors import HopError
from ..kube.label_selectors import Selector, parse_selector
from ..kube.objects import Key, Manifest


@dataclass(frozen=True)
class TargetState:
    """One target in the cluster.

    served:   its kind exists.  scalable: that kind has a scale subresource.
    manifest: the object itself, or None.
    replicas: desired number.
    selector: selector of its pods; None if unknown.
    """

    served: bool
    scalable: bool
    manifest: Manifest | None
    replicas: int = 0
    selector: Selector | None = None


def read_targets(
    kube: KubeClient,
    autoscalers: Iterable[Autoscaler],
    *,
    managers: bool = True,
    refused: dict[Key, ApiError] | None = None,
) -> dict[Key, TargetState]:
    """Targets by namespace and name of the autoscaler. One discovery per version, one list per kind and namespace.

    managers: keep the managers of each field of a target, which are a large part of it.
    refused:  collects autoscalers of kinds that may not be read, which then have no state. None raises ApiError.
              Includes those whose scale may not be read, because nothing else identifies their pods.
    """
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
    pruned = () if managers else (("metadata", "managedFields"),)
    listed = {}
    for resource, namespaces in places.items():
        try:
            listed[resource] = list_in(kube, replace(resource, pruned_fields=pruned), namespaces)
        except ApiError as err:
            if refused is None or err.status != 403:
                raise
            refused |= {key: err for key, kind in resources.items() if kind == resource}
    autoscalers = [autoscaler for autoscaler in autoscalers if autoscaler.key not in (refused or ())]
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
        if refused is not None and isinstance(scale, ApiError) and scale.status == 403:
            refused[autoscaler.key] = scale
    return states


def _state(resource: Resource, manifest: Manifest | None) -> TargetState:
    """From the object, if it has its selector where Deployments and StatefulSets do."""
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
