# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Identifies clusters and machines. Names prove nothing: each cluster may have a gpu1.

A cluster is identified by the UID of its namespace kube-system and its CA, a node by the machine ID of its kubelet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import HopError
from ..formats.x509 import digests
from ..kube.labels import DEFAULT_INVENTORY, MANAGED_BY, MANAGER
from ..kube.labels import inventory_id as as_id
from ..kube.objects import Manifest
from .errors import ApiError
from .kube import CONFIG_MAPS, NAMESPACES, NODES, KubeClient

HOP = "server -> cluster"
NAMESPACE = "kube-system"
# The cluster's record of itself, and the CA that Kubernetes publishes in each namespace.
RECORD = "kubegpu-cluster"
AUTHORITY = "kube-root-ca.crt"
RECORD_ON_SERVER = "/etc/kubernetes/kubegpu/cluster.json"
# The context name of kubeadm, and meaningless names of inventories.
NO_NAMES = ("kubernetes-admin@kubernetes",)
NO_INVENTORY_NAMES = ("hosts", "inventory")
# What Ansible reads if the command names no inventory.
NO_INVENTORY = "/etc/ansible/hosts"
# Digits of a digest in messages.
SHOWN = len("sha256:") + 16


@dataclass(frozen=True)
class ClusterIdentity:
    """A cluster as its API server describes it.

    authorities:  SHA-256 of its CA certificates; several during a rotation.
    name:         name that this collection recorded in the cluster; empty without one.
    recorded_uid: UID in the same record. If it differs from `uid`, the record was copied from another cluster.
    machines:     machine IDs by node.
    """

    uid: str = ""
    authorities: frozenset[str] = frozenset()
    name: str = ""
    recorded_uid: str = ""
    machines: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _cluster_text(self.name, self.uid, self.authorities)


@dataclass(frozen=True)
class ServerIdentity:
    """A server as it describes itself.

    host:   its name in the inventory; node: the name that its node would have.
    record: record of the role kubernetes on the server; empty without one.
    is_node: files of a cluster are on it, even if its CA is not known.
    """

    host: str
    node: str
    machine_id: str
    authorities: frozenset[str] = frozenset()
    record: Mapping[str, Any] = field(default_factory=dict)
    is_node: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ServerIdentity:
        """From the options of the module cluster_identity; most are results of server_info."""
        return cls(
            options["host"],
            options["node"] or "",
            options["machine_id"] or "",
            frozenset(options["authorities"] or ()),
            options["record"] or {},
            options["is_member"],
        )

    @property
    def is_member(self) -> bool:
        return self.is_node or bool(self.authorities)

    def __str__(self) -> str:
        machine = f"{self.host} is machine {self.machine_id or '(unknown)'}"
        if not self.is_member:
            return f"{machine}, not a member of a cluster"
        name, uid = (str(self.record.get(key, "")) for key in ("name", "uid"))
        return f"{machine} of {_cluster_text(name, uid, self.authorities)}"


def read_cluster(kube: KubeClient, nodes: Sequence[str]) -> list[Manifest]:
    """The objects that identify a cluster and these of its nodes."""
    namespace = kube.get(NAMESPACES, NAMESPACE)
    config_maps = [kube.get(CONFIG_MAPS, name, NAMESPACE) for name in (AUTHORITY, RECORD)]
    return [found for found in (namespace, *config_maps, *_read_nodes(kube, nodes)) if found]


def read_name(kube: KubeClient) -> list[Manifest]:
    """Only the record, if this user may read it."""
    try:
        record = kube.get(CONFIG_MAPS, RECORD, NAMESPACE)
    except ApiError as err:
        if err.status != 403:
            raise
        return []
    return [record] if record else []


def _read_nodes(kube: KubeClient, names: Sequence[str]) -> Iterable[Manifest | None]:
    if len(names) == 1:
        return [kube.get(NODES, names[0])]
    return kube.list(NODES) or [] if names else []


def cluster_of(objects: Iterable[Mapping[str, Any]], machines: Mapping[str, str] | None = None) -> ClusterIdentity:
    """The cluster of these objects, as returned by the API server or `kubectl get --output json`."""
    found = {(item.get("kind", "Node"), item["metadata"]["name"]): item for item in objects}
    record = found.get(("ConfigMap", RECORD), {}).get("data") or {}
    authority = found.get(("ConfigMap", AUTHORITY), {}).get("data") or {}
    return ClusterIdentity(
        uid=found.get(("Namespace", NAMESPACE), {"metadata": {}})["metadata"].get("uid", ""),
        authorities=digests(authority.get("ca.crt", "")),
        name=record.get("name", ""),
        recorded_uid=record.get("uid", ""),
        machines={
            **(machines or {}),
            **{
                name: item.get("status", {}).get("nodeInfo", {}).get("machineID", "")
                for (kind, name), item in found.items()
                if kind == "Node"
            },
        },
    )


def mismatch(cluster: ClusterIdentity, server: ServerIdentity, configured_name: str = "") -> HopError | None:
    """Why this server is not a member of this cluster, or not the machine of its node; None without a contradiction.

    configured_name: name of the cluster in the inventory; can be empty.
    """
    for cause, fix in _contradictions(cluster, server, configured_name):
        machine = cluster.machines.get(server.node)
        node = "" if machine is None else f", whose node {server.node} is machine {machine or '(none reported)'}"
        return HopError(HOP, seen=f"{server}. The kubeconfig reaches {cluster}{node}", cause=cause, fix=fix)
    return None


def _contradictions(
    cluster: ClusterIdentity, server: ServerIdentity, configured_name: str
) -> Iterable[tuple[str, str]]:
    yield from record_contradictions(cluster, configured_name)
    other = f"set kubegpu_kubeconfig and kubegpu_context to the cluster of {server.host}"
    recorded = str(server.record.get("uid", ""))
    differs = bool(recorded and cluster.uid and recorded != cluster.uid)
    if server.is_member and (differs or _are_disjoint(server.authorities, cluster.authorities)):
        yield "these are two clusters. Nothing was changed in either", other
    if (copied := copy_of_another(server)) is not None:
        yield copied
    machine = cluster.machines.get(server.node)
    if machine is not None and (not machine or machine != server.machine_id):
        yield (
            f"the node and the server have the same name and are two machines. {NOTHING}",
            other + _own_node(cluster, server),
        )


NOTHING = "Nothing was changed in the cluster"


def record_contradictions(cluster: ClusterIdentity, configured_name: str) -> Iterable[tuple[str, str]]:
    """Mismatches of the cluster with its own record, for any server."""
    if cluster.recorded_uid and cluster.uid and cluster.recorded_uid != cluster.uid:
        yield (
            f"ConfigMap {NAMESPACE}/{RECORD} was copied from the cluster with UID {cluster.recorded_uid}. {NOTHING}",
            f"`kubectl --namespace {NAMESPACE} delete configmap {RECORD}`, which the next run writes again",
        )
    if configured_name and cluster.name and configured_name != cluster.name:
        yield (
            f"kubegpu_cluster_name is {configured_name}. {NOTHING}",
            f"set kubegpu_kubeconfig and kubegpu_context to cluster {configured_name}, "
            f"or kubegpu_cluster_name to {cluster.name}",
        )


def copy_of_another(server: ServerIdentity) -> tuple[str, str] | None:
    """Cause and fix if the record on the server was written on another machine."""
    recorded = str(server.record.get("machine_id", ""))
    if not recorded or recorded == server.machine_id:
        return None
    cause = (
        f"{RECORD_ON_SERVER} was written on machine {recorded}: the server is a copy of that one. Nothing was changed"
    )
    fix = (
        "on a copy, remove /etc/kubernetes and /var/lib/etcd, and run this again. "
        "If only its /etc/machine-id was generated again: on it, `systemctl restart kubelet` and "
        f"`rm {RECORD_ON_SERVER}`"
    )
    return cause, fix


def _own_node(cluster: ClusterIdentity, server: ServerIdentity) -> str:
    """Additional next steps if another node is this machine, and if none is."""
    own = [name for name, machine in cluster.machines.items() if machine and machine == server.machine_id]
    if own:
        return f"; the node of {server.host} is {own[0]}: set kubernetes_node_name to that"
    if not server.machine_id:
        return (
            f"; {server.host} has no ID in /etc/machine-id: `systemd-machine-id-setup; systemctl restart kubelet` on it"
        )
    if not server.is_member:
        return f"; if {server.host} replaces that machine: `kubectl delete node {server.node}`"
    return "; if /etc/machine-id of the server has changed since its kubelet started: `systemctl restart kubelet` on it"


def mismatches(
    cluster: ClusterIdentity, servers: Sequence[ServerIdentity], configured_name: str = ""
) -> list[HopError]:
    """Mismatches of all servers, or without servers those of the cluster's own record."""
    found = [mismatch(cluster, server, configured_name) for server in servers]
    alone = record_contradictions(cluster, configured_name) if not servers else ()
    errors = [HopError(HOP, seen=f"The kubeconfig reaches {cluster}", cause=cause, fix=fix) for cause, fix in alone]
    return errors + [error for error in found if error]


def cluster_name(cluster: ClusterIdentity, servers: Sequence[ServerIdentity], candidates: Iterable[str]) -> str:
    """The recorded name; otherwise the first of the candidates."""
    recorded = (str(server.record.get("name", "")) for server in servers)
    return next(filter(None, (cluster.name, *recorded, *usable_names(candidates))), "")


def usable_names(candidates: Iterable[str]) -> list[str]:
    """Possible names of a cluster. The path of an inventory gives that of its file or folder."""
    return [
        _inventory_name(PurePosixPath(name)) if name.startswith("/") else name
        for name in candidates
        if name and name not in NO_NAMES
    ]


def _inventory_name(path: PurePosixPath) -> str:
    return path.parent.name if path.stem in NO_INVENTORY_NAMES and path.parent.name else path.stem


def config_map(cluster: ClusterIdentity, name: str) -> Manifest | None:
    """The record to write to the cluster; None if it has it, or if the cluster is unknown."""
    if not cluster.uid or (cluster.name and cluster.recorded_uid == cluster.uid):
        return None
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": RECORD, "namespace": NAMESPACE, "labels": {MANAGED_BY: MANAGER}},
        "data": {"name": name, "uid": cluster.uid},
    }


def server_record(cluster: ClusterIdentity, server: ServerIdentity, name: str) -> str:
    """Wanted content of the file that identifies cluster and machine; empty if nothing must be written."""
    if not server.authorities or not cluster.uid:
        return ""
    record = {
        "authorities": sorted(server.authorities),
        "machine_id": server.machine_id,
        "name": name,
        "uid": cluster.uid,
    }
    return "" if record == server.record else json.dumps(record, indent=2) + "\n"


def _are_disjoint(one: frozenset[str], other: frozenset[str]) -> bool:
    return bool(one and other) and not one & other


def _cluster_text(name: str, uid: str, authorities: Iterable[str]) -> str:
    shown = ", ".join(digest[:SHOWN] for digest in sorted(authorities)) or "unknown"
    return f"cluster {name or '(no recorded name)'} (UID {uid or 'unknown'}, CA {shown})"


def missing_inventories(sources: Iterable[str]) -> list[str]:
    """Inventories of the command line that do not exist. Ansible only warns, and runs without them.

    sources: paths, and lists of hosts with a comma.
    """
    return [
        source
        for source in sources
        if "," not in source and not source.startswith("@") and source != NO_INVENTORY and not Path(source).exists()
    ]


def inventory_id(source: str) -> str:
    """The ID of an inventory, as a valid label value: its folder, and its file unless that has a generic name.

    source: path of the inventory; empty for a run without one, whose ID is the same in each folder.
    """
    if not source:
        return DEFAULT_INVENTORY
    path = Path(source).absolute()
    if path.is_dir() or path.stem in (*NO_INVENTORY_NAMES, path.parent.name):
        return as_id((path if path.is_dir() else path.parent).name)
    return as_id(f"{path.parent.name}-{path.stem}")
