# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The nodes of a cluster for the proof: their GPUs, the pods that use them, and what a proof of them rests on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..chain.state.nodes import gpu_nodes as nodes_with_gpus
from ..kube.capacity import gpus_of, gpus_per_pod
from ..kube.objects import Manifest, condition, is_ready, labels_of, name_of
from ..kube.pods import has_ended
from ..kube.quantity import parse_quantity
from ..server.fabric import COMPLETED
from ..server.gpu_node import OURS
from .basis import NODE, ClusterParts, NodeParts, digest, known

WHOLE = "nvidia.com/gpu"
# Pods that share a GPU: set by GPU feature discovery, and by GKE.
_REPLICAS = ("nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu")


@dataclass(frozen=True)
class GpuServer:
    """What a server of the inventory reports.

    gpus:     number on the PCI bus, without those of other drivers.
    expected: expected number; None for the number on the PCI bus.
    driver:   the loaded release; empty if none is. uuids: those that nvidia-smi lists.
    toolkit, toolkit_config: release of the container toolkit, and digest of its configuration.
    fabric:   state of the NVLink fabric by GPU, from nvidia-smi; empty without NVSwitches.
    """

    node: str
    gpus: int = 0
    expected: int | None = None
    driver: str = ""
    uuids: tuple[str, ...] = ()
    toolkit: str = ""
    toolkit_config: str = ""
    fabric: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> GpuServer:
        """From the options of the module gpu_proof; `facts` are results of gpu_facts."""
        facts = options["facts"]
        return cls(
            node=options["node"],
            gpus=sum(gpu.get("bound_driver") in OURS for gpu in facts.get("gpus") or ()),
            expected=facts.get("expected_gpus"),
            driver=facts.get("driver_version_loaded") or "",
            uuids=tuple(facts.get("uuids") or ()),
            toolkit=facts.get("toolkit") or "",
            toolkit_config=facts.get("toolkit_config") or "",
            fabric=facts.get("fabric") or {},
        )

    @property
    def wanted(self) -> int:
        return self.gpus if self.expected is None else self.expected

    @property
    def reported(self) -> dict[str, str]:
        """What a proof rests on, by its name in NODE."""
        values = {"driver": self.driver, "toolkit": self.toolkit, "toolkit_config": self.toolkit_config}
        return {**values, "gpus": digest(sorted(self.uuids))}

    @property
    def unfinished(self) -> dict[str, str]:
        """GPUs whose fabric has not completed."""
        return {gpu: state for gpu, state in self.fabric.items() if state != COMPLETED}


@dataclass(frozen=True)
class ProofNode:
    """A node that has GPUs: it offers some, has a label or a server that shows some, or was proven before.

    machine:  machine ID of its kubelet.
    resource: requested resource. allocatable, used: amounts of it. capacity: with GPUs that do not work.
    claimable: GPUs that pods can claim by dynamic resource allocation.
    users:    pods that use its GPUs.
    versions: known values of what a proof of it rests on.
    server:   its server in the inventory; None if this run has not read it.
    """

    name: str
    machine: str
    resource: str = WHOLE
    allocatable: int = 0
    claimable: int = 0
    capacity: int = 0
    used: int = 0
    users: tuple[str, ...] = ()
    is_ready: bool = True
    is_cordoned: bool = False
    is_shared: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    server: GpuServer | None = None

    @property
    def free(self) -> int:
        return max(self.allocatable - self.used, 0)

    @property
    def is_claimed(self) -> bool:
        """Whether pods get its GPUs only by claims, which the proof does not make."""
        return bool(self.claimable) and not self.allocatable

    @property
    def is_offered_twice(self) -> bool:
        """Whether pods can also request its GPUs. Then a pod of the proof may get one that a claim holds."""
        return bool(self.claimable and self.allocatable)

    @property
    def asked(self) -> int:
        """Devices that the CUDA pod requests: all free GPUs, or one device if they are shared or MIG instances."""
        return min(self.free, 1) if self.is_shared else self.free

    @property
    def provable(self) -> int:
        """Devices whose proof is complete."""
        return min(self.allocatable, 1) if self.is_shared else self.allocatable


def proof_nodes(
    nodes: Iterable[Manifest],
    pods: Sequence[Manifest],
    servers: Iterable[GpuServer],
    cluster: ClusterParts,
    recorded: Collection[str] = (),
) -> list[ProofNode]:
    """recorded: machines of earlier proofs. They stay in the list when they offer no GPU."""
    by_name = {server.node: server for server in servers}
    by_node: dict[str, list[Manifest]] = {}
    for pod in pods:
        if not has_ended(pod):
            by_node.setdefault(pod["spec"].get("nodeName") or "", []).append(pod)
    named = [(node["metadata"]["name"], node) for node in nodes]
    found = [(node, _gpu_node(node, by_node.get(name, ()), by_name.get(name), cluster)) for name, node in named]
    return [gpu_node for node, gpu_node in found if _has_gpus(node, gpu_node, recorded)]


def _has_gpus(node: Manifest, gpu_node: ProofNode, recorded: Collection[str]) -> bool:
    """Whether it has GPUs for pods, or should have. An expected number of 0 shows that it has none any more."""
    server = gpu_node.server
    if gpu_node.allocatable or gpu_node.claimable or (server and server.wanted):
        return True
    if server and server.expected is not None:
        return False
    return gpu_node.machine in recorded or bool(nodes_with_gpus([node], {}))


def _gpu_node(node: Manifest, pods: Sequence[Manifest], server: GpuServer | None, cluster: ClusterParts) -> ProofNode:
    offered = gpus_of([node])
    resource = max(offered, key=lambda name: (offered[name], name == WHOLE), default=WHOLE)
    allocatable = offered.get(resource, 0)
    wanted = {name_of(pod): gpus_per_pod(pod["spec"]).get(resource, 0) for pod in pods}
    users = {name: count for name, count in wanted.items() if count}
    status = node.get("status") or {}
    return ProofNode(
        name=node["metadata"]["name"],
        machine=(status.get("nodeInfo") or {}).get("machineID", ""),
        resource=resource,
        allocatable=allocatable,
        claimable=cluster.claimable.get(node["metadata"]["name"], 0),
        capacity=int(parse_quantity(str((status.get("capacity") or {}).get(resource, 0)))),
        used=sum(users.values()),
        users=tuple(sorted(users)),
        is_ready=is_ready(node) and not _is_pressed(node),
        is_cordoned=bool((node.get("spec") or {}).get("unschedulable")),
        is_shared=_is_shared(resource, allocatable, labels_of(node), server),
        versions=known(NODE, NodeParts(cluster, node, list(offered), server.reported if server else {})),
        server=server,
    )


def _is_pressed(node: Manifest) -> bool:
    return condition(node, "DiskPressure").get("status") == "True"


def _is_shared(resource: str, allocatable: int, labels: Mapping[str, Any], server: GpuServer | None) -> bool:
    """Whether a device of the resource is less than a GPU: a program sees only one of them."""
    replicas = [str(labels.get(label, "1")) for label in _REPLICAS]
    more = bool(server and server.gpus and allocatable > server.gpus)
    return resource != WHOLE or more or any(number.isdecimal() and int(number) > 1 for number in replicas)
