# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Which HPAs of others would lose their metrics with components of this inventory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..errors import enumeration
from ..kube.labels import inventory_of, is_managed, is_of
from .detection import CUSTOM, EXTERNAL

Object = Mapping[str, Any]
# The API that serves each type of metric; the rest are of metrics-server.
_API = {"Pods": CUSTOM, "Object": CUSTOM, "External": EXTERNAL}
# Kinds of components that every autoscaler of this collection reads from, and the role that removes each.
_SOURCES = {"prometheus": "prometheus_stack", "exporter": "dcgm_exporter"}


def lost_metrics(
    hpas: Sequence[Object], components: Mapping[str, Any], roles: Collection[str], inventory: str, where: str
) -> str:
    """The error that prevents a removal; empty if no HPA of others depends on it.

    components: as detection.find_components() has them. roles: those that remove what this inventory manages.
    where: hop and cluster, for the message.
    """
    removed = dict(_removed(components, roles))
    apis = {name for name in removed if name in _API.values()}
    losing = []
    for hpa in hpas:
        served = {_API.get(metric["type"]) for metric in hpa["spec"].get("metrics") or ()} - {None}
        if not is_of(hpa, inventory) and (served & apis or (served and is_managed(hpa) and removed)):
            metadata = hpa["metadata"]
            owner = f"inventory {inventory_of(hpa)}" if is_managed(hpa) else "not of this collection"
            losing.append(f"{metadata['namespace']}/{metadata['name']} ({owner})")
    if not losing:
        return ""
    keep = " ".join(f"-e {role}_state=existing" for role in sorted(set(removed.values())))
    return (
        f"{where}: HPAs of others would stay without metrics: {enumeration(losing)}. Nothing was changed."
        f" Next: remove these HPAs first, or keep what serves them: {keep}"
    )


def _removed(components: Mapping[str, Any], roles: Collection[str]) -> Iterator[tuple[str, str]]:
    """What goes, each with its role."""
    for kind, role in _SOURCES.items():
        if role in roles and any(found["owned"] for found in components.get(kind) or ()):
            yield kind, role
    for api, server in (components.get("metrics_apis") or {}).items():
        role = "prometheus_adapter" if server.get("is_adapter") else "keda"
        if role in roles and server["owned"] and api in _API.values():
            yield api, role
