"""Nodes as the API server lists them, for the proof."""

from __future__ import annotations

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.basis import ClusterParts
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.nodes import GpuServer, ProofNode, proof_nodes

RESOURCE = "nvidia.com/gpu"


def node(name: str = "gpu1", gpus: int = 8, *, resource: str = RESOURCE, **more: Any) -> dict[str, Any]:
    """more: `labels`, `ready`, `unschedulable`, `machine`, `boot`, `capacity`."""
    status = "True" if more.get("ready", True) else "False"
    return {
        "metadata": {"name": name, "labels": more.get("labels", {})},
        "spec": {"unschedulable": True} if more.get("unschedulable") else {},
        "status": {
            "allocatable": {resource: str(gpus)} if gpus else {},
            "capacity": {resource: str(more["capacity"])} if "capacity" in more else {},
            "conditions": [{"type": "Ready", "status": status}],
            "nodeInfo": {
                "bootID": more.get("boot", "1a2b3c4d-0000"),
                "machineID": more.get("machine", f"machine-{name}"),
                "kubeletVersion": "v1.36.3",
                "kernelVersion": "6.8.0-60-generic",
                "containerRuntimeVersion": "containerd://2.3.6",
            },
        },
    }


def pod(name: str, gpus: int, *, on: str = "gpu1", phase: str = "Running", resource: str = RESOURCE) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {resource: str(gpus)}}}
    return {
        "metadata": {"namespace": "ml", "name": name},
        "spec": {"nodeName": on, "containers": [container]},
        "status": {"phase": phase},
    }


def workload(name: str, image: str, *, chart: str = "", labels: Any = ()) -> dict[str, Any]:
    """A Deployment or a DaemonSet."""
    template = {"spec": {"containers": [{"name": name, "image": image}]}}
    marks = {**({"helm.sh/chart": chart} if chart else {}), **dict(labels)}
    return {"metadata": {"name": name, "namespace": "gpu", "labels": marks}, "spec": {"template": template}}


def plugin(chart: str = "plugin-0.19.0") -> dict[str, Any]:
    return workload("nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0", chart=chart)


def read(*nodes: dict[str, Any], pods: Any = (), servers: Any = (), recorded: Any = ()) -> list[ProofNode]:
    return proof_nodes(nodes, list(pods), servers, ClusterParts(daemon_sets=[plugin()]), recorded)


def server(node: str = "gpu1", gpus: int = 8, **more: Any) -> GpuServer:
    return GpuServer(node, gpus, driver=more.pop("driver", "580.178.04"), **more)
