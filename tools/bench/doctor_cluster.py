"""What gpu_doctor is measured on: GPU nodes with their pods, autoscalers with status, and what Prometheus has of it.

Nothing runs: nodes and pods are objects as kubelet and controllers would leave them, as full as real ones.
What their exporters would say is one text, which a real Prometheus scrapes with honorLabels.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench_cluster import Cluster, places
from control_plane import eventually
from kubernetes import client
from metric_chain import MONITORING

Manifest = dict[str, Any]

GPUS_PER_NODE = 8
REPLICAS = 2
WRITERS = 8
PLUGINS = "nvidia-device-plugin"
SYSTEM = "kube-system"
# What else runs on each node.
OTHERS = ("kube-proxy", "cni")
IMAGES = 50
SINCE = (datetime.now(UTC) - timedelta(days=1)).isoformat()
FIELDS = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_FB_USED")
SERIES = "namespace_pod:gpu:avg"
HISTORY_S = 900
STEP_S = 15


@dataclass(frozen=True)
class Size:
    nodes: int
    autoscalers: int

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes, {self.autoscalers:,} autoscalers"


def write_past(folder: Path, size: Size, promtool: Path) -> None:
    """What Prometheus would have recorded before it was started: a block of metric and replicas, as history is read."""
    text = folder / "past.om"
    with text.open("w") as out:
        for line in _past(size):
            out.write(line)
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, folder / "tsdb"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _past(size: Size) -> Iterator[str]:
    now = int(time.time())
    times = range(now - HISTORY_S, now, STEP_S)
    pods = [f'namespace="{namespace}",pod="{pod}"' for namespace, pod in pods_of(size)]
    hpas = [f'namespace="{namespace}",horizontalpodautoscaler="{name}"' for namespace, name in places(size.autoscalers)]
    replicas = "kube_horizontalpodautoscaler_status_{}_replicas"
    series = {
        SERIES: pods,
        replicas.format("current"): hpas,
        replicas.format("desired"): hpas,
    }
    for name, owners in series.items():
        yield f"# TYPE {name} gauge\n"
        for owner in owners:
            yield from (f"{name}{{{owner}}} {2 + (at // STEP_S) % 40} {at}\n" for at in times)
    yield "# EOF\n"


def pods_of(size: Size) -> list[tuple[str, str]]:
    """Namespace and name of the workloads' pods."""
    return [(namespace, f"{name}-{n}") for namespace, name in places(size.autoscalers) for n in range(REPLICAS)]


class DoctorCluster:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._core = client.CoreV1Api(cluster.kube)
        self._there = Size(0, 0)

    def start(self) -> None:
        """The parts that a cluster has once; and none of the nodes that other benches need."""
        self._core.delete_collection_node()
        for name in (PLUGINS, SYSTEM):
            if name not in {namespace.metadata.name for namespace in self._core.list_namespace().items}:
                self._core.create_namespace({"metadata": {"name": name}})
        apps = client.AppsV1Api(self.cluster.kube)
        for name, namespace, container in (
            ("dcgm-exporter", MONITORING, EXPORTER),
            (PLUGINS, PLUGINS, PLUGIN),
        ):
            labels = {"app.kubernetes.io/name": name}
            pod = {"containers": [container], "nodeSelector": {"nvidia.com/gpu.present": "true"}, "volumes": VOLUMES}
            template = {"metadata": {"labels": labels}, "spec": pod}
            spec = {"selector": {"matchLabels": labels}, "template": template}
            apps.create_namespaced_daemon_set(namespace, {"metadata": {"name": name}, "spec": spec})

    def grow(self, size: Size, autoscale: Callable[[int], None]) -> None:
        """autoscale: makes the autoscalers up to a number; their status, a controller's part, is set here."""
        self.cluster.deploy(size.autoscalers)
        autoscale(size.autoscalers)
        nodes = range(self._there.nodes, size.nodes)
        places_of_pods = list(enumerate(pods_of(size)))[self._there.autoscalers * REPLICAS :]
        new = places(size.autoscalers)[self._there.autoscalers :]
        with ThreadPoolExecutor(WRITERS) as writers:
            for done in (
                writers.map(self._node, nodes),
                writers.map(lambda place: self._pod(*place[1], f"gpu-{place[0] % size.nodes:04d}"), places_of_pods),
                writers.map(lambda place: self._status(*place), new),
            ):
                list(done)
        self._there = size
        self.cluster.chain.exporter.text = "".join(exporter_lines(size))

    def _node(self, index: int) -> None:
        name, address = f"gpu-{index:04d}", address_of(index)
        self._core.create_node({"metadata": {"name": name, "labels": node_labels(name)}})
        self._core.patch_node(name, {"spec": {"taints": []}})
        self._core.patch_node_status(name, {"status": node_status(address)})
        self._component(MONITORING, "dcgm-exporter", name, EXPORTER, address)
        self._component(PLUGINS, PLUGINS, name, PLUGIN, address)
        for other in OTHERS:
            self._component(SYSTEM, other, name, {"name": other, "image": f"registry.k8s.io/{other}:v1"}, address)

    def _component(self, namespace: str, app: str, node: str, container: Manifest, address: str) -> None:
        self._create_pod(namespace, f"{app}-{node}", {"app.kubernetes.io/name": app}, container, node, address)

    def _pod(self, namespace: str, name: str, node: str) -> None:
        container = {
            "name": "main",
            "image": "service",
            "env": ENVIRONMENT,
            "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
            "readinessProbe": {"httpGet": {"port": 8080}},
        }
        self._create_pod(namespace, name, {"app": name.rpartition("-")[0]}, container, node, "10.200.0.1")

    def _create_pod(
        self, namespace: str, name: str, labels: Manifest, container: Manifest, node: str, address: str
    ) -> None:
        spec = {"nodeName": node, "containers": [container], "volumes": VOLUMES}
        self._core.create_namespaced_pod(
            namespace, {"metadata": {"name": name, "labels": labels, "annotations": ANNOTATIONS}, "spec": spec}
        )
        kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "hostIP": address,
            "startTime": SINCE,
            "conditions": [_condition(kind, "True") for kind in kinds],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": f"{container['image']}@sha256:{'0' * 64}",
                    "containerID": f"containerd://{'0' * 64}",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": SINCE}},
                }
            ],
        }
        self._core.patch_namespaced_pod_status(name, namespace, {"status": status})

    def _status(self, namespace: str, name: str) -> None:
        kinds = {"AbleToScale": "True", "ScalingActive": "True", "ScalingLimited": "False"}
        conditions = [
            {
                "type": kind,
                "status": status,
                "lastTransitionTime": SINCE,
                "reason": "ReadyForNewScale",
                "message": "fine",
            }
            for kind, status in kinds.items()
        ]
        status = {"currentReplicas": REPLICAS, "desiredReplicas": REPLICAS, "conditions": conditions}
        client.AutoscalingV2Api(self.cluster.kube).patch_namespaced_horizontal_pod_autoscaler_status(
            name, namespace, {"status": status}
        )
        client.AppsV1Api(self.cluster.kube).patch_namespaced_deployment(
            name, namespace, {"spec": {"replicas": REPLICAS}}
        )


def exporter_lines(size: Size) -> Iterator[str]:
    """What the exporters of all nodes say, and that each of them is up; pods hold the first GPUs of their nodes."""
    holders: dict[int, list[tuple[str, str]]] = {}
    for index, pod in enumerate(pods_of(size)):
        holders.setdefault(index % size.nodes, []).append(pod)
    for node in range(size.nodes):
        instance = f'instance="{address_of(node)}:9400"'
        yield f'up{{job="dcgm-exporter",{instance}}} 1\n'
        for gpu in range(GPUS_PER_NODE):
            yield from _gpu_lines(node, gpu, instance, holders.get(node, ())[gpu : gpu + 1])


def _gpu_lines(node: int, gpu: int, instance: str, held_by: Iterable[tuple[str, str]]) -> Iterator[str]:
    labels = [
        f'gpu="{gpu}",UUID="GPU-{node:04d}{gpu}",pci_bus_id="00000000:{gpu:02X}:00.0",device="nvidia{gpu}"',
        f'modelName="NVIDIA H100 80GB HBM3",hostname="gpu-{node:04d}",{instance}',
        *(f'container="main",namespace="{namespace}",pod="{name}"' for namespace, name in held_by),
    ]
    for field in FIELDS:
        yield f"{field}{{{','.join(labels)}}} {0.4 if '_PROF_' in field else 40}\n"


def wait_for_values(cluster: Cluster, size: Size, timeout_s: float) -> None:
    """Until each pod has a value that comes of two scrapes after this moment, and the adapter lists the metric."""
    fresh = f"count(timestamp({SERIES}) > {time.time() + 2 * STEP_S:.0f})"

    def count() -> int:
        result = json.loads(cluster.chain.answer(fresh))["data"]["result"]
        return int(result[0]["value"][1]) if result else 0

    eventually(lambda: count() == size.autoscalers * REPLICAS, f"values for the pods of {size}", timeout_s)
    api = client.CustomObjectsApi(cluster.kube)
    eventually(
        lambda: api.get_api_resources("custom.metrics.k8s.io", "v1beta1").resources, "they are listed", timeout_s
    )


def _condition(kind: str, status: str) -> Manifest:
    words = {"reason": "SomeReason", "message": "a sentence that says why it is so"}
    return {"type": kind, "status": status, "lastTransitionTime": SINCE, **words}


def address_of(node: int) -> str:
    return f"10.100.{node // 250}.{node % 250 + 1}"


def node_labels(name: str) -> Manifest:
    gpu = ("count", "product", "memory", "family", "machine", "compute.major", "compute.minor", "replicas")
    return {
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.present": "true",
        **{f"nvidia.com/gpu.{label}": "8" for label in gpu},
        **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}": "true" for number in range(60)},
    }


def node_status(address: str) -> Manifest:
    amount = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    kinds = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
    return {
        "capacity": amount,
        "allocatable": amount,
        "addresses": [{"type": "InternalIP", "address": address}],
        "conditions": [_condition(kind, status) for kind, status in kinds.items()],
        "images": [
            {"names": [f"registry/team/image-{n}@sha256:{'0' * 64}", f"registry/team/image-{n}:1"], "sizeBytes": 10**9}
            for n in range(IMAGES)
        ],
    }


ENVIRONMENT = [{"name": f"SETTING_{number}", "value": "a value of some length"} for number in range(10)]
ANNOTATIONS = {f"example.com/note-{number}": "a note of some length" for number in range(3)}
VOLUMES = [
    {"name": "pod-gpu-resources", "hostPath": {"path": "/var/lib/kubelet/pod-resources"}},
    *({"name": f"volume-{number}", "configMap": {"name": "settings"}} for number in range(3)),
]
EXPORTER = {
    "name": "exporter",
    "image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-distroless",
    "env": [
        {"name": "DCGM_EXPORTER_KUBERNETES", "value": "true"},
        {"name": "DCGM_EXPORTER_INTERVAL", "value": "1000"},
        *ENVIRONMENT,
    ],
    "ports": [{"name": "metrics", "containerPort": 9400}],
    "livenessProbe": {"httpGet": {"port": 9400}, "initialDelaySeconds": 45},
    "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
}
PLUGIN = {
    "name": "nvidia-device-plugin-ctr",
    "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
    "env": ENVIRONMENT,
}
