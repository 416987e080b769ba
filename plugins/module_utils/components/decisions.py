# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Decisions of an inventory about the components of its cluster.

Each row of `PARTS` lists the variables that its part depends on. The lookup plugin `components` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from . import role_variables as wanted
from .fleet import fleet_settings
from .places import COMPONENTS, Cluster, Wanted, place
from .prometheus_choice import Choice, full_name

Values = Mapping[str, Any]

CLUSTER = "kubegpu_cluster"
PROMETHEUS = "kubegpu_prometheus"
FLEET = "kubegpu_fleet"
SYNC_PERIOD = "kubernetes_hpa_sync_period"
GROUPS = "groups"
OPERATOR_DRIVER = "gpu_operator_driver"
RUNTIME_CLASS = "nvidia"
# The lookup plugin converts text from the command line, like an option of a module.
BOOLEANS = (*(f"{role}_adopt" for role in COMPONENTS), "prometheus_adapter_external_metrics")

# Roles that the GPU operator replaces if it installs the driver.
_OPERATOR_ROLES = ("nvidia_driver", "nvidia_container_toolkit")


@dataclass(frozen=True)
class Part:
    """One decision. reads: names of its variables; a missing or empty one has its default."""

    reads: tuple[str, ...]
    decide: Callable[[Values], Any]


def fleet(values: Values) -> dict[str, int]:
    """Settings that depend on the number of GPU nodes and autoscalers.

    Raises: ValueError if the size or the period is not a number, or the period is 0.
    """
    nodes = (values.get(GROUPS) or {}).get("kube_node") or []
    size = {"nodes": len(nodes), "autoscalers": len(values.get(wanted.AUTOSCALERS) or [])}
    size |= values.get(FLEET) or {}
    period = values.get(SYNC_PERIOD, "")
    try:
        seconds = None if period == "" else float(period)
        return asdict(fleet_settings(int(size["nodes"]), int(size["autoscalers"]), seconds))
    except (TypeError, ValueError, ZeroDivisionError) as err:
        raise ValueError(
            f"fleet: {size} with an HPA sync period of {period!r} is not a fleet size."
            f" Next: set {FLEET} to whole numbers of nodes and autoscalers, and {SYNC_PERIOD} to seconds above 0."
        ) from err


def hpa_sync_period(values: Values) -> int:
    """The HPA sync period in seconds for the size of the fleet. Raises: ValueError as `fleet`."""
    return fleet({name: value for name, value in values.items() if name != SYNC_PERIOD})["sync"]


def places(values: Values) -> dict[str, dict[str, Any]]:
    """The `state` of each chart role, why it is `refused`, a `warning`, and releases of `other_nfd`.

    `other_nfd` are installations of node-feature-discovery that do not belong to the role's release.
    """
    cluster = _cluster(values)
    return {role: {**place(role, cluster), "other_nfd": _other_nfd(role, cluster)} for role in COMPONENTS}


def _other_nfd(role: str, cluster: Cluster) -> list[str]:
    releases = dict.fromkeys(str(entry["release"]) for entry in cluster.found("node_feature_discovery"))
    return [release for release in releases if release != cluster.wanted[role].full_name]


def prometheus(values: Values) -> dict[str, Any]:
    """The Prometheus of the inventory, and the errors if it is ambiguous or missing."""
    cluster = _cluster(values)
    choice = Choice(cluster, values.get(PROMETHEUS) or {}, (values.get(CLUSTER) or {}).get("serves_monitors", True))
    return {
        "address": choice.address(),
        "options": choice.options(fleet(values)["interval"]),
        "url": choice.url(),
        "public_url": choice.public_url(),
        "is_ours": choice.is_ours(),
        "has_monitors": choice.has_monitors(),
        "full_name": full_name(cluster.wanted["prometheus_stack"].release),
        "several": choice.several(),
        "missing": choice.missing(),
    }


def runtime_class(values: Values) -> str:
    """RuntimeClass of pods that need a GPU's driver; empty where NVIDIA's runtime is the nodes' default.

    That is so where another device plugin works without the class, as on EKS, whose images have that default. If the
    cluster was not read, or its classes could not be, it is the class of the device plugin's role.
    """
    known = (values.get(CLUSTER) or {}).get("runtime_classes")
    if known is None or RUNTIME_CLASS in known:
        return RUNTIME_CLASS
    cluster = _cluster(values)
    creates = place("nvidia_device_plugin", cluster)["state"] == "present" or cluster.wants_operator()
    return RUNTIME_CLASS if creates else ""


def has_one_node(values: Values) -> bool:
    """Whether the inventory lists only one node that takes pods, and its fleet has no other.

    A PodDisruptionBudget would block the drain of that node, because no other node can run the evicted replica.
    """
    listed = (values.get(GROUPS) or {}).get("kube_node") or []
    return len(listed) == 1 and str((values.get(FLEET) or {}).get("nodes", 1)) == "1"


def operator_roles(values: Values) -> list[str]:
    """Roles of servers that the GPU operator replaces."""
    installs_driver = values.get(OPERATOR_DRIVER) == "operator"
    present = wanted.wanted(values)["gpu_operator"]["state"] == "present"
    return list(_OPERATOR_ROLES) if installs_driver and present else []


def _cluster(values: Values) -> Cluster:
    seen = values.get(CLUSTER) or {}
    options = wanted.wanted(values)
    return Cluster(
        context=seen.get("context", ""),
        components=seen.get("components") or {},
        unread=seen.get("not_looked_at") or {},
        wanted={role: _wanted(row) for role, row in options.items()},
        host_engine=bool(options["dcgm_exporter"]["host_engine"]),
        external_metrics=bool(options["prometheus_adapter"]["external_metrics"]),
    )


def _wanted(row: Mapping[str, Any]) -> Wanted:
    names = {key: str(row[key]) for key in ("state", "namespace", "release")}
    return Wanted(**names, adopt=bool(row.get("adopt")), needed=row["needed"])


_WANTED = tuple(wanted.variables())
_SIZE = (GROUPS, wanted.AUTOSCALERS, FLEET)
_FLEET = (*_SIZE, SYNC_PERIOD)
PARTS: Mapping[str, Part] = {
    "fleet": Part(_FLEET, fleet),
    "hpa_sync_period": Part(_SIZE, hpa_sync_period),  # the default of SYNC_PERIOD, so it must not read that
    "wanted": Part(_WANTED, wanted.wanted),
    "places": Part((*_WANTED, CLUSTER), places),
    "prometheus": Part((*_WANTED, *_FLEET, CLUSTER, PROMETHEUS), prometheus),
    "has_one_node": Part((GROUPS, FLEET), has_one_node),
    "runtime_class": Part((*_WANTED, CLUSTER), runtime_class),
    "operator_roles": Part((*_WANTED, OPERATOR_DRIVER), operator_roles),
}
