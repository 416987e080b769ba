# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Decides which nodes get or lose the label nvidia.com/gpu.present."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import enumeration
from ..kube.capacity import may_run_on
from ..kube.gpu_labels import has_gpu_label
from ..kube.label_selectors import labels_match
from ..kube.labels import DEFAULT_INVENTORY, GPU_PRESENT, is_annotated_by, is_installed_by
from ..kube.objects import Manifest, labels_of, name_of, pod_spec
from ..server.gpu_node import OURS
from .gpu_nodes import label_values

LABEL = "nvidia.com/gpu.present"


@dataclass(frozen=True)
class Server:
    """A server of the inventory. node: name of its node. has_gpu: None if this run did not survey it."""

    host: str
    node: str
    has_gpu: bool | None


@dataclass(frozen=True)
class LabelChanges:
    """add, remove: nodes. refused: the error before any change. warning: if no node has a GPU now."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    refused: str = ""
    warning: str = ""


def label_changes(
    servers: Sequence[Server],
    nodes: Sequence[Manifest],
    pool: Mapping[str, Any],
    inventory: str = DEFAULT_INVENTORY,
) -> LabelChanges:
    """Labels for the nodes with a GPU that have all labels of `pool`. Others lose the label of this inventory.

    A GPU node is recognized by its server's PCI devices, by a label, or by its allocatable GPUs.
    """
    wanted = {"matchLabels": label_values(pool)}
    in_pool = {name_of(node) for node in nodes if labels_match(wanted, labels_of(node))}
    labelled = {name_of(node) for node in nodes if LABEL in labels_of(node)}
    detected = [server.node for server in servers if server.has_gpu]
    seen = [name_of(node) for node in nodes if has_gpu_label(labels_of(node)) or offers_gpus(node)]
    with_gpu = list(dict.fromkeys([*detected, *seen, *(name_of(node) for node in nodes if LABEL in labels_of(node))]))
    if refused := _nothing_found(servers, nodes, with_gpu) or _no_node(detected, nodes):
        return LabelChanges(refused=refused)
    return LabelChanges(
        add=tuple(name for name in with_gpu if name in in_pool and name not in labelled),
        remove=tuple(name for name in owned(nodes, inventory) if pool and name not in in_pool),
        warning="" if in_pool.intersection(with_gpu) else _WARNING.format(count=len(in_pool)),
    )


def node_name(host: str, variables: Mapping[str, Any]) -> str:
    """The name of a server's node, by its variables and facts."""
    facts = variables.get("ansible_facts") or {}
    return str(variables.get("kubernetes_node_name") or str(facts.get("hostname", host)).lower())


def owned(nodes: Sequence[Manifest], inventory: str) -> list[str]:
    """Nodes that the role has labelled for this inventory."""
    return [name_of(node) for node in nodes if is_annotated_by(node, GPU_PRESENT, inventory)]


def label_removal(
    unwanted: Sequence[str],
    nodes: Sequence[Manifest],
    daemon_sets: Sequence[Manifest],
    inventory: str = DEFAULT_INVENTORY,
    others_only: bool = False,
) -> dict[str, Any]:
    """The nodes of `unwanted` that lose the label, and a warning about those that DaemonSets need it on.

    others_only: without DaemonSets of this inventory, which leave these nodes anyway.
    """
    counted = [one for one in daemon_sets if not (others_only and is_installed_by(one, inventory))]
    users = {
        name_of(node): [name_of(one) for one in counted if _needs_label(one, node)]
        for node in nodes
        if name_of(node) in unwanted
    }
    kept = [name for name in unwanted if users.get(name)]
    named = enumeration(list(dict.fromkeys(user for name in kept for user in users[name])))
    return {
        "remove": [name for name in unwanted if not users.get(name)],
        "warning": _KEPT.format(nodes=enumeration(kept), users=named) if kept else "",
    }


def _needs_label(daemon_set: Manifest, node: Manifest) -> bool:
    """Whether the DaemonSet runs on the node, and would not without the label. Taints can change."""
    labels, pod = labels_of(node), pod_spec(daemon_set)
    without = {key: value for key, value in labels.items() if key != LABEL}
    has, has_not = ({"metadata": {**node["metadata"], "labels": given}} for given in (labels, without))
    return may_run_on(pod, has) and not may_run_on(pod, has_not)


def offers_gpus(node: Manifest) -> bool:
    """A removed device plugin leaves a count of 0."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return bool(allocatable.get("nvidia.com/gpu", "0") != "0")


_WARNING = (
    "WARNING: GPU -> node: none of {count} nodes has a GPU now. Exporter and device plugin run on nodes with the label"
    " nvidia.com/gpu.present=true. Next: run this playbook again after a node with a GPU has joined."
)

_KEPT = (
    f"WARNING: GPU -> node: {LABEL} is kept on {{nodes}}, because DaemonSets select these nodes by it: {{users}}."
    " Next: run this playbook again after these DaemonSets are removed or select other labels."
)


def _nothing_found(servers: Sequence[Server], nodes: Sequence[Manifest], with_gpu: Sequence[str]) -> str:
    """Without servers in the inventory, nodes with a GPU may come later."""
    if with_gpu or not servers:
        return ""
    unseen = [server.host for server in servers if server.has_gpu is None]
    first = f"run this without --limit, to survey {', '.join(unseen)}; " if unseen else ""
    return (
        f"GPU -> node: no GPU was found. Seen: {len(servers) - len(unseen)} of {len(servers)} servers in"
        " kube_control_plane and kube_node, none of these with an NVIDIA PCI device;"
        f" {len(nodes)} nodes, none with a label of a GPU or with allocatable nvidia.com/gpu. Nothing was changed."
        f" Next: {first}run the playbook kubegpu.autoscale.nodes, or `lspci -d 10de:` on the servers."
    )


def _no_node(detected: Sequence[str], nodes: Sequence[Manifest]) -> str:
    names = [name_of(node) for node in nodes]
    missing = [name for name in detected if name not in names]
    if not missing:
        return ""
    return (
        f"GPU -> node: {', '.join(missing)} has a GPU and is not a node of the cluster. Nodes: {', '.join(names)}."
        " Nothing was changed. Next: join it to the cluster (playbook kubegpu.autoscale.cluster),"
        " or set kubernetes_node_name for the host to the name that its node has."
    )


def gpu_node_labels(
    nodes: Sequence[Mapping[str, Any]],
    servers: Sequence[str] = (),
    hostvars: Mapping[str, Any] | None = None,
    pool: Mapping[str, Any] | None = None,
    left_out: Collection[str] = (),
    inventory: str = DEFAULT_INVENTORY,
) -> dict[str, Any]:
    """The label changes of the servers' nodes, with the `owned` nodes that the role labelled for this inventory.

    servers: hosts. hostvars: variables and facts by host. left_out: servers that failed in this run, and may not be
    nodes. A GPU with a kernel driver of virtual machines does not count.
    """
    known = hostvars or {}
    found = [_server(host, known[host], host in left_out) for host in servers]
    return {**asdict(label_changes(found, nodes, pool or {}, inventory)), "owned": owned(nodes, inventory)}


def _server(host: str, variables: Mapping[str, Any], is_left_out: bool) -> Server:
    facts = variables.get("ansible_facts") or {}
    name = node_name(host, variables)
    if "gpu_facts" not in facts or is_left_out:
        return Server(host, name, None)
    gpus = facts["gpu_facts"].get("gpus") or ()
    return Server(host, name, any(gpu["bound_driver"] in OURS for gpu in gpus))
