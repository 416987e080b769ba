# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Which HPAs that this inventory does not manage lose their metrics if its components are removed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..errors import enumeration
from ..kube.labels import inventory_of, is_managed, is_of
from .detection import CUSTOM, EXTERNAL, RESOURCE

Object = Mapping[str, Any]
# The API that serves each type of metric.
_API = {
    "Pods": CUSTOM,
    "Object": CUSTOM,
    "External": EXTERNAL,
    "Resource": RESOURCE,
    "ContainerResource": RESOURCE,
}
# Kinds of components that every autoscaler of this collection reads from, and the role that removes each.
_SOURCES = {"prometheus": "prometheus_stack", "exporter": "dcgm_exporter", "gpu_operator": "gpu_operator"}


def lost_metrics(
    hpas: Sequence[Object], components: Mapping[str, Any], roles: Collection[str], inventory: str, where: str
) -> str:
    """The error that prevents a removal; empty if no HPA of others depends on it.

    components: as detection.find_components() has them. roles: those that remove what this inventory manages.
    where: hop and cluster, for the message.
    """
    removed = dict(_removed(components, roles))
    losing = [_named(hpa) for hpa in hpas if not is_of(hpa, inventory) and _loses(hpa, removed)]
    if not losing:
        return ""
    keep = " ".join(f"-e {role}_state=existing" for role in sorted(set(removed.values())))
    return (
        f"{where}: HPAs that this inventory does not manage would lose their metrics: {enumeration(losing)}."
        f" Nothing was changed. Next: remove them first, or keep what serves their metrics: {keep}"
    )


def _removed(components: Mapping[str, Any], roles: Collection[str]) -> Iterator[tuple[str, str]]:
    """Kinds of components and APIs that are removed, each with its role."""
    for kind, role in _SOURCES.items():
        if role in roles and any(found["owned"] for found in components.get(kind) or ()):
            yield kind, role
    for api, server in (components.get("metrics_apis") or {}).items():
        other = "metrics_server" if api == RESOURCE else "keda"
        role = "prometheus_adapter" if server.get("is_adapter") else other
        if role in roles and server["owned"]:
            yield api, role


def _loses(hpa: Object, removed: Collection[str]) -> bool:
    served = {_API.get(metric["type"]) for metric in hpa["spec"].get("metrics") or ()}
    reads_sources = is_managed(hpa) and not served.isdisjoint((CUSTOM, EXTERNAL))
    return not served.isdisjoint(removed) or (reads_sources and not _SOURCES.keys().isdisjoint(removed))


def _named(hpa: Object) -> str:
    """With its owner, because KEDA recreates the HPA of a ScaledObject."""
    metadata = hpa["metadata"]
    owners = [f"of {owner['kind']} {owner['name']}" for owner in metadata.get("ownerReferences") or ()]
    whose = f"inventory {inventory_of(hpa)}" if is_managed(hpa) else "not of this collection"
    return f"{metadata['namespace']}/{metadata['name']} ({', '.join([*owners, whose])})"
