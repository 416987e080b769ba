# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes of a cluster for the proof: their GPUs, the pods that use them, and the versions of their software."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..autoscaling.capacity import gpus_of, gpus_per_pod
from ..autoscaling.manifests import Manifest
from ..chain.objects import condition, is_ready, labels_of, name_of
from ..server.fabric import COMPLETED
from ..server.gpu_node import OURS

WHOLE = "nvidia.com/gpu"
# Set by GPU feature discovery.
_REPLICAS = "nvidia.com/gpu.replicas"
_DRIVER = "nvidia.com/cuda.driver-version.full"
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Server:
    """What a server of the inventory reports.

    gpus:     number on the PCI bus, without those of other drivers.
    expected: expected number; None for the number on the PCI bus.
    driver:   the loaded release; empty if none is.
    fabric:   state of the NVLink fabric by GPU, from nvidia-smi; empty without NVSwitches.
    """

    node: str
    gpus: int = 0
    expected: int | None = None
    driver: str = ""
    fabric: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Server:
        """From the options of the module gpu_proof; `facts` are results of gpu_facts."""
        facts = options["facts"]
        return cls(
            node=options["node"],
            gpus=sum(gpu.get("bound_driver") in OURS for gpu in facts.get("gpus") or ()),
            expected=facts.get("expected_gpus"),
            driver=facts.get("driver_version_loaded") or "",
            fabric=facts.get("fabric") or {},
        )

    @property
    def wanted(self) -> int:
        return self.gpus if self.expected is None else self.expected

    @property
    def unfinished(self) -> dict[str, str]:
        """GPUs whose fabric has not completed."""
        return {gpu: state for gpu, state in self.fabric.items() if state != COMPLETED}


@dataclass(frozen=True)
class GpuNode:
    """A node that offers GPUs, or whose server has some.

    machine:  machine ID of its kubelet.
    resource: requested resource. allocatable, used: amounts of it.
    users:    pods that use its GPUs.
    versions: versions of a CUDA program's dependencies there, as far as known.
    server:   its server in the inventory; None if this run has not read it.
    """

    name: str
    machine: str
    resource: str = WHOLE
    allocatable: int = 0
    used: int = 0
    users: tuple[str, ...] = ()
    is_ready: bool = True
    is_cordoned: bool = False
    is_shared: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    server: Server | None = None

    @property
    def free(self) -> int:
        return max(self.allocatable - self.used, 0)

    @property
    def asked(self) -> int:
        """Devices that the CUDA pod requests: all free GPUs, or one device if they are shared or MIG instances."""
        return min(self.free, 1) if self.is_shared else self.free

    @property
    def provable(self) -> int:
        """Devices whose proof is complete."""
        return min(self.allocatable, 1) if self.is_shared else self.allocatable


def gpu_nodes(
    nodes: Iterable[Manifest], pods: Sequence[Manifest], servers: Iterable[Server], components: Mapping[str, str]
) -> list[GpuNode]:
    """components: versions of cluster components that a node depends on, by name."""
    known = {server.node: server for server in servers}
    by_node: dict[str, list[Manifest]] = {}
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in _OVER:
            by_node.setdefault(pod["spec"].get("nodeName") or "", []).append(pod)
    found = (
        _gpu_node(node, by_node.get(node["metadata"]["name"], ()), known.get(node["metadata"]["name"]), components)
        for node in nodes
    )
    return [node for node in found if node.allocatable or (node.server and node.server.wanted)]


def _gpu_node(
    node: Manifest, pods: Sequence[Manifest], server: Server | None, components: Mapping[str, str]
) -> GpuNode:
    offered = gpus_of([node])
    resource = max(offered, key=lambda name: (offered[name], name == WHOLE), default=WHOLE)
    allocatable = offered.get(resource, 0)
    wanted = {name_of(pod): gpus_per_pod(pod["spec"]).get(resource, 0) for pod in pods}
    users = {name: count for name, count in wanted.items() if count}
    info = (node.get("status") or {}).get("nodeInfo") or {}
    labels = labels_of(node)
    driver = (server.driver if server else "") or labels.get(_DRIVER, "")
    versions = {
        **components,
        "driver": driver,
        "kernel": info.get("kernelVersion", ""),
        "runtime": info.get("containerRuntimeVersion", ""),
        "resource": resource,
    }
    return GpuNode(
        name=node["metadata"]["name"],
        machine=info.get("machineID", ""),
        resource=resource,
        allocatable=allocatable,
        used=sum(users.values()),
        users=tuple(sorted(users)),
        is_ready=is_ready(node) and not _is_pressed(node),
        is_cordoned=bool((node.get("spec") or {}).get("unschedulable")),
        is_shared=_is_shared(resource, allocatable, labels, server),
        versions={name: version for name, version in versions.items() if version},
        server=server,
    )


def _is_pressed(node: Manifest) -> bool:
    return condition(node, "DiskPressure").get("status") == "True"


def _is_shared(resource: str, allocatable: int, labels: Mapping[str, Any], server: Server | None) -> bool:
    """Whether a device of the resource is less than a GPU: a program sees only one of them."""
    replicas = str(labels.get(_REPLICAS, "1"))
    more = bool(server and server.gpus and allocatable > server.gpus)
    return resource != WHOLE or more or (replicas.isdecimal() and int(replicas) > 1)
