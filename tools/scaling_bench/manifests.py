"""The objects of the benchmark that are not a configuration's own: players, balancer and exporters."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scaling_bench.configurations import NAMESPACE, Configuration, Workload

HERE = Path(__file__).parent
CUDA = HERE.parents[1] / "roles" / "gpu_workload" / "files" / "cuda.py"
PORT = 8000
SCRIPTS = {"name": "scripts", "configMap": {"name": "scripts"}}
MOUNT = {"name": "scripts", "mountPath": "/scripts", "readOnly": True}
COUNTERS = "DCGM_FI_DEV_GPU_UTIL, gauge, Share of time in which a kernel ran (in %).\n"


def scripts() -> dict[str, Any]:
    files = {path.name: path.read_text() for path in (CUDA, HERE / "player.py", HERE / "balancer.py")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta("scripts"), "data": files}


def player(image: str, start_s: float) -> dict[str, Any]:
    """The pod of a workload, which is ready so many seconds after its start."""
    container = {
        "name": "player",
        "image": image,
        "command": ["python3", "-B", "-S", "-E", "/scripts/player.py", "--start", f"{start_s:g}"],
        "resources": {"requests": {"cpu": "5m", "memory": "24Mi"}, "limits": {"nvidia.com/gpu": "1"}},
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "volumeMounts": [MOUNT],
    }
    return {
        "runtimeClassName": "nvidia",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [SCRIPTS],
        "containers": [container],
    }


def deployment(workload: Workload, image: str) -> dict[str, Any]:
    labels = {"app": workload.name}
    spec = {
        "selector": {"matchLabels": labels},
        "strategy": {"type": "Recreate"},
        "template": {"metadata": {"labels": labels}, "spec": player(image, 0)},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta(workload.name), "spec": spec}


def balancer(image: str, cost_ms: float) -> list[dict[str, Any]]:
    """With the right to see which pods are ready, and the monitor of its counters. cost_ms: GPU time of a request."""
    labels = {"app": "balancer"}
    container = {
        "name": "balancer",
        "image": image,
        "command": ["python3", "-B", "-u", "/scripts/balancer.py", "--port", str(PORT), "--cost-ms", f"{cost_ms:g}"],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/metrics", "port": PORT}, "periodSeconds": 1},
        "volumeMounts": [MOUNT],
    }
    pod = {"serviceAccountName": "balancer", "volumes": [SCRIPTS], "containers": [container]}
    rules = [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "balancer"}
    rbac = "rbac.authorization.k8s.io/v1"
    who = [{"kind": "ServiceAccount", "name": "balancer", "namespace": NAMESPACE}]
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    ports = [{"name": "http", "port": PORT}]
    monitor = {
        "selector": {"matchLabels": labels},
        "endpoints": [{"port": "http", "interval": "1s", "scrapeTimeout": "1s"}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta("balancer")},
        {"apiVersion": rbac, "kind": "Role", "metadata": _meta("balancer"), "rules": rules},
        {"apiVersion": rbac, "kind": "RoleBinding", "metadata": _meta("balancer"), "roleRef": role, "subjects": who},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _meta("balancer"), "spec": spec},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _meta("balancer", labels),
            "spec": {"selector": labels, "ports": ports},
        },
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": _meta("balancer"),
            "spec": monitor,
        },
    ]


def exporter(configuration: Configuration, site: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The site's exporter once more, with utilisation alone and its own interval. site: its DaemonSet."""
    assert configuration.exporter
    name = f"exporter-{configuration.name}"
    pod = copy.deepcopy(site["spec"]["template"]["spec"])
    pod = {key: value for key, value in pod.items() if key not in ("serviceAccountName", "serviceAccount")}
    pod["automountServiceAccountToken"] = False
    for volume in pod["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = "counters"
    for variable in pod["containers"][0]["env"]:
        if variable["name"] == "DCGM_EXPORTER_INTERVAL":
            variable["value"] = str(configuration.exporter.collect_s * 1000)
    pod["containers"][0]["resources"] = {}
    labels = {"app": name}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return [{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": _meta(name), "spec": spec}]


def counters() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta("counters"), "data": {"metrics": COUNTERS}}


def _meta(name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, **({"labels": dict(labels)} if labels else {})}
