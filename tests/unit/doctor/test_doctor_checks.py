"""One fault each in a healthy cluster: exactly its finding, and nothing beside it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.examine import FAILS_ON
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.promql import MODEL_SERVER
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import FINDING_TYPES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.health_report import health_report
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.api import AdapterConfig, ApiState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Scope
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.demand import DemandState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.metric import MetricState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.prometheus import ReplicaState, Row
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.rejected_requests import Rejections
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.servers import ExaminedServer, NoCluster
from clusters import (
    ADAPTER_RULES,
    EXPORTER,
    OLD,
    PLUGIN,
    PROMETHEUS,
    RELEASE,
    SERIES,
    SOURCES,
    Cluster,
    at,
    crash,
    exporter_daemon_set,
    hpa,
    ids,
    meta,
    metric,
    node,
    pod,
    rows,
    service,
    turned,
    webhook,
)
from collection import ROOT

Fault = Callable[[Cluster], Any]
FAULTS: dict[str, Fault] = {}


def fault(finding: str, case: str = "") -> Callable[[Fault], Fault]:
    def register(function: Fault) -> Fault:
        FAULTS[f"{finding} {case}".strip()] = function
        return function

    return register


def restarted(of: dict[str, Any], times: int, code: int, reason: str) -> None:
    ended = {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at(600)}}
    of["status"]["containerStatuses"] = [{"name": "main", "ready": True, "restartCount": times, "lastState": ended}]


def without_gpus(cluster: Cluster) -> None:
    for gpu_node in cluster.nodes:
        for kind in ("capacity", "allocatable"):
            del gpu_node["status"][kind]["nvidia.com/gpu"]


@fault("RIGHTS_MISSING")
def _(cluster: Cluster) -> None:
    cluster.denied = {"scaled_objects": "list scaledobjects of apiGroup 'keda.sh' at the cluster scope"}
    cluster.unavailable = {"scaled_objects": f"no right to {cluster.denied['scaled_objects']}"}


@fault("CLUSTER_MISSING")
def _(cluster: Cluster) -> None:
    cluster.no_cluster = NoCluster("there is no kubeconfig at /root/.kube/config", is_missing=True)


@fault("CLUSTER_UNREACHABLE")
def _(cluster: Cluster) -> None:
    cluster.no_cluster = NoCluster("https://192.0.2.1:6443 did not answer in time", is_missing=False)


@fault("SERVER_UNREACHABLE")
def _(cluster: Cluster) -> None:
    cluster.servers = [
        ExaminedServer("rack7", "rack7", unreachable="Connection timed out"),
        ExaminedServer("gpu1", "gpu1"),
    ]


@fault("SERVER_NOT_EXAMINED")
def _(cluster: Cluster) -> None:
    cluster.servers = [ExaminedServer("rack7", "rack7", failed="Missing sudo password"), ExaminedServer("gpu1", "gpu1")]


@fault("DRIVER_NEEDS_REBOOT")
def _(cluster: Cluster) -> None:
    cluster.facts["gpu1"] |= {"reboot_required": True, "reboot_reason": "driver 570 is loaded, 580 is installed"}


@fault("DRIVER_BROKEN")
def _(cluster: Cluster) -> None:
    cluster.facts["gpu1"]["driver_problem"] = "its module is not loaded: run `modprobe nvidia`"
    cluster.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    crash(cluster.pods["plugin-gpu1"], "waiting")
    del cluster.pods["plugin-gpu1"]
    crash(cluster.pods["dcgm-exporter-gpu1"], "Failed to initialize NVML")
    cluster.silence("chat-0")


@fault("DRIVER_UVM_MISSING")
def _(cluster: Cluster) -> None:
    cluster.facts["gpu1"] |= {"driver_version_loaded": "595.91.07", "uvm_available": False}


@fault("FABRIC_NOT_COMPLETED")
def _(cluster: Cluster) -> None:
    cluster.facts["gpu1"]["fabric"] = {"00000000:1B:00.0": "In Progress", "00000000:1C:00.0": "Completed"}


@fault("GPU_MISSING")
def _(cluster: Cluster) -> None:
    cluster.facts["gpu1"]["expected_gpus"] = len(cluster.facts["gpu1"]["gpus"]) + 1


@fault("CUDA_FAILED")
def _(cluster: Cluster) -> None:
    cluster.cuda_errors = {"gpu1": {"text": "node gpu1: CUDA does not compute: CUDA_ERROR_LAUNCH_FAILED (719)"}}


@fault("NODE_NOT_READY")
def _(cluster: Cluster) -> None:
    cluster.nodes[0]["status"]["conditions"] = [turned("Ready", "Unknown", 900, reason="NodeStatusUnknown")]


@fault("NODE_NOT_READY", "with Prometheus and the adapter on it")
def _(cluster: Cluster) -> None:
    cluster.nodes[:] = cluster.nodes[:1]
    cluster.nodes[0]["status"]["conditions"] = [turned("Ready", "Unknown", 900, reason="NodeStatusUnknown")]
    for manifest in cluster.pods.values():
        manifest["spec"]["nodeName"] = "gpu1"
        manifest["status"]["conditions"][1] = turned("Ready", "False", 860)
    cluster.prometheus = {"error": "no endpoints available for service", "rules": None}
    cluster.api["unavailable"] = "MissingEndpoints"
    cluster.silence("chat-0", "chat-1")


@fault("DEVICE_PLUGIN_MISSING")
def _(cluster: Cluster) -> None:
    del cluster.daemon_sets[1]
    without_gpus(cluster)
    cluster.silence("chat-0", "chat-1")
    cluster.prometheus["rows"] = rows({})


@fault("DEVICE_PLUGIN_NO_NVML")
def _(cluster: Cluster) -> None:
    crash(cluster.pods["plugin-gpu1"], "could not load NVML library: libnvidia-ml.so.1: cannot open shared object file")
    cluster.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "0"


@fault("DEVICE_PLUGIN_NO_NVML", "by its end")
def _(cluster: Cluster) -> None:
    for name in ("plugin-gpu1", "plugin-gpu2"):
        crash(cluster.pods[name], "")
        del cluster.pods[name]["spec"]["runtimeClassName"]
    for gpu_node in cluster.nodes:
        gpu_node["status"]["allocatable"]["nvidia.com/gpu"] = "0"


@fault("DEVICE_PLUGIN_NOT_READY", "where others need no RuntimeClass")
def _(cluster: Cluster) -> None:
    crash(cluster.pods["plugin-gpu1"], "")
    for name in ("plugin-gpu1", "plugin-gpu2"):
        del cluster.pods[name]["spec"]["runtimeClassName"]


@fault("DEVICE_PLUGIN_NOT_READY")
def _(cluster: Cluster) -> None:
    crash(cluster.pods["plugin-gpu1"], "", "ImagePullBackOff")


@fault("DEVICE_PLUGIN_NOT_ON_NODE", "taint")
def _(cluster: Cluster) -> None:
    del cluster.pods["plugin-gpu1"]
    cluster.nodes[0]["spec"]["taints"] = [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]
    del cluster.nodes[0]["status"]["capacity"]["nvidia.com/gpu"]
    cluster.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    cluster.hpa["spec"]["maxReplicas"] = 2


@fault("NODE_WITHOUT_GPUS")
def _(cluster: Cluster) -> None:
    cluster.nodes[0]["status"] |= {"capacity": {"cpu": "64"}, "allocatable": {"cpu": "64"}}


def without_admin(cluster: Cluster) -> None:
    for daemon_set in cluster.daemon_sets:
        if daemon_set["metadata"]["name"] == "nvidia-device-plugin":
            daemon_set["spec"]["template"]["spec"]["containers"][0].pop("securityContext")


@fault("GPUS_WITHOUT_REQUEST", "by the plugin")
def _(cluster: Cluster) -> None:
    without_admin(cluster)


@fault("GPUS_WITHOUT_REQUEST", "by the proof")
def _(cluster: Cluster) -> None:
    cluster.unrequested = {"gpu2": "visible"}


@fault("NODE_LABEL_MISSING", "that the pods ask for as well")
def _(cluster: Cluster) -> None:
    labels = cluster.nodes[0]["metadata"]["labels"]
    labels.clear()
    del cluster.pods["dcgm-exporter-gpu1"]
    cluster.target["spec"]["template"]["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    cluster.silence("chat-0")


@fault("GPU_UNHEALTHY")
def _(cluster: Cluster) -> None:
    cluster.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "3"


@fault("NODE_LABEL_MISSING")
def _(cluster: Cluster) -> None:
    del cluster.nodes[0]["metadata"]["labels"]["nvidia.com/gpu.present"]
    del cluster.pods["dcgm-exporter-gpu1"]
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


@fault("NODE_LABEL_MISSING", "whose exporter is about to go")
def _(cluster: Cluster) -> None:
    """What pods ask for has gone with it."""
    del cluster.nodes[0]["metadata"]["labels"]["nvidia.com/gpu.present"]
    cluster.target["spec"]["template"]["spec"]["nodeSelector"] = {"nvidia.com/gpu.present": "true"}
    cluster.hpa["spec"]["maxReplicas"] = 8


@fault("EXPORTER_MISSING")
def _(cluster: Cluster) -> None:
    del cluster.daemon_sets[0]
    cluster.prometheus = {"rows": [], "up": []}
    cluster.silence("chat-0", "chat-1", listed=False)
    cluster.api["listed"] = frozenset()


@fault("EXPORTER_NOT_ON_NODE")
def _(cluster: Cluster) -> None:
    cluster.nodes[0]["spec"]["taints"] = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    cluster.target["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    del cluster.pods["dcgm-exporter-gpu1"]
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


@fault("EXPORTER_NO_NVML")
def _(cluster: Cluster) -> None:
    crash(cluster.pods["dcgm-exporter-gpu1"], "Failed to initialize NVML: could not find libnvidia-ml.so")
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


@fault("EXPORTER_NOT_READY")
def _(cluster: Cluster) -> None:
    for name in ("dcgm-exporter-gpu1", "dcgm-exporter-gpu2"):
        crash(cluster.pods[name], "exec format error")
    cluster.prometheus["rows"] = []
    cluster.silence("chat-0", "chat-1")


@fault("EXPORTER_NOT_READY", "where the device plugin needs no RuntimeClass")
def _(cluster: Cluster) -> None:
    """The driver is in each container by containerd's default runtime, so that is not what the exporter lacks."""
    FAULTS["EXPORTER_NOT_READY"](cluster)
    for name in ("dcgm-exporter-gpu1", "dcgm-exporter-gpu2", "plugin-gpu1", "plugin-gpu2"):
        del cluster.pods[name]["spec"]["runtimeClassName"]


@fault("EXPORTER_SERVES_NOTHING")
def _(cluster: Cluster) -> None:
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    del cluster.prometheus["serving"][0]
    cluster.silence("chat-0")


@fault("EXPORTER_MOUNT_FAILS")
def _(cluster: Cluster) -> None:
    unmounted(cluster, 900)
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


def warning(about: dict[str, str], reason: str, message: str, ago_s: float = 60) -> dict[str, Any]:
    """As the kubelet and the controllers write their events."""
    times = {"firstTimestamp": at(ago_s + 600), "lastTimestamp": at(ago_s)}
    return {"type": "Warning", "involvedObject": about, "reason": reason, "message": message, **times}


def unmounted(cluster: Cluster, age_s: float) -> None:
    """An exporter that waits for a folder, and says so in two events by turns."""
    waiting = pod("dcgm-exporter-gpu1", "monitoring", "gpu1", EXPORTER, ready=False, age_s=age_s)
    waiting["status"] |= {"phase": "Pending", "podIP": ""}
    waiting["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ContainerCreating"}}
    cluster.pods["dcgm-exporter-gpu1"] = waiting
    del cluster.prometheus["up"][0]
    path = "/home/kubernetes/bin/nvidia"
    said = (
        (200, "MountVolume.SetUp failed for volume a: not yet"),
        (60, f"MountVolume.SetUp failed for volume nvidia: hostPath type check failed: {path} is not a directory"),
        (30, f"Unable to attach or mount volumes: unmounted volumes=[nvidia], unattached volumes=[{'a, ' * 20}]"),
    )
    about = {"kind": "Pod", "namespace": "monitoring", "name": "dcgm-exporter-gpu1"}
    cluster.events = [warning(about, "FailedMount", text, ago) for ago, text in said]


@fault("EXPORTER_OUT_OF_MEMORY")
def _(cluster: Cluster) -> None:
    restarted(cluster.pods["dcgm-exporter-gpu1"], 1, 137, "OOMKilled")


@fault("EXPORTER_PROBES_KILL")
def _(cluster: Cluster) -> None:
    restarted(cluster.pods["dcgm-exporter-gpu1"], 7, 143, "Error")
    cluster.container()["livenessProbe"]["initialDelaySeconds"] = 5
    cluster.exporter_env(DCGM_EXPORTER_INTERVAL="5000")


@fault("EXPORTER_PROBES_KILL", "in its back-off")
def _(cluster: Cluster) -> None:
    its = cluster.pods["dcgm-exporter-gpu1"]
    restarted(its, 7, 0, "Completed")
    its["status"]["conditions"][1] = turned("Ready", "False", 200)
    its["status"]["containerStatuses"][0] |= {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    del cluster.prometheus["up"][0]
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


@fault("EXPORTER_NAMES_NO_PODS")
def _(cluster: Cluster) -> None:
    cluster.exporter_env(DCGM_EXPORTER_KUBERNETES="false")
    _unnamed(cluster)


@fault("EXPORTER_NO_POD_RESOURCES")
def _(cluster: Cluster) -> None:
    cluster.daemon_sets[0]["spec"]["template"]["spec"]["volumes"] = []
    _unnamed(cluster)


@fault("EXPORTER_DEVICE_IDS")
def _(cluster: Cluster) -> None:
    for gpu_node in cluster.nodes:
        gpu_node["metadata"]["labels"]["cloud.google.com/gke-accelerator"] = "nvidia-l4"
    _unnamed(cluster)


def _unnamed(cluster: Cluster, **labels: str) -> None:
    own = {"namespace": "monitoring", "pod": "dcgm-exporter-gpu1", **labels}
    cluster.prometheus["rows"] = [Row({"__name__": SOURCES[1], "instance": "10.0.0.1:9400", **own})]
    cluster.silence("chat-0", "chat-1", listed=False)


@fault("EXPORTER_RESOURCE_NAMES")
def _(cluster: Cluster) -> None:
    limits = cluster.target["spec"]["template"]["spec"]["containers"][0]["resources"]
    limits["limits"] = {"nvidia.com/gpu.shared": "1"}
    cluster.nodes[0]["status"]["capacity"]["nvidia.com/gpu.shared"] = "8"
    cluster.nodes[0]["status"]["allocatable"]["nvidia.com/gpu.shared"] = "8"
    cluster.exporter_env(KUBERNETES_VIRTUAL_GPUS="true")
    cluster.daemon_sets[0]["spec"]["template"]["spec"]["hostPID"] = True
    _unnamed(cluster)


@fault("EXPORTER_SHARED_GPUS")
def _(cluster: Cluster) -> None:
    cluster.nodes[0]["metadata"]["labels"]["nvidia.com/gpu.sharing-strategy"] = "time-slicing"


@fault("EXPORTER_SHARED_GPUS", "nobody labelled them")
def _(cluster: Cluster) -> None:
    cluster.nodes[0]["status"] |= {"capacity": {"nvidia.com/gpu": "4"}, "allocatable": {"nvidia.com/gpu": "4"}}
    cluster.facts["gpu1"]["gpus"] = [{"mig_capable": False}, {"mig_capable": False}]


@fault("EXPORTER_SHARED_GPUS_BLIND")
def _(cluster: Cluster) -> None:
    cluster.nodes[0]["metadata"]["labels"]["nvidia.com/gpu.sharing-strategy"] = "mps"
    cluster.exporter_env(KUBERNETES_VIRTUAL_GPUS="true")


@fault("EXPORTER_COLLECTS_SLOWLY")
def _(cluster: Cluster) -> None:
    cluster.exporter_env(DCGM_EXPORTER_INTERVAL=None)


@fault("EXPORTER_COLLECTS_SLOWLY", "and the HPA looks often")
def _(cluster: Cluster) -> None:
    cluster.exporter_env(DCGM_EXPORTER_INTERVAL="30000")
    cluster.budget |= {"collect_s": 30.0}
    cluster.budget["sources"] = dict.fromkeys(cluster.budget["sources"], "configured")


@fault("PROFILING_MISSING")
def _(cluster: Cluster) -> None:
    cluster.container()["securityContext"] = {}
    cluster.prometheus["rows"] = rows({"ml/chat-0": "10.0.0.1:9400"}, ("DCGM_FI_DEV_GPU_UTIL",))
    sources = ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE")
    cluster.silence("chat-0", "chat-1", sources=sources)


@fault("PROFILING_MISSING", "one node")
def _(cluster: Cluster) -> None:
    sources = ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE")
    cluster.prometheus["rows"] = rows({"ml/chat-0": "10.0.0.1:9400"}, ("DCGM_FI_DEV_GPU_UTIL",)) + rows(
        {"ml/chat-1": "10.0.0.2:9400"}, ("DCGM_FI_DEV_GPU_UTIL", *sources)
    )
    cluster.silence("chat-0", sources=sources)


@fault("EXPORTER_FIELD_MISSING")
def _(cluster: Cluster) -> None:
    cluster.silence("chat-0", "chat-1", name="gpu_memory", sources=("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"))


@fault("PROFILING_FROZEN")
def _(cluster: Cluster) -> None:
    labels = {"UUID": "GPU-1", "exported_namespace": "ml", "exported_pod": "chat-0"}
    cluster.prometheus["frozen"] = [Row(labels, 97.0)]


@fault("METRIC_BLANK_ON_MIG")
def _(cluster: Cluster) -> None:
    resource = "nvidia.com/mig-1g.10gb"
    cluster.target["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}}
    for kind in ("capacity", "allocatable"):
        cluster.nodes[0]["status"][kind][resource] = "7"
    cluster.silence("chat-0", "chat-1", name="gpu_util", sources=("DCGM_FI_DEV_GPU_UTIL",))
    cluster.prometheus["rows"] = rows({"ml/chat-0": "i", "ml/chat-1": "i"}, ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",))


@fault("EXPORTER_LOSES_A_GPU")
def _(cluster: Cluster) -> None:
    labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "exported_namespace": "ml", "exported_pod": "chat-0"}
    cluster.prometheus["blanks"] = [Row(labels, 9.2e18)]
    cluster.silence("chat-0")


@fault("EXPORTER_IMPOSSIBLE_VALUES")
def _(cluster: Cluster) -> None:
    labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "instance": "10.0.0.1:9400"}
    cluster.prometheus["blanks"] = [Row(labels, 9.2e18)]


@fault("EXPORTER_TWICE")
def _(cluster: Cluster) -> None:
    cluster.daemon_sets.append(exporter_daemon_set("nvidia-dcgm-exporter", "gpu-operator"))
    for name, ip in (("gpu1", "10.0.0.3"), ("gpu2", "10.0.0.4")):
        its = pod(f"nvidia-dcgm-exporter-{name}", "gpu-operator", name, {"app.kubernetes.io/name": "dcgm-exporter"}, ip)
        cluster.pods[its["metadata"]["name"]] = its
        cluster.prometheus["up"].append(Row({"job": "nvidia", "instance": f"{ip}:9400"}))
        cluster.prometheus["serving"].append(Row({"instance": f"{ip}:9400"}))
    cluster.prometheus["doubled"] = [Row({"UUID": "GPU-1"}, 2.0), Row({"UUID": "GPU-2"}, 2.0)]


@fault("GPU_ROWS_FROM_ELSEWHERE")
def _(cluster: Cluster) -> None:
    cluster.prometheus["rows"] += rows({"ml/chat-0": "10.0.9.9:8080"})
    cluster.prometheus["up"].append(Row({"job": "ml/evil", "instance": "10.0.9.9:8080"}))


@fault("PROMETHEUS_UNREACHABLE")
def _(cluster: Cluster) -> None:
    cluster.prometheus = {"error": 'services "prometheus" not found', "rules": None}
    cluster.silence("chat-0", "chat-1")


@fault("PROMETHEUS_MISSING")
def _(cluster: Cluster) -> None:
    cluster.prometheus = {"error": 'services "kube-prometheus-stack-prometheus" not found', "rules": None}
    cluster.prometheuses = []
    del cluster.pods["prometheus-0"]
    cluster.silence("chat-0", "chat-1")


def unscraped(cluster: Cluster) -> None:
    cluster.prometheus = {"rows": [], "up": [Row({"job": "node", "instance": "10.0.9.9:9100"})]}
    cluster.silence("chat-0", "chat-1", listed=False)
    cluster.api["listed"] = frozenset()


@fault("MONITOR_NOT_SELECTED", "labels")
def _(cluster: Cluster) -> None:
    unscraped(cluster)
    cluster.service_monitors[0]["metadata"]["labels"] = {}


@fault("MONITOR_NOT_SELECTED", "namespace")
def _(cluster: Cluster) -> None:
    unscraped(cluster)
    cluster.prometheuses[0]["metadata"]["namespace"] = "observability"
    del cluster.prometheuses[0]["spec"]["serviceMonitorNamespaceSelector"]


@fault("MONITOR_FITS_NO_SERVICE", "labels")
def _(cluster: Cluster) -> None:
    unscraped(cluster)
    cluster.service_monitors[0]["spec"]["selector"]["matchLabels"] = {"app": "dcgm-exporter-2.4.0"}


@fault("MONITOR_FITS_NO_SERVICE", "port")
def _(cluster: Cluster) -> None:
    unscraped(cluster)
    cluster.services[0]["spec"]["ports"][0]["name"] = "gpu-metrics"


def two_replicas(cluster: Cluster, second: ReplicaState, **shard: str) -> None:
    """The Service answers with either of two pods; `second` is how the other one sees the cluster."""
    other = pod("prometheus-1", "monitoring", "cpu1", {**PROMETHEUS, **shard})
    up = tuple(cluster.prometheus["up"])
    cluster.prometheus |= {
        "pods": [cluster.pods["prometheus-0"], other],
        "replicas": {"prometheus-0": ReplicaState(frozenset({SERIES, *SOURCES}), up), "prometheus-1": second},
    }


@fault("PROMETHEUS_REPLICAS_DIFFER", "in a series")
def _(cluster: Cluster) -> None:
    two_replicas(cluster, ReplicaState(frozenset(SOURCES), tuple(cluster.prometheus["up"])))
    cluster.silence("chat-0", "chat-1")


@fault("PROMETHEUS_REPLICAS_DIFFER", "in a target, which the answer of the moment calls down")
def _(cluster: Cluster) -> None:
    both = tuple(cluster.prometheus["up"])
    two_replicas(cluster, ReplicaState(frozenset({SERIES, *SOURCES}), both[:1]))
    cluster.prometheus["up"] = [both[0], replace(both[1], value=0.0)]
    cluster.silence("chat-1")


@fault("MONITOR_MISSING")
def _(cluster: Cluster) -> None:
    unscraped(cluster)
    del cluster.service_monitors[0]


@fault("MONITOR_INTERVAL_IGNORED")
def _(cluster: Cluster) -> None:
    cluster.service_monitors[0]["spec"]["endpoints"] = [{"port": "metrics"}, {"interval": "15s"}]


@fault("TARGET_DOWN")
def _(cluster: Cluster) -> None:
    cluster.prometheus["up"][0] = Row({"job": "dcgm-exporter", "instance": "10.0.0.1:9400"}, 0.0)
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


@fault("TARGET_MISSING")
def _(cluster: Cluster) -> None:
    del cluster.prometheus["up"][0]
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


@fault("TARGET_MISSING", "no operator")
def _(cluster: Cluster) -> None:
    unscraped(cluster)
    cluster.prometheuses, cluster.service_monitors = [], []


@fault("SCRAPE_SLOW")
def _(cluster: Cluster) -> None:
    cluster.prometheus["slow"] = [
        Row({"job": "dcgm-exporter", "instance": "10.0.0.1:9400"}, 0.9),
        Row({"job": "node-exporter", "instance": "10.0.0.1:9100"}, 0.95),
    ]


@fault("POD_WITHOUT_GPU_LIMIT")
def _(cluster: Cluster) -> None:
    del cluster.target["spec"]["template"]["spec"]["containers"][0]["resources"]
    cluster.prometheus["rows"] = rows({"ml/embed-0": "10.0.0.1:9400"})
    cluster.silence("chat-0", "chat-1", listed=False)


@fault("EXPORTER_NO_POD_LABELS")
def _(cluster: Cluster) -> None:
    _unnamed(cluster)


@fault("SERIES_WITHOUT_NAMESPACE")
def _(cluster: Cluster) -> None:
    labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "instance": "10.0.0.1:9400", "exported_pod": "chat-0"}
    cluster.prometheus["rows"] = [Row(labels)]
    cluster.silence("chat-0", "chat-1", listed=False)


@fault("POD_WITHOUT_SERIES")
def _(cluster: Cluster) -> None:
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")


@fault("RULE_NOT_SELECTED")
def _(cluster: Cluster) -> None:
    cluster.rule_objects[0]["metadata"]["labels"] = {"release": "another"}
    cluster.prometheus["rules"] = {}
    cluster.silence("chat-0", "chat-1", listed=False)
    cluster.api["listed"] = frozenset()


@fault("RULE_NOT_LOADED")
def _(cluster: Cluster) -> None:
    cluster.prometheus["rules"] = {}
    cluster.silence("chat-0", "chat-1", listed=False)


@fault("RULE_MISSING")
def _(cluster: Cluster) -> None:
    cluster.prometheus["rules"], cluster.rule_objects = {}, []
    cluster.silence("chat-0", "chat-1", listed=False)


@fault("RULE_FAILS")
def _(cluster: Cluster) -> None:
    cluster.rule |= {"health": "err", "lastError": "many-to-many matching not allowed"}
    cluster.silence("chat-0", "chat-1", listed=False)


@fault("RULE_FAILS")
def what_is_smoothed_cannot_be_read(cluster: Cluster) -> None:
    """The rule that fails is not the one of the series that the HPA reads. That one is well, and empty."""
    reading, smoothing = PROFILES["gpu"].metrics[0].recordings()[-2:]
    failed = {
        "name": reading[0],
        "query": reading[1],
        "health": "err",
        "lastError": "many-to-many matching not allowed",
    }
    cluster.rule["query"] = smoothing[1]
    cluster.prometheus["rules"] = {SERIES: [cluster.rule], reading[0]: [cluster.rule | failed]}
    cluster.silence("chat-0", "chat-1", listed=False)


@fault("RULE_NOT_EVALUATED")
def _(cluster: Cluster) -> None:
    cluster.rule["lastEvaluation"] = at(600)
    cluster.silence("chat-0", "chat-1")


@fault("RULE_TOO_SLOW")
def _(cluster: Cluster) -> None:
    cluster.rule["evaluationTime"] = 3.5


@fault("RULE_OUTSIDE_NAMESPACE")
def _(cluster: Cluster) -> None:
    recording = {"record": SERIES, "expr": "vector(100)", "labels": {"namespace": "team-b", "pod": "chat-0"}}
    groups = [{"name": "queue", "rules": [recording]}]
    cluster.rule_objects.append({"metadata": meta("kubegpu.team-a.queue", "monitoring"), "spec": {"groups": groups}})


@fault("RULE_TWICE")
def _(cluster: Cluster) -> None:
    cluster.prometheus["rules"] = {SERIES: [cluster.rule, cluster.rule]}


def follow_demand(cluster: Cluster, **parts: float) -> None:
    """The autoscaler follows a demand of which these parts are recorded, and has done so for long."""
    cluster.demand = DemandState({"busy": 90.0, **parts}, is_steady=True)


@fault("DEMAND_WITHOUT_COUNTERS")
def no_counters(cluster: Cluster) -> None:
    follow_demand(cluster, sum=90.0, cost=0.02)


@fault("DEMAND_WITHOUT_COST")
def no_cost(cluster: Cluster) -> None:
    follow_demand(cluster, counters=2.0, offered=12.0, sum=90.0)


@fault("DEMAND_DISAGREES")
def requests_that_take_no_gpu(cluster: Cluster) -> None:
    follow_demand(cluster, counters=2.0, offered=100.0, cost=0.05, learned=0.05, sum=500.0)


@fault("REJECTED_BELOW_TARGET")
def a_capped_queue(cluster: Cluster) -> None:
    """As recorded of vLLM 0.32 with --max-num-queued-reqs 6: 65 rejected requests a second, one completed."""
    cluster.rejections = {"chat-0": Rejections(65.0, 0.7), "chat-1": Rejections(0.0, 0.7)}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"rejections": {"chat-0": Rejections(0.04, 0.96)}}, id="few are rejected"),
        pytest.param({"metric": metric(values={"chat-0": 67.0, "chat-1": 67.0})}, id="the HPA asks for more"),
        pytest.param({"replicas": 8}, id="at the maximum"),
    ],
)
def test_rejections_that_are_no_fault_of_the_target(change: dict[str, Any]) -> None:
    cluster = Cluster()
    a_capped_queue(cluster)
    assert "REJECTED_BELOW_TARGET" in ids(cluster.report(grace=False))
    for name, value in change.items():
        setattr(cluster, name, value)
    assert "REJECTED_BELOW_TARGET" not in ids(cluster.report(grace=False))


def test_rejections_are_told_with_the_values_and_the_target() -> None:
    """Values of other pods of the namespace are none of its own."""
    cluster = Cluster()
    a_capped_queue(cluster)
    cluster.metric = replace(cluster.metric, values={**cluster.metric.values, "another-0": 900.0})
    report = json.dumps(health_report(cluster.state()))
    assert "chat-0 rejected up to 99% of the requests; gpu is 48, target 60" in report


@fault("DEVICE_CLASS_MISSING")
def _(cluster: Cluster) -> None:
    """The GPU operator allocates by claims alone, and the pods still have a limit."""
    without_gpus(cluster)
    del cluster.daemon_sets[1], cluster.pods["plugin-gpu1"], cluster.pods["plugin-gpu2"]
    devices = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(4)]
    cluster.resource_slices = [
        {"metadata": meta(node), "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "devices": devices}}
        for node in ("gpu1", "gpu2")
    ]
    cluster.device_classes = [{"metadata": meta("gpu.nvidia.com"), "spec": {}}]


@fault("GPUS_OFFERED_TWICE")
def _(cluster: Cluster) -> None:
    """A DRA driver installed beside the device plugin, which also gives out GPUs."""
    devices = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(4)]
    cluster.resource_slices = [
        {"metadata": meta("gpu1"), "spec": {"driver": "gpu.nvidia.com", "nodeName": "gpu1", "devices": devices}}
    ]


@fault("SATURATED_BELOW_TARGET")
def requests_that_wait(cluster: Cluster) -> None:
    """As recorded of vLLM 0.32 with 16 users of four slots: 12 waited, and 0.4 % of the KV cache was used."""
    cluster.waiting = {"chat-0": 12.0, "chat-1": 3.0}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"waiting": {"chat-0": 12.0}}, id="one queue was empty"),
        pytest.param({"metric": metric(values={"chat-0": 67.0, "chat-1": 67.0})}, id="the HPA asks for more"),
        pytest.param({"replicas": 8}, id="at the maximum"),
    ],
)
def test_requests_that_wait_and_are_no_fault_of_the_target(change: dict[str, Any]) -> None:
    cluster = Cluster()
    requests_that_wait(cluster)
    [finding] = cluster.report(grace=False)["findings"]
    assert finding["seen"] == [
        "at least 3 requests waited in each of chat-0, chat-1 for 5 minutes; gpu is 48, target 60"
    ]
    for name, value in change.items():
        setattr(cluster, name, value)
    assert "SATURATED_BELOW_TARGET" not in ids(cluster.report(grace=False))


@fault("WORKLOAD_GRACE_TOO_SHORT")
def answers_longer_than_the_grace_period(cluster: Cluster) -> None:
    cluster.answer_times = {"chat-0": 41.2, "chat-1": 12.0}


def ending(grace_s: int | None, **hook: Any) -> Callable[[Cluster], None]:
    """How pods end. hook: the preStop of their container."""

    def change(cluster: Cluster) -> None:
        answers_longer_than_the_grace_period(cluster)
        spec = cluster.target["spec"]["template"]["spec"]  # type: ignore[index]
        if grace_s is not None:
            spec["terminationGracePeriodSeconds"] = grace_s
        if hook:
            spec["containers"][0]["lifecycle"] = {"preStop": hook}

    return change


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (ending(None), "41 s or longer, and pods have 30 s to end, no preStop hook"),
        (ending(42), None),
        (
            ending(50, sleep={"seconds": 15}),
            "41 s or longer, and pods have 50 s to end, a preStop hook sleeps for 15 s",
        ),
        (ending(60, sleep={"seconds": 15}), None),
        (ending(30, exec={"command": ["drain"]}), "41 s or longer, and pods have 30 s to end"),
        (ending(50, exec={"command": ["drain"]}), None),
        (
            ending(50, exec={"command": ["sh", "-c", "sleep 15"]}),
            "41 s or longer, and pods have 50 s to end, a preStop hook sleeps for 15 s",
        ),
    ],
)
def test_a_grace_period_has_room_for_the_sleep_and_the_longest_answer(
    change: Callable[[Cluster], None], seen: str | None
) -> None:
    cluster = Cluster()
    change(cluster)
    report = cluster.report(grace=False)
    assert [finding["seen"] for finding in report["findings"]] == (
        [[f"one of 100 answers takes {seen}"]] if seen else []
    )
    assert [autoscaler["verified"] for autoscaler in report["autoscalers"]] == [True]


SERVE = ["serve", "/models/chat"]
NO_TIMEOUT = (
    "41 s or longer, and pods have 300 s to end, a preStop hook sleeps for 15 s, vLLM has no --shutdown-timeout"
)


@pytest.mark.parametrize(
    ("container", "seen"),
    [
        ({"image": "vllm/vllm-openai:v0.32.0", "args": SERVE[1:]}, NO_TIMEOUT),
        ({"image": "registry.example/ours", "command": ["vllm", *SERVE]}, NO_TIMEOUT),
        ({"image": "registry.example/ours", "command": ["sh", "-c", "exec vllm serve /models/chat"]}, NO_TIMEOUT),
        ({"image": "vllm/vllm-openai:v0.32.0", "args": [*SERVE[1:], "--shutdown-timeout", "60"]}, None),
        ({"image": "registry.example/ours", "command": ["sh", "-c", "vllm serve m --shutdown-timeout=60"]}, None),
        ({"image": "vllm/vllm-openai:v0.32.0", "args": ["--config", "/etc/vllm.yaml"]}, None),
        ({"image": "vllm/vllm-openai:v0.32.0", "command": ["/start.sh"]}, None),
    ],
)
def test_a_vllm_that_aborts_its_streams_has_no_time_however_long_it_is_given(
    container: dict[str, Any], seen: str | None
) -> None:
    cluster = Cluster()
    ending(300, sleep={"seconds": 15})(cluster)
    cluster.target["spec"]["template"]["spec"]["containers"][0] |= container  # type: ignore[index]
    findings = cluster.report(grace=False)["findings"]
    found = [finding["seen"] for finding in findings if finding["id"] == "WORKLOAD_GRACE_TOO_SHORT"]
    assert found == ([[f"one of 100 answers takes {seen}"]] if seen else [])


def test_answers_of_other_pods_of_the_namespace_say_nothing() -> None:
    cluster = Cluster()
    cluster.answer_times = {"another-0": 300.0}
    assert ids(cluster.report(grace=False)) == []


def unread_server(cluster: Cluster) -> None:
    """A model server whose metrics the autoscaler needs, and that nothing scrapes."""
    cluster.metric = metric(
        name="llm_in_flight",
        series="namespace_pod:llm_in_flight:avg",
        sources=("vllm:num_requests_running",),
        reporter=MODEL_SERVER.name,
        unit="requests",
        values={},
        recorded={"another-0": (3.0,)},
        listed=False,
    )
    cluster.api["listed"] = frozenset()
    failed = turned("ScalingActive", "False", reason="FailedGetPodsMetric", message="no metrics returned")
    cluster.hpa["status"]["conditions"][1] = failed
    cluster.rule["name"] = cluster.metric.series


def pod_monitor(cluster: Cluster, port: str = "http", **labels: str) -> None:
    for name in ("chat-0", "chat-1"):
        cluster.pods[name]["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8000}]
    spec = {"selector": {"matchLabels": {"app": "chat"}}, "podMetricsEndpoints": [{"port": port}]}
    cluster.pod_monitors.append({"metadata": {**meta("chat", "ml"), "labels": labels}, "spec": spec})


@fault("POD_NOT_SCRAPED")
def _(cluster: Cluster) -> None:
    unread_server(cluster)


@fault("POD_NOT_SCRAPED", "monitor is not selected")
def _(cluster: Cluster) -> None:
    unread_server(cluster)
    pod_monitor(cluster)


@fault("POD_NOT_SCRAPED", "wrong port")
def _(cluster: Cluster) -> None:
    unread_server(cluster)
    pod_monitor(cluster, "metrics", **RELEASE)


@pytest.mark.parametrize(
    ("case", "seen", "fix"),
    [
        ("", "no PodMonitor or ServiceMonitor fits their labels app=chat", "create a PodMonitor"),
        (" monitor is not selected", "monitor ml/chat is not selected: podMonitorSelector of", "label podmonitor chat"),
        (" wrong port", "but it selects port metrics, the ports are named http", "as port of podmonitor chat"),
    ],
)
def test_why_a_model_server_is_not_scraped(case: str, seen: str, fix: str) -> None:
    cluster = Cluster()
    FAULTS[f"POD_NOT_SCRAPED{case}"](cluster)
    [finding] = cluster.report(grace=False)["findings"]
    assert "`up` has no series of chat-0, chat-1, and " in finding["seen"][0]
    assert seen in finding["seen"][0]
    assert fix in finding["fix"]


def test_a_model_server_that_is_scraped_under_another_name_is_not_accused() -> None:
    """A static job may have targets with other labels: a value is what counts."""
    cluster = Cluster()
    unread_server(cluster)
    cluster.metric = replace(cluster.metric, values={"chat-0": 3.0}, recorded={"chat-0": (3.0,)})
    assert "POD_NOT_SCRAPED" not in ids(cluster.report(grace=False))
    cluster = Cluster()
    unread_server(cluster)
    cluster.prometheus["up"].append(Row({"job": "ml", "instance": "x:1", "namespace": "ml", "pod": "chat-0"}, 0.0))
    assert "POD_NOT_SCRAPED" not in ids(cluster.report(grace=False))


@fault("RULE_GIVES_NAN")
def _(cluster: Cluster) -> None:
    cluster.metric = metric(recorded={"chat-0": (math.nan,), "chat-1": (55.0,)}, values={"chat-0": 0.0, "chat-1": 55.0})


@fault("RULE_GIVES_NOTHING")
def _(cluster: Cluster) -> None:
    cluster.silence("chat-0", "chat-1", listed=False)
    cluster.api["listed"] = frozenset()


def own_rule(cluster: Cluster, query: str) -> None:
    """Beside ours, somebody has a rule over the exporter's series."""
    own = {**cluster.rule, "name": "node:gpu:use", "query": query}
    cluster.prometheus["rules"] = {SERIES: [cluster.rule], own["name"]: [own]}


@fault("RULE_LABEL_RENAMED")
def _(cluster: Cluster) -> None:
    hostnames(cluster, "hostname")
    own_rule(cluster, 'max by (Hostname) (DCGM_FI_DEV_GPU_UTIL{job="dcgm-exporter"})')


def hostnames(cluster: Cluster, label: str) -> None:
    named = [Row({**row.labels, label: "gpu1"}, row.value) for row in cluster.prometheus["rows"]]
    cluster.prometheus["rows"] = named


JOIN = "sum by (label_app) (DCGM_FI_DEV_GPU_UTIL * on (namespace, pod) group_left (label_app) kube_pod_labels)"


@fault("RULE_POD_LABELS_MISSING")
def _(cluster: Cluster) -> None:
    own_rule(cluster, JOIN)
    cluster.prometheus["joined"] = frozenset({"pod"})


@fault("RULE_JOINS_WRONG_POD")
def _(cluster: Cluster) -> None:
    own_rule(cluster, JOIN)
    cluster.prometheus["joined"] = frozenset({"pod", "exported_pod"})


# The rule of the best-known recipe.
POD_ALONE = """\
avg(max by(node, pod, namespace) (dcgm_gpu_utilization)
* on(pod) group_left(label_app) max by(pod, label_app) (kube_pod_labels{label_app="cuda-test"}))"""


@fault("RULE_JOINS_POD_ALONE")
def _(cluster: Cluster) -> None:
    own_rule(cluster, POD_ALONE)
    cluster.prometheus["joined"] = frozenset({"pod", "label_app"})


@fault("RULE_POD_LABELS_MISSING", "a field by its name in dcgm-exporter 1.x")
def _(cluster: Cluster) -> None:
    own_rule(cluster, JOIN.replace("DCGM_FI_DEV_GPU_UTIL", "dcgm_gpu_utilization"))
    cluster.prometheus["joined"] = frozenset({"pod"})


@fault("RULE_RATE_OF_GAUGE")
def _(cluster: Cluster) -> None:
    own_rule(cluster, "sum by (pod) (rate(DCGM_FI_PROF_PCIE_TX_BYTES[1m]))")


@fault("RULE_WINDOW_TOO_SHORT")
def _(cluster: Cluster) -> None:
    own_rule(cluster, 'avg by (pod) (avg_over_time(DCGM_FI_DEV_GPU_UTIL{pod!=""}[3s]))')


@fault("RULE_WEBHOOK_UNSERVED", "no service")
def _(cluster: Cluster) -> None:
    cluster.webhooks = [webhook(name="gone")]


@fault("RULE_WEBHOOK_UNSERVED", "no pod is ready")
def _(cluster: Cluster) -> None:
    crash(cluster.pods["operator-0"], "exec format error")


@fault("RULE_WEBHOOK_UNSERVED", "no pod")
def _(cluster: Cluster) -> None:
    del cluster.pods["operator-0"]


@fault("METRICS_API_MISSING")
def _(cluster: Cluster) -> None:
    cluster.api |= {"service": None, "listed": None, "is_prometheus_adapter": False}
    cluster.metric = metric(values={}, listed=None)
    _inactive(cluster)


def _inactive(cluster: Cluster, message: str = "unable to get metric gpu", reason: str = "FailedGetPodsMetric") -> None:
    cluster.hpa["status"]["conditions"][1] = turned("ScalingActive", "False", reason=reason, message=message)


@fault("METRICS_API_UNAVAILABLE", "no endpoints")
def _(cluster: Cluster) -> None:
    cluster.api |= {"unavailable": "FailedDiscoveryCheck: context deadline exceeded", "listed": None}
    cluster.metric = metric(values={}, listed=None)
    _inactive(cluster)


@fault("METRICS_API_UNAVAILABLE", "silent")
def _(cluster: Cluster) -> None:
    cluster.api["listed"] = None
    cluster.metric = metric(values={}, listed=None)


@fault("METRICS_API_OF_ANOTHER")
def _(cluster: Cluster) -> None:
    cluster.api |= {"owner": "service keda/datadog", "is_prometheus_adapter": False, "listed": frozenset({"pods/x"})}
    cluster.metric = metric(values={}, listed=False)
    _inactive(cluster)


def unlisted(cluster: Cluster) -> None:
    cluster.api["listed"] = frozenset()
    cluster.metric = metric(values={}, listed=False)
    _inactive(cluster)


@fault("ADAPTER_WRONG_URL", "no service")
def _(cluster: Cluster) -> None:
    unlisted(cluster)
    _adapter_args(cluster)[0] = "--prometheus-url=http://prometheus.default.svc:9090"


@fault("ADAPTER_WRONG_URL", "port")
def _(cluster: Cluster) -> None:
    unlisted(cluster)
    _adapter_args(cluster)[0] = "--prometheus-url=http://kube-prometheus-stack-prometheus.monitoring.svc:9999"


@fault("ADAPTER_WRONG_URL", "port twice")
def _(cluster: Cluster) -> None:
    unlisted(cluster)
    _adapter_args(cluster)[0] = "--prometheus-url=http://kube-prometheus-stack-prometheus.monitoring.svc:9090:9090"


def _adapter_args(cluster: Cluster) -> list[str]:
    return cluster.adapter["spec"]["template"]["spec"]["containers"][0]["args"]


@fault("ADAPTER_RULE_WRONG")
def _(cluster: Cluster) -> None:
    unlisted(cluster)
    configured(cluster, [*ADAPTER_RULES, {"seriesQuery": 'rate(requests_total{namespace!=""}[1m])'}])


def configured(cluster: Cluster, rules: Sequence[Any], error: str = "", written_s: float = OLD) -> None:
    """The adapter's ConfigMap as somebody has written it some seconds ago."""
    metadata = meta("prometheus-adapter", "monitoring", 2 * OLD)
    metadata["managedFields"] = [
        {"manager": "kubectl-edit", "time": at(written_s), "fieldsV1": {"f:data": {"f:config.yaml": {}}}},
        {"manager": "labeller", "time": at(1), "fieldsV1": {"f:metadata": {"f:labels": {}}}},
    ]
    cluster.api["config"] = AdapterConfig({"metadata": metadata}, error, rules)


@fault("ADAPTER_RULE_WRONG", "no YAML")
def _(cluster: Cluster) -> None:
    unlisted(cluster)
    configured(cluster, [], "mapping values are not allowed here in line 3, column 12")


@fault("ADAPTER_NOT_RESTARTED")
def _(cluster: Cluster) -> None:
    FAULTS["METRIC_NOT_LISTED"](cluster)
    configured(cluster, ADAPTER_RULES, written_s=600)


@fault("ADAPTER_OVERLOADED")
def _(cluster: Cluster) -> None:
    restarted(cluster.pods["prometheus-adapter-0"], 4, 137, "OOMKilled")
    configured(cluster, [*ADAPTER_RULES, {"seriesQuery": '{namespace!="",__name__!~"^container_.*"}'}])


@fault("ADAPTER_LISTS_NOTHING")
def _(cluster: Cluster) -> None:
    unlisted(cluster)


@fault("ADAPTER_FORGETS")
def _(cluster: Cluster) -> None:
    _adapter_args(cluster)[1:] = ["--metrics-relist-interval=10s"]
    cluster.rule["interval"] = 30.0


@fault("ADAPTER_THROTTLED")
def _(cluster: Cluster) -> None:
    _adapter_args(cluster).append("--client-qps=0.1")


@fault("METRIC_IN_CAPITALS")
def _(cluster: Cluster) -> None:
    queue = MetricState(
        "Queue", "external.metrics.k8s.io", "External", expected_objects=frozenset({"chat"}), listed=None
    )
    cluster.metric = queue
    _inactive(cluster)


@fault("METRIC_NOT_LISTED")
def _(cluster: Cluster) -> None:
    cluster.api["listed"] = frozenset({"pods/other"})
    cluster.metric = metric(values={}, listed=False)
    _inactive(cluster)


@fault("METRIC_WITHOUT_VALUE")
def _(cluster: Cluster) -> None:
    cluster.metric = metric(values={"chat-1": 55.0}, refusal="the server could not find the metric")


@fault("METRIC_DISAGREES")
def _(cluster: Cluster) -> None:
    cluster.metric = metric(values={"chat-0": 90.0, "chat-1": 55.0})


@fault("HPA_NOT_SEEN")
def _(cluster: Cluster) -> None:
    cluster.hpa["status"] = {}


@fault("HPA_CANNOT_SCALE")
def _(cluster: Cluster) -> None:
    cluster.hpa["status"]["conditions"][0] = turned("AbleToScale", "False", reason="FailedUpdateScale", message="no")


@fault("HPA_SELECTOR_AMBIGUOUS")
def _(cluster: Cluster) -> None:
    _inactive(cluster, "pods by selector app=chat are controlled by multiple HPAs", "AmbiguousSelector")


@fault("HPA_FORBIDDEN")
def _(cluster: Cluster) -> None:
    _inactive(cluster, 'pods.custom.metrics.k8s.io is forbidden: User "system:serviceaccount:kube-system:hpa"')


@fault("HPA_NOT_ACTIVE")
def _(cluster: Cluster) -> None:
    _inactive(cluster, "missing request for cpu", "FailedGetResourceMetric")


@fault("HPA_AT_MAXIMUM")
def _(cluster: Cluster) -> None:
    cluster.hpa["status"]["conditions"][2] = turned("ScalingLimited", age_s=7200, reason="TooManyReplicas")


def tried(cluster: Cluster, stable: float, canary: float, *, strategy: str = "canary") -> None:
    """The target is a Rollout that tries a new version beside the stable one, each with a pod."""
    cluster.hpa["spec"]["scaleTargetRef"] = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "chat"}
    assert cluster.target
    cluster.target["spec"]["strategy"] = {strategy: {}}
    cluster.target["status"] = {"stableRS": "5f6b", "currentPodHash": "7d8c"}
    for name, revision in (("chat-0", "5f6b"), ("chat-1", "7d8c")):
        cluster.pods[name]["metadata"]["labels"]["rollouts-pod-template-hash"] = revision
    values = {"chat-0": stable, "chat-1": canary}
    cluster.metric = metric(values=values, recorded={name: (value,) for name, value in values.items()})


@fault("HPA_AVERAGES_REVISIONS")
def _(cluster: Cluster) -> None:
    tried(cluster, 90, 20)


@fault("HPA_AVERAGES_REVISIONS", "the new one is over the target")
def _(cluster: Cluster) -> None:
    tried(cluster, 20, 90, strategy="blueGreen")


@fault("HPA_FASTER_THAN_METRIC")
def _(cluster: Cluster) -> None:
    cluster.budget["evaluate_s"] = 30.0


@fault("HPA_METRIC_STANDS_STILL")
def _(cluster: Cluster) -> None:
    cluster.target["spec"]["template"]["spec"]["containers"][0]["image"] = "vllm/vllm-openai:v0.11"


@fault("HPA_METRIC_STANDS_STILL", "by its arguments")
def _(cluster: Cluster) -> None:
    container = cluster.target["spec"]["template"]["spec"]["containers"][0]
    container.update(image="registry.example.com/chat:1", command=["sh", "-c"], args=["exec vllm serve chat"])


# By the first column of the table in docs/model.md: images of that server as its documentation has them.
IMAGES = {
    "TensorRT-LLM": ["nvcr.io/nvidia/tensorrt-llm/release:1.2.0"],
    "Triton with TensorRT-LLM": ["nvcr.io/nvidia/tritonserver:25.12-trtllm-python-py3"],
    "NIM for LLMs": ["nvcr.io/nim/meta/llama-3.1-8b-instruct:1.15"],
    "Dynamo": [f"nvcr.io/nvidia/ai-dynamo/{engine}-runtime:0.9" for engine in ("vllm", "sglang", "tensorrtllm")],
    "llama.cpp": ["ghcr.io/ggml-org/llama.cpp:server-cuda"],
}
_TABLE = (ROOT / "docs" / "model.md").read_text().partition("| server | `llm_in_flight` | `llm` | scrape |\n| --- ")[2]
SERVERS = re.findall(r"^\| (\w[^|]*) \|", _TABLE.partition("\n\n")[0], re.MULTILINE)


@pytest.mark.parametrize("server", SERVERS)
def test_each_documented_model_server_is_known_by_its_images(server: str) -> None:
    for image in IMAGES[server]:
        cluster = Cluster()
        assert cluster.target
        cluster.target["spec"]["template"]["spec"]["containers"][0]["image"] = image
        assert ids(cluster.report()) == ["HPA_METRIC_STANDS_STILL"], image


@fault("HPA_MANIFEST_OUTDATED")
def _(cluster: Cluster) -> None:
    applied(cluster, "autoscaling/v2beta2")


def applied(cluster: Cluster, version: str) -> None:
    """By kubectl, which leaves the manifest in an annotation; since then the controller has written the status."""
    text = json.dumps({"apiVersion": version, "kind": "HorizontalPodAutoscaler"})
    cluster.hpa["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": text}
    cluster.hpa["metadata"]["managedFields"] = [
        {"subresource": "status", "apiVersion": "autoscaling/v2", "fieldsV1": {"f:spec": {}, "f:status": {}}},
        {"manager": "labeller", "apiVersion": "autoscaling/v2", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
    ]


def ratio(cluster: Cluster, query: str) -> None:
    """A rule of somebody else makes the metric, and says so."""
    cluster.managed = False
    values = {"chat-0": 0.4, "chat-1": 0.98}
    cluster.metric = metric(name="duty", series="", values=values, recorded={}, sources=(), reporter="")
    cluster.prometheus["rules"] = {SERIES: [cluster.rule], "duty": [{**cluster.rule, "query": query}]}


@fault("HPA_RATIO_AS_PERCENT")
def _(cluster: Cluster) -> None:
    ratio(cluster, "avg by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)")


@fault("HPA_RATIO_AS_PERCENT", "by a rule of the adapter, which adds up the GPUs of a pod")
def _(cluster: Cluster) -> None:
    ratio(cluster, "")
    rule = {"seriesQuery": 'DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""}', "name": {"as": "duty"}}
    configured(cluster, [*ADAPTER_RULES, {**rule, "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})"}])


@fault("HPA_RATIO_AS_PERCENT", "by the field's own name")
def _(cluster: Cluster) -> None:
    ratio(cluster, "")
    cluster.metric = replace(cluster.metric, name="DCGM_FI_PROF_GR_ENGINE_ACTIVE")


@fault("WORKLOAD_MISSING")
def _(cluster: Cluster) -> None:
    cluster.target = None
    del cluster.pods["chat-0"], cluster.pods["chat-1"]
    cluster.metric = metric(expected_objects=frozenset(), values={}, recorded={})
    cluster.hpa["status"]["conditions"][0] = turned("AbleToScale", "False", reason="FailedGetScale", message="no")


@fault("WORKLOAD_AT_ZERO")
def _(cluster: Cluster) -> None:
    cluster.replicas = 0
    del cluster.pods["chat-0"], cluster.pods["chat-1"]
    cluster.metric = metric(expected_objects=frozenset(), values={}, recorded={})
    _inactive(cluster, "scaling is disabled since the replica count of the target is zero", "ScalingDisabled")


@fault("METRIC_BLANK_ON_WHOLE_GPUS")
def _(cluster: Cluster) -> None:
    cluster.metric = metric(name="mig", values={})


@fault("HPA_UP_DISABLED")
def _(cluster: Cluster) -> None:
    cluster.hpa["spec"]["behavior"] = {"scaleUp": {"selectPolicy": "Disabled"}}


def held_down(cluster: Cluster, age_s: float = 7200) -> None:
    """It wants fewer replicas, and its rules forbid that."""
    cluster.hpa["spec"]["behavior"] = {"scaleDown": {"selectPolicy": "Disabled"}}
    cluster.hpa["status"]["conditions"][2] = turned("ScalingLimited", age_s=age_s, reason="ScaleDownLimit")


def scaled_object(cluster: Cluster, **annotations: str) -> None:
    """KEDA's, which owns the HPA. Annotations without their prefix, with _ for -."""
    keda = {f"autoscaling.keda.sh/{name.replace('_', '-')}": text for name, text in annotations.items()}
    trigger = {
        "type": "prometheus",
        "metricType": "Value",
        "metadata": {
            "serverAddress": "http://keda:secret@prometheus.monitoring.svc:9090",
            "query": "avg(DCGM_FI_DEV_GPU_UTIL)",
            "threshold": "60",
            "ignoreNullValues": "false",
        },
    }
    said = [turned("Ready"), turned("Active"), turned("Fallback", "False"), turned("Paused", "False")]
    cluster.scaled_objects = [
        {
            "metadata": {**meta("theirs", "ml"), "annotations": keda},
            "spec": {
                "scaleTargetRef": {"name": "chat"},
                "minReplicaCount": 1,
                "maxReplicaCount": 4,
                "advanced": {"horizontalPodAutoscalerConfig": {"name": "chat"}},
                "triggers": [trigger],
            },
            "status": {"conditions": said},
        }
    ]
    cluster.hpa["metadata"]["ownerReferences"] = [{"kind": "ScaledObject", "name": "theirs"}]
    served_by_keda(cluster)


def served_by_keda(cluster: Cluster) -> None:
    """The HPA's metric is KEDA's, for ScaledObject theirs."""
    selector = {"matchLabels": {"scaledobject.keda.sh/name": "theirs"}}
    metric = {"name": "s0-prometheus", "selector": selector}
    target = {"type": "Value", "value": "60"}
    cluster.hpa["spec"]["metrics"].append({"type": "External", "external": {"metric": metric, "target": target}})


@fault("HPA_UP_DISABLED", "by KEDA")
def _(cluster: Cluster) -> None:
    cluster.hpa["spec"]["behavior"] = {"scaleUp": {"selectPolicy": "Disabled"}}
    scaled_object(cluster, paused_scale_out="true")


@fault("HPA_DOWN_DISABLED")
def _(cluster: Cluster) -> None:
    held_down(cluster)


@fault("HPA_DOWN_DISABLED", "by KEDA")
def _(cluster: Cluster) -> None:
    held_down(cluster)
    scaled_object(cluster, paused_scale_in="true")


@fault("HPA_DOWN_DISABLED", "by its tolerance")
def _(cluster: Cluster) -> None:
    cluster.hpa["spec"]["behavior"] = {"scaleDown": {"tolerance": "1"}}


@fault("HPA_PAUSED")
def _(cluster: Cluster) -> None:
    scaled_object(cluster, paused="true")


@fault("HPA_PAUSED", "at a number of replicas")
def _(cluster: Cluster) -> None:
    scaled_object(cluster, paused_replicas="2")


@fault("WORKLOAD_MAXIMUM_OVER_QUOTA")
def _(cluster: Cluster) -> None:
    hard = {"pods": "100", "requests.nvidia.com/gpu": "3"}
    cluster.quotas = [{"metadata": meta("gpus", "ml"), "spec": {"hard": hard}}]


@fault("HPA_METRIC_OF_ALL_GPUS")
def _(cluster: Cluster) -> None:
    described = {"apiVersion": "v1", "kind": "Service", "name": "dcgm-exporter"}
    metric = {"name": "DCGM_FI_DEV_GPU_UTIL"}
    target = {"type": "Value", "value": "60"}
    entry = {"type": "Object", "object": {"describedObject": described, "metric": metric, "target": target}}
    cluster.hpa["spec"]["metrics"] = [entry]


@fault("HPA_METRIC_WITHOUT_VALUE")
def _(cluster: Cluster) -> None:
    """The controller leaves an empty entry for it in the status."""
    cluster.hpa["spec"]["metrics"].append({"type": "Resource", "resource": {"name": "cpu", "target": {}}})
    gpu = {"type": "Pods", "pods": {"metric": {"name": "gpu"}, "current": {"averageValue": "40"}}}
    cluster.hpa["status"]["currentMetrics"] = [gpu, {"type": ""}]


QUOTA = (
    'pods "chat-5d9c7-" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 2, limited: 2'
)


@fault("WORKLOAD_PODS_NOT_CREATED", "for a quota that is below the maximum")
def _(cluster: Cluster) -> None:
    """As the Deployment says it of its ReplicaSet."""
    cluster.replicas = 3
    failure = turned("ReplicaFailure", "True", 900, reason="FailedCreate", message=QUOTA)
    cluster.target["status"] = {"conditions": [failure]}
    cluster.quotas = [{"metadata": meta("gpus", "ml"), "spec": {"hard": {"requests.nvidia.com/gpu": "1"}}}]


@fault("WORKLOAD_PODS_NOT_CREATED")
def _(cluster: Cluster) -> None:
    """As the Deployment says it of its ReplicaSet."""
    cluster.replicas = 3
    failure = turned("ReplicaFailure", "True", 900, reason="FailedCreate", message=QUOTA)
    cluster.target["status"] = {"conditions": [failure]}


@fault("WORKLOAD_PODS_NOT_CREATED", "of a StatefulSet")
def _(cluster: Cluster) -> None:
    """Which has no such condition."""
    cluster.replicas = 3
    cluster.hpa["spec"]["scaleTargetRef"]["kind"] = "StatefulSet"
    about = {"kind": "StatefulSet", "namespace": "ml", "name": "chat"}
    cluster.events = [warning(about, "FailedCreate", f"create Pod chat-2 in StatefulSet chat failed: {QUOTA}")]


@fault("WORKLOAD_PODS_NOT_CREATED", "of a LeaderWorkerSet")
def _(cluster: Cluster) -> None:
    """Whose leaders a StatefulSet of that name makes."""
    FAULTS["WORKLOAD_PODS_NOT_CREATED of a StatefulSet"](cluster)
    cluster.hpa["spec"]["scaleTargetRef"]["kind"] = "LeaderWorkerSet"


@fault("WORKLOAD_PODS_NOT_CREATED", "since their ReplicaSet is not made")
def _(cluster: Cluster) -> None:
    cluster.replicas = 3
    message = 'Failed to create new replica set "chat-7c9": replicasets.apps "chat-7c9" is forbidden: exceeded quota'
    failure = turned("Progressing", "False", 900, reason="ReplicaSetCreateError", message=message)
    cluster.target["status"] = {"conditions": [failure]}


def rejected(name: str, age_s: float) -> dict[str, Any]:
    """A pod that the kubelet has refused to start."""
    message = "Pod was rejected: Allocate failed due to can't allocate unregistered device nvidia.com/gpu"
    refused = pod(name, "ml", "gpu1", {"app": "chat"}, ready=False, age_s=age_s)
    refused["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
    return refused


@fault("WORKLOAD_PODS_FAIL", "at the kubelet")
def _(cluster: Cluster) -> None:
    cluster.replicas = 3
    cluster.rejected = [rejected("chat-old", OLD), rejected("chat-2", 300), rejected("chat-3", 20)]


@fault("WORKLOAD_PODS_FAIL", "by a readiness gate")
def _(cluster: Cluster) -> None:
    fails(cluster, "chat-2", "", "")
    third = cluster.pods["chat-2"]["status"]
    third["containerStatuses"][0] |= {"ready": True, "state": {}}
    third["conditions"][1] |= {"reason": "ReadinessGatesNotReady", "message": 'gate "target-health" does not exist'}


def fails(cluster: Cluster, name: str, reason: str, message: str) -> None:
    """A third pod that does not start."""
    third = pod(name, "ml", "gpu1", {"app": "chat"}, ready=False, age_s=900)
    third["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": reason, "message": message}}
    cluster.pods[name], cluster.replicas = third, 3


@fault("WORKLOAD_PODS_FAIL")
def _(cluster: Cluster) -> None:
    fails(cluster, "chat-2", "ImagePullBackOff", 'Back-off pulling image "registry.example.com/chat:2"')


@fault("WORKLOAD_PODS_FAIL", "by an event")
def _(cluster: Cluster) -> None:
    """A pod whose volume is not mounted has no word about it in its status."""
    fails(cluster, "chat-2", "ContainerCreating", "")
    about = {"kind": "Pod", "namespace": "ml", "name": "chat-2"}
    text = 'MountVolume.SetUp failed for volume "model": persistentvolumeclaim "model" not found'
    cluster.events = [warning(about, "FailedMount", text)]


@fault("WORKLOAD_PODS_FAIL", "beside one that only starts")
def _(cluster: Cluster) -> None:
    fails(cluster, "chat-3", "ImagePullBackOff", 'Back-off pulling image "registry.example.com/chat:2"')
    cluster.pods["chat-2"] = pod("chat-2", "ml", "gpu1", {"app": "chat"}, ready=False, age_s=20)
    cluster.pods["chat-3"] = cluster.pods.pop("chat-3")
    cluster.replicas = 4


@fault("WORKLOAD_TWO_AUTOSCALERS", "HPAs")
def _(cluster: Cluster) -> None:
    second = hpa()
    second["metadata"] = meta("chat-cpu", "ml")
    cluster.other_hpas = [second]


@fault("WORKLOAD_TWO_AUTOSCALERS", "HPAs that Kubernetes holds back")
def _(cluster: Cluster) -> None:
    FAULTS["WORKLOAD_TWO_AUTOSCALERS HPAs"](cluster)
    FAULTS["HPA_SELECTOR_AMBIGUOUS"](cluster)


@fault("WORKLOAD_TWO_AUTOSCALERS", "KEDA")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    del cluster.hpa["metadata"]["ownerReferences"]


def written_by(manager: str, age_s: float, **more: str) -> dict[str, Any]:
    fields = {"f:spec": {"f:replicas": {}}}
    return {"manager": manager, "operation": "Update", "time": at(age_s), "fieldsV1": fields, **more}


@fault("WORKLOAD_REPLICAS_OWNED")
def _(cluster: Cluster) -> None:
    cluster.hpa["status"]["lastScaleTime"] = at(3600)
    cluster.target["metadata"]["managedFields"] = [
        {**written_by("kube-controller-manager", 60), "fieldsV1": {"f:status": {}}},
        written_by("helm", 1800),
    ]


@fault("WORKLOAD_AT_ZERO", "by hand, after the HPA had scaled")
def _(cluster: Cluster) -> None:
    FAULTS["WORKLOAD_REPLICAS_OWNED"](cluster)
    FAULTS["WORKLOAD_AT_ZERO"](cluster)


@fault("WORKLOAD_PODS_PENDING")
def _(cluster: Cluster) -> None:
    third = pod("chat-2", "ml", "", {"app": "chat"}, ready=False)
    third["status"]["conditions"] = [turned("PodScheduled", "False", 3600, message="0/2: Insufficient nvidia.com/gpu")]
    cluster.pods["chat-2"] = third


@fault("WORKLOAD_NOT_READY")
def _(cluster: Cluster) -> None:
    for name in ("chat-0", "chat-1"):
        crash(cluster.pods[name], "CUDA out of memory")
    cluster.metric = metric(expected_objects=frozenset(), values={}, recorded={})
    _inactive(cluster)


@fault("WORKLOAD_NOT_READY", "a target of type Value")
def _(cluster: Cluster) -> None:
    FAULTS["WORKLOAD_NOT_READY"](cluster)
    described = {"describedObject": {"kind": "Deployment", "name": "chat"}, "metric": {"name": "gpu"}}
    cluster.hpa["spec"]["metrics"] = [{"type": "Object", "object": {**described, "target": {"type": "Value"}}}]


@fault("WORKLOAD_NO_READINESS_PROBE")
def _(cluster: Cluster) -> None:
    del cluster.target["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]


@fault("WORKLOAD_MAXIMUM_OVER_GPUS")
def _(cluster: Cluster) -> None:
    cluster.hpa["spec"]["maxReplicas"] = 9


# ---- what controllers, Prometheus and the kubelet say about themselves


def said(
    kind: str, name: str, reason: str, message: str, *, count: int = 1, began: float = 600, ended: float = 5
) -> Any:
    """An event as controllers write it; name: with its namespace."""
    namespace, _, name = name.partition("/")
    about = {"kind": kind, "namespace": namespace, "name": name}
    times = {"firstTimestamp": at(began), "lastTimestamp": at(ended), "count": count}
    return {"involvedObject": about, "reason": reason, "message": message, **times}


@fault("NODE_CONDITION_BAD")
def _(cluster: Cluster) -> None:
    message = "kubelet has disk pressure"
    cluster.nodes[0]["status"]["conditions"] += [
        turned("MemoryPressure", "False"),
        turned("DiskPressure", age_s=900, reason="KubeletHasDiskPressure", message=message),
    ]


@fault("NODE_CONDITION_BAD", "by an agent of a cloud")
def _(cluster: Cluster) -> None:
    condition = turned(
        "AcceleratedHardwareReady", "False", 900, reason="NvidiaXID79Error", message="GPU fell off the bus"
    )
    cluster.nodes[0]["status"]["conditions"] += [turned("NetworkingReady"), condition]


@fault("MONITOR_REJECTED")
def _(cluster: Cluster) -> None:
    unscraped(cluster)
    reason = "it accesses file system via bearer token file which Prometheus specification prohibits"
    text = f'"monitoring/dcgm-exporter" was rejected due to invalid configuration: endpoints[0]: {reason}'
    cluster.controller_events = [said("ServiceMonitor", "monitoring/dcgm-exporter", "InvalidConfiguration", text)]


@fault("MONITOR_REJECTED", "by its binding")
def _(cluster: Cluster) -> None:
    unscraped(cluster)
    condition = turned("Accepted", "False", 900, reason="InvalidConfiguration", message="scrapeTimeout is too long")
    cluster.service_monitors[0]["status"] = {"bindings": [{"name": "k8s", "conditions": [condition]}]}


@fault("RULE_REJECTED")
def _(cluster: Cluster) -> None:
    FAULTS["RULE_NOT_LOADED"](cluster)
    text = '"monitoring/kubegpu-gpu" was rejected due to invalid configuration: parse error'
    cluster.controller_events = [said("PrometheusRule", "monitoring/kubegpu-gpu", "InvalidConfiguration", text)]


@fault("RULE_FAILS", "the limit of its group")
def _(cluster: Cluster) -> None:
    cluster.rule |= {"health": "err", "lastError": "exceeded limit of 1 with 2 series"}
    cluster.silence("chat-0", "chat-1")


@fault("PROMETHEUS_NOT_RECONCILED")
def _(cluster: Cluster) -> None:
    message = "updating configuration secret failed: secrets is forbidden"
    condition = turned("Reconciled", "False", 900, reason="ReconciliationFailed", message=message)
    cluster.prometheuses[0]["status"] = {"conditions": [turned("Available"), condition]}


@fault("PROMETHEUS_EPHEMERAL")
def _(cluster: Cluster) -> None:
    cluster.nodes.append(node("cp1", gpus=0) | {"metadata": meta("cp1")})
    del cluster.prometheuses[0]["spec"]["storage"]


@fault("PROMETHEUS_RELOAD_FAILS")
def _(cluster: Cluster) -> None:
    cluster.prometheus["runtime"] = {"reloadConfigSuccess": False, "lastConfigTime": at(900), "corruptionCount": 0}


@fault("PROMETHEUS_WAL_CORRUPT")
def _(cluster: Cluster) -> None:
    cluster.prometheus["runtime"] = {"reloadConfigSuccess": True, "corruptionCount": 2, "startTime": at(OLD)}


@fault("PROMETHEUS_STORES_NOTHING")
def _(cluster: Cluster) -> None:
    cluster.prometheus |= {"up": [], "rows": [], "serving": [], "unstored": 12}
    cluster.silence("chat-0", "chat-1")


def limited(cluster: Cluster, error: str) -> None:
    targets = {("dcgm-exporter", f"10.0.0.{n}:9400"): error for n in (1, 2)}
    cluster.prometheus |= {
        "up": [Row({"job": job, "instance": instance}, 0.0) for job, instance in targets],
        "scrape_errors": targets,
        "rows": [],
        "serving": [],
    }
    cluster.silence("chat-0", "chat-1")


@fault("TARGET_DOWN", "a label longer than the limit, with a word of another cause in it")
def _(cluster: Cluster) -> None:
    value = 'label name: tls, value: "certificate", length: 11, limit: 3)'
    limited(cluster, f"label_value_length_limit exceeded (metric: DCGM_FI_DEV_GPU_UTIL, {value}")


@fault("POD_TARGET_DOWN")
def model_server_over_the_limit(cluster: Cluster) -> None:
    labels = {"namespace": "ml", "pod": "chat-0", "job": "ml/chat", "instance": "10.244.0.7:8000"}
    cluster.metric = metric(sources=("vllm:num_requests_running",), reporter="vllm", values={}, recorded={})
    cluster.hpa["status"]["conditions"][1] = turned(
        "ScalingActive", "False", reason="FailedGetPodsMetric", message="none"
    )
    cluster.prometheus["up"] = [*cluster.prometheus["up"], Row(labels, 0.0)]
    cluster.prometheus["scrape_errors"] = {("ml/chat", "10.244.0.7:8000"): "sample limit exceeded"}


@fault("HPA_CONTROLLER_SILENT")
def _(cluster: Cluster) -> None:
    cluster.leases = {"kube-controller-manager": {"spec": {"renewTime": at(900), "holderIdentity": "cp1_4f2a"}}}


@fault("HPA_SCALED_OBJECT_FAILS")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    message = "failed to ensure HPA is correctly created: error parsing prometheus metadata: missing required parameter"
    keda_says(cluster, "Ready", "False", reason="ScaledObjectCheckFailed", message=message)


def keda_says(cluster: Cluster, condition: str, status: str, **more: str) -> None:
    """As KEDA writes it: without a time."""
    conditions = cluster.scaled_objects[0]["status"]["conditions"]
    kept = [entry for entry in conditions if entry["type"] != condition]
    cluster.scaled_objects[0]["status"]["conditions"] = [*kept, {"type": condition, "status": status, **more}]


def trigger_fails(cluster: Cluster, message: str) -> None:
    scaled_object(cluster)
    text = "Triggers defined in ScaledObject are not working correctly"
    keda_says(cluster, "Ready", "False", reason="TriggerError", message=text)
    about = {"kind": "ScaledObject", "namespace": "ml", "name": "theirs"}
    cluster.events = [{**warning(about, "KEDAScalerFailed", message), "eventTime": at(900), "firstTimestamp": None}]


@fault("KEDA_TRIGGER_FAILS", "its query has no result")
def _(cluster: Cluster) -> None:
    trigger_fails(cluster, "prometheus metrics 'prometheus' target may be lost, the result is empty")


@fault("KEDA_TRIGGER_FAILS", "its Prometheus cannot be reached")
def _(cluster: Cluster) -> None:
    trigger_fails(cluster, 'Get "http://prometheus.monitoring.svc:9090/api/v1/query": dial tcp: connection refused')


@fault("KEDA_TRIGGER_FAILS", "as its HPA says")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    message = "unable to get external metric ml/s0-prometheus: error when getting metric values metric:s0-prometheus "
    turns = {"reason": "FailedGetExternalMetric", "message": f"{message}encountered error"}
    cluster.hpa["status"]["conditions"][1] = turned("ScalingActive", "False", 900, **turns)


@fault("KEDA_OPERATOR_DOWN")
def _(cluster: Cluster) -> None:
    keda_pods(cluster)
    crash(cluster.pods["keda-operator-0"], "", reason="OOMKilled")


def keda_pods(cluster: Cluster) -> None:
    """KEDA serves external metrics, beside the adapter."""
    place = {"namespace": "keda", "name": "keda-operator-metrics-apiserver"}
    names = ("keda-operator", place["name"])
    made = {"metadata": meta("v1beta1.external.metrics.k8s.io"), "spec": {"service": place}}
    cluster.other_apis = [
        ApiState("external.metrics.k8s.io", made, owner="KEDA", is_keda=True, listed=frozenset({"externalmetrics"}))
    ]
    for name in names:
        cluster.services.append(service(name, "keda", {"app": name}, 443, "https"))
        cluster.pods[f"{name}-0"] = pod(f"{name}-0", "keda", "cpu1", {"app": name})


@fault("METRICS_API_OF_ANOTHER", "KEDA's HPA")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    group = "external.metrics.k8s.io"
    made = {"metadata": meta(f"v1beta1.{group}")}
    listed = frozenset({"queue"})
    owner = {"owner": "prometheus-adapter", "is_prometheus_adapter": True}
    cluster.other_apis = [ApiState(group, made, listed=listed, **owner)]
    unserved = {"series": "", "values": {}, "recorded": {}, "listed": None}
    expected = frozenset({"chat"})
    cluster.metric = metric(name="s0-prometheus", group=group, type="External", expected_objects=expected, **unserved)


@fault("HPA_SCALED_OBJECT_UNSEEN")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    del cluster.scaled_objects[0]["status"]


@fault("HPA_OF_SCALED_OBJECT_MISSING")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    cluster.scaled_objects[0]["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["name"] = "elsewhere"


@fault("HPA_BEHIND_SCALED_OBJECT", "its maximum")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    cluster.scaled_objects[0]["spec"]["maxReplicaCount"] = 3


@fault("HPA_BEHIND_SCALED_OBJECT", "its target")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    cluster.scaled_objects[0]["spec"]["triggers"][0]["metadata"]["threshold"] = "40.5"


@fault("HPA_BEHIND_SCALED_OBJECT", "its triggers")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    cluster.scaled_objects[0]["spec"]["triggers"] *= 2


@fault("HPA_FALLBACK_ACTIVE")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    text = "At least one trigger is falling back on this scaled object"
    keda_says(cluster, "Fallback", "True", reason="FallbackExists", message=text)
    fallback = {"failureThreshold": 3, "replicas": 4, "behavior": "currentReplicas"}
    cluster.scaled_objects[0]["spec"]["fallback"] = fallback
    cluster.scaled_objects[0]["status"]["health"] = {"s0-prometheus": {"numberOfFailures": 9, "status": "Failing"}}


def queried(cluster: Cluster, query: str) -> None:
    """With KEDA's default type of metric."""
    scaled_object(cluster)
    [trigger] = cluster.scaled_objects[0]["spec"]["triggers"]
    del trigger["metricType"]
    trigger["metadata"]["query"] = query
    target = {"type": "AverageValue", "averageValue": "60"}
    cluster.hpa["spec"]["metrics"][-1]["external"]["target"] = target


@fault("HPA_AVERAGE_DIVIDED")
def _(cluster: Cluster) -> None:
    queried(cluster, "avg by () (DCGM_FI_DEV_GPU_UTIL)")


@fault("HPA_WEBHOOK_UNSERVED")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    keda_pods(cluster)
    rules = [{"apiGroups": ["keda.sh"], "resources": ["scaledobjects"]}]
    called = webhook("keda", "keda-admission-webhooks", rules=rules, failurePolicy="Fail")
    cluster.webhooks.append({**called, "metadata": meta("keda-admission")})


@fault("RULE_NO_POD_STATES")
def _(cluster: Cluster) -> None:
    cluster.metric = metric(backend="keda")


def pod_states(cluster: Cluster, scrape_s: float) -> None:
    cluster.metric = metric(backend="keda")
    names = ("kube_pod_status_phase", "kube_pod_owner")
    cluster.prometheus["pod_states"] = [Row({"__name__": name}) for name in names]
    cluster.prometheus["pod_states_every"] = [Row({"job": "kube-state-metrics", "instance": "10.0.0.9"}, scrape_s)]


@fault("RULE_POD_STATES_SLOW")
def _(cluster: Cluster) -> None:
    pod_states(cluster, 60)


@fault("HPA_EMPTY_IS_ZERO")
def _(cluster: Cluster) -> None:
    """KEDA's default."""
    scaled_object(cluster)
    del cluster.scaled_objects[0]["spec"]["triggers"][0]["metadata"]["ignoreNullValues"]


@fault("HPA_EMPTY_IS_ZERO", "of a workload that is not looked at")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    cluster.scaled_objects[0]["spec"]["scaleTargetRef"] = {"name": "other"}
    cluster.scaled_objects[0]["spec"]["triggers"][0]["metadata"]["ignoreNullValues"] = "true"
    del cluster.hpa["metadata"]["ownerReferences"]


@fault("HPA_WITHOUT_SCALED_OBJECT")
def _(cluster: Cluster) -> None:
    served_by_keda(cluster)


@fault("HPA_SCALED_OBJECT_STUCK")
def _(cluster: Cluster) -> None:
    scaled_object(cluster)
    metadata = cluster.scaled_objects[0]["metadata"]
    metadata |= {"deletionTimestamp": at(900), "finalizers": ["finalizer.keda.sh"]}


@fault("WORKLOAD_PAUSED")
def _(cluster: Cluster) -> None:
    condition = turned("Progressing", "Unknown", 7200, reason="DeploymentPaused", message="Deployment is paused")
    cluster.target["spec"]["paused"] = True
    cluster.target["status"] = {"conditions": [condition]}


@fault("WORKLOAD_PODS_NOT_CREATED", "a rollout that was paused before its first pods")
def _(cluster: Cluster) -> None:
    del cluster.pods["chat-0"], cluster.pods["chat-1"]
    cluster.target["spec"]["paused"] = True
    cluster.metric = metric(expected_objects=frozenset(), values={}, recorded={})


@fault("WORKLOAD_PODS_NOT_CREATED", "those of an update, beside the old ones")
def _(cluster: Cluster) -> None:
    message = 'pods "chat-5f6b" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1'
    condition = turned("ReplicaFailure", age_s=900, reason="FailedCreate", message=message)
    cluster.target["status"] = {"conditions": [condition]}


@fault("WORKLOAD_ROLLOUT_STUCK")
def _(cluster: Cluster) -> None:
    message = 'ReplicaSet "chat-5f6b" has timed out progressing.'
    condition = turned("Progressing", "False", 900, reason="ProgressDeadlineExceeded", message=message)
    cluster.target["status"] = {"conditions": [condition]}


@fault("WORKLOAD_PODS_PENDING", "no scheduler takes them")
def _(cluster: Cluster) -> None:
    unseen = pod("chat-2", "ml", "", {"app": "chat"}, ready=False, age_s=900)
    unseen["spec"] |= {"nodeName": None, "schedulerName": "gpu-packer"}
    unseen["status"] = {"phase": "Pending"}
    cluster.pods["chat-2"] = unseen
    cluster.replicas = 3


def fought(cluster: Cluster, **events: int) -> None:
    """The HPA has scaled so often in each direction."""
    words = {
        "up": "New size: 3; reason: pods metric gpu above target",
        "down": "New size: 1; reason: All metrics below target",
    }
    cluster.controller_events = [
        said("HorizontalPodAutoscaler", "ml/chat", "SuccessfulRescale", words[direction], count=count)
        for direction, count in events.items()
    ]


@fault("WORKLOAD_SCALED_BY_ANOTHER")
def _(cluster: Cluster) -> None:
    fought(cluster, up=12)
    cluster.target["metadata"]["managedFields"] = [written_by("kubectl", 2, subresource="scale")]


@fault("EXPORTER_NOT_ON_NODE", "its controller cannot make it")
def _(cluster: Cluster) -> None:
    del cluster.pods["dcgm-exporter-gpu1"]
    cluster.prometheus["rows"] = rows({"ml/chat-1": "10.0.0.2:9400"})
    cluster.silence("chat-0")
    about = {"kind": "DaemonSet", "namespace": "monitoring", "name": "dcgm-exporter"}
    text = 'pods "dcgm-exporter-x" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes'
    cluster.events = [warning(about, "FailedCreate", f"Error creating: {text}")]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_its_finding_and_nothing_else(name: str) -> None:
    cluster = Cluster()
    FAULTS[name](cluster)
    found = cluster.report()
    assert ids(found) == [name.split()[0]]
    [finding] = found["findings"]
    kind = FINDING_TYPES[finding["id"]]
    well = "partial" if found["unchecked_hops"] else "warning"
    assert found["verdict"] == {"error": "broken", "warning": well}[kind.severity]
    status = next(hop["status"] for hop in found["hops"] if hop["id"] == kind.hop)
    assert status == {"error": "broken", "warning": "warning"}[kind.severity]
    assert all(finding["seen"])
    assert finding["object"]
    assert not re.search(r"\{[a-z]+\}|\{\{", finding["cause"] + finding["fix"])


CAUSES = {
    "TARGET_DOWN a label longer than the limit, with a word of another cause in it": "more or longer labels",
    "POD_TARGET_DOWN": "more samples than sampleLimit",
    "RULE_FAILS the limit of its group": "more series than the limit of its group",
    "NODE_CONDITION_BAD": "disk is nearly full",
    "WORKLOAD_PODS_NOT_CREATED a rollout that was paused before its first pods": "paused before its first pods",
    "WORKLOAD_PODS_NOT_CREATED those of an update, beside the old ones": "ResourceQuota",
    "WORKLOAD_PODS_PENDING no scheduler takes them": "scheduler in the pods' schedulerName does not run",
    "WORKLOAD_SCALED_BY_ANOTHER": "kubectl also scales the workload",
    "EXPORTER_NOT_ON_NODE its controller cannot make it": "Pod Security level",
    "HPA_SCALED_OBJECT_FAILS": "metadata of a trigger is not valid",
    "KEDA_TRIGGER_FAILS its query has no result": "its series does not exist",
    "KEDA_TRIGGER_FAILS its Prometheus cannot be reached": "does not reach http://prometheus.monitoring.svc:9090",
    "KEDA_OPERATOR_DOWN": "runs out of memory",
}


@pytest.mark.parametrize("name", CAUSES)
def test_what_is_said_names_the_cause(name: str) -> None:
    cluster = Cluster()
    FAULTS[name](cluster)
    assert CAUSES[name] in cluster.report()["findings"][0]["cause"]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("sample limit exceeded", "sampleLimit"),
        ("body size limit exceeded", "bodySizeLimit"),
        ("label_limit exceeded (metric: DCGM_FI_DEV_GPU_UTIL, number of labels: 12, limit: 8)", "labels"),
        ("write to WAL: log samples: write /prometheus/wal/00000012: no space left on device", "disk"),
    ],
)
def test_each_limit_of_a_scrape_has_its_own_cause(error: str, cause: str) -> None:
    cluster = Cluster()
    limited(cluster, error)
    [finding] = cluster.report()["findings"]
    assert (finding["id"], cause in finding["cause"]) == ("TARGET_DOWN", True)


@pytest.mark.parametrize(
    ("events", "is_found"),
    [({"up": 3}, True), ({"down": 3}, True), ({"up": 2}, False), ({"up": 9, "down": 8}, False)],
    ids=["up again and again", "down again and again", "twice", "up and down by itself"],
)
def test_only_a_scaling_that_the_hpa_has_not_undone_itself_is_another_s(events: dict[str, int], is_found: bool) -> None:
    cluster = Cluster()
    fought(cluster, **events)
    assert ids(cluster.report()) == ["WORKLOAD_SCALED_BY_ANOTHER"] * is_found


def test_a_fight_that_is_over_is_no_finding() -> None:
    cluster = Cluster()
    fought(cluster, up=12)
    cluster.controller_events[0] |= {"firstTimestamp": at(3000), "lastTimestamp": at(2000)}
    assert ids(cluster.report()) == []


def test_a_rejection_before_the_last_change_is_over() -> None:
    cluster = Cluster()
    FAULTS["MONITOR_REJECTED"](cluster)
    written = {"manager": "kubectl", "time": at(2), "fieldsV1": {}}
    cluster.service_monitors[0]["metadata"]["managedFields"] = [written]
    assert "MONITOR_REJECTED" not in ids(cluster.report(grace=False))


def test_a_lease_that_nobody_renews_is_no_silence_while_hpas_are_written() -> None:
    cluster = Cluster()
    FAULTS["HPA_CONTROLLER_SILENT"](cluster)
    written = {"manager": "k3s", "time": at(5), "subresource": "status", "fieldsV1": {}}
    cluster.hpa["metadata"]["managedFields"] = [written]
    assert ids(cluster.report()) == []


def test_a_stuck_rollout_follows_from_pods_that_do_not_start() -> None:
    cluster = Cluster()
    FAULTS["WORKLOAD_ROLLOUT_STUCK"](cluster)
    fails(cluster, "chat-2", "ImagePullBackOff", "no such image")
    [finding] = cluster.report()["findings"]
    assert finding["id"] == "WORKLOAD_PODS_FAIL"
    assert any("ProgressDeadlineExceeded" in text for text in finding["consequences"])


def test_a_rule_that_waits_for_a_reload_that_fails_says_so() -> None:
    cluster = Cluster()
    FAULTS["RULE_NOT_LOADED"](cluster)
    FAULTS["PROMETHEUS_RELOAD_FAILS"](cluster)
    found = cluster.report()
    assert ids(found) == ["RULE_NOT_LOADED", "PROMETHEUS_RELOAD_FAILS"]
    assert "could not load its last configuration" in found["findings"][0]["cause"]


def test_a_node_that_does_not_report_has_no_other_problem() -> None:
    cluster = Cluster()
    FAULTS["NODE_CONDITION_BAD"](cluster)
    cluster.nodes[0]["status"]["conditions"][0] = turned("Ready", "Unknown", 900, reason="NodeStatusUnknown")
    assert ids(cluster.report()) == ["NODE_NOT_READY"]


def test_each_finding_of_the_catalogue_has_a_fault() -> None:
    assert {name.split()[0] for name in FAULTS} == set(FINDING_TYPES)


@pytest.mark.parametrize("name", FAULTS)
def test_the_doctor_passes_only_what_verify_would_and_says_why_not(name: str) -> None:
    """The reason is a finding of the report, so that the first line is no other than the list below it."""
    cluster = Cluster()
    FAULTS[name](cluster)
    report = health_report(cluster.state(), grace=False)
    unproven = {autoscaler["unproven"] for autoscaler in report["autoscalers"]} - {""}
    assert unproven <= {finding["cause"] for finding in report["findings"]}
    assert not unproven or report["verdict"] in FAILS_ON["error"]


# Of several objects at once, of something that is not there, or of a value that tells no time.
WITHOUT_A_TIME = {
    "CLUSTER_MISSING",
    "CLUSTER_UNREACHABLE",
    "CUDA_FAILED",
    "DEMAND_DISAGREES",
    "DEMAND_WITHOUT_COST",
    "DEVICE_CLASS_MISSING",
    "DRIVER_BROKEN",
    "DRIVER_NEEDS_REBOOT",
    "DRIVER_UVM_MISSING",
    "EXPORTER_IMPOSSIBLE_VALUES",
    "EXPORTER_LOSES_A_GPU",
    "EXPORTER_RESOURCE_NAMES",
    "FABRIC_NOT_COMPLETED",
    "GPUS_OFFERED_TWICE",
    "GPUS_WITHOUT_REQUEST",
    "GPU_MISSING",
    "GPU_ROWS_FROM_ELSEWHERE",
    "HPA_FALLBACK_ACTIVE",
    "HPA_FASTER_THAN_METRIC",
    "HPA_METRIC_STANDS_STILL",
    "HPA_RATIO_AS_PERCENT",
    "HPA_WEBHOOK_UNSERVED",
    "METRICS_API_MISSING",
    "METRIC_BLANK_ON_MIG",
    "METRIC_BLANK_ON_WHOLE_GPUS",
    "METRIC_IN_CAPITALS",
    "MONITOR_MISSING",
    "PROFILING_FROZEN",
    "PROMETHEUS_EPHEMERAL",
    "PROMETHEUS_MISSING",
    "PROMETHEUS_RELOAD_FAILS",
    "PROMETHEUS_WAL_CORRUPT",
    "REJECTED_BELOW_TARGET",
    "RIGHTS_MISSING",
    "RULE_JOINS_POD_ALONE",
    "RULE_JOINS_WRONG_POD",
    "RULE_LABEL_RENAMED",
    "RULE_MISSING",
    "RULE_OUTSIDE_NAMESPACE",
    "RULE_POD_LABELS_MISSING",
    "RULE_POD_STATES_SLOW",
    "RULE_RATE_OF_GAUGE",
    "RULE_TOO_SLOW",
    "RULE_TWICE",
    "RULE_WEBHOOK_UNSERVED",
    "RULE_WINDOW_TOO_SHORT",
    "SATURATED_BELOW_TARGET",
    "SERIES_WITHOUT_NAMESPACE",
    "SERVER_NOT_EXAMINED",
    "SERVER_UNREACHABLE",
    "WORKLOAD_MAXIMUM_OVER_GPUS",
    "WORKLOAD_TWO_AUTOSCALERS",
}


def test_each_finding_that_has_a_time_says_since_when() -> None:
    without = set()
    for break_it in FAULTS.values():
        cluster = Cluster()
        break_it(cluster)
        without |= {finding["id"] for finding in cluster.report()["findings"] if finding["since"] is None}
    assert without == WITHOUT_A_TIME


def test_what_may_be_meant_is_no_finding() -> None:
    """A fixed number, replicas that nobody wants fewer of, a pause that is over, a quota of other pods."""
    cluster = Cluster()
    cluster.hpa["spec"] |= {"minReplicas": 4, "behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}
    hard = {"requests.nvidia.com/gpu": "1"}
    cluster.quotas = [
        {"metadata": meta("others", "embed"), "spec": {"hard": hard}},
        {"metadata": meta("best-effort", "ml"), "spec": {"hard": hard, "scopes": ["BestEffort"]}},
        {"metadata": meta("volumes", "ml"), "spec": {"hard": {"persistentvolumeclaims": "0", "requests.cpu": "4"}}},
    ]
    scaled_object(cluster, paused="false")
    cluster.scaled_objects[0]["spec"]["minReplicaCount"] = 4
    cluster.hpa["status"]["conditions"][2] = turned("ScalingLimited", age_s=7200, reason="TooFewReplicas")
    assert ids(cluster.report(grace=False)) == []


def test_what_keda_does_as_it_should_is_no_finding() -> None:
    """A fallback to the current replicas, totals of a queue and of a recorded workload, a pod that is scraped soon."""
    cluster = Cluster()
    queried(cluster, "sum(gateway_queue) or vector(0)")
    spec = cluster.scaled_objects[0]["spec"]
    spec["fallback"] = {"failureThreshold": 3, "replicas": 2, "behavior": "currentReplicas"}
    spec |= {"minReplicaCount": 0, "pollingInterval": 5}
    pod_states(cluster, 30)
    keda_pods(cluster)
    assert ids(cluster.report(grace=False)) == []
    spec["triggers"][0]["metadata"]["query"] = "max(namespace_workload:gpu_decision:desired_replicas)"
    assert ids(cluster.report(grace=False)) == []


def test_an_event_about_a_trigger_counts_from_the_last_change_on() -> None:
    """The message of the trigger before is no reason, and neither is a warning about a Deployment of that name."""
    cluster = Cluster()
    trigger_fails(cluster, "no such host")
    [finding] = cluster.report()["findings"]
    assert finding["seen"][0].endswith("; no such host")
    cluster.scaled_objects[0]["metadata"]["managedFields"] = [{"time": at(300)}]
    cluster.events[0] |= {"lastTimestamp": at(600)}
    [finding] = cluster.report(grace=False)["findings"]
    assert finding["seen"] == [
        "Ready is False, TriggerError: Triggers defined in ScaledObject are not working correctly"
    ]
    cluster.events[0] |= {"lastTimestamp": at(60), "involvedObject": {"kind": "Deployment", **meta("theirs", "ml")}}
    [finding] = cluster.report(grace=False)["findings"]
    assert "no such host" not in finding["seen"][0]


@pytest.mark.parametrize("name", ["HPA_WITHOUT_SCALED_OBJECT", "HPA_SCALED_OBJECT_FAILS", "HPA_BEHIND_SCALED_OBJECT"])
def test_what_keda_does_not_process_explains_a_metric_without_a_value(name: str) -> None:
    cluster = Cluster()
    next(break_it for fault_name, break_it in FAULTS.items() if fault_name.split()[0] == name)(cluster)
    keda_pods(cluster)
    group, expected = "external.metrics.k8s.io", frozenset({"chat"})
    unserved = {"series": "", "values": {}, "recorded": {}, "listed": None}
    cluster.metric = metric(name="s0-prometheus", group=group, type="External", expected_objects=expected, **unserved)
    [finding] = cluster.report()["findings"]
    assert finding["id"] == name
    assert "no s0-prometheus for chat" in finding["consequences"][0]


def test_a_fallback_follows_from_its_trigger() -> None:
    cluster = Cluster()
    FAULTS["HPA_FALLBACK_ACTIVE"](cluster)
    kept = cluster.scaled_objects
    trigger_fails(cluster, "prometheus query api returned error. status: 503")
    cluster.hpa["spec"]["metrics"].pop()
    cluster.scaled_objects = kept
    [finding] = cluster.report()["findings"]
    assert finding["id"] == "KEDA_TRIGGER_FAILS"
    assert "s0-prometheus failed 9 times" in finding["consequences"][0]


def test_what_is_shown_of_an_address_has_no_login() -> None:
    cluster = Cluster()
    trigger_fails(cluster, "context deadline exceeded")
    assert "secret" not in json.dumps(cluster.report()["findings"])


def test_an_hpa_that_wants_fewer_has_half_an_hour() -> None:
    cluster = Cluster()
    held_down(cluster, age_s=1700)
    assert ids(cluster.report()) == []
    assert ids(cluster.report(grace=False)) == ["HPA_DOWN_DISABLED"]


def test_an_hpa_that_can_only_have_one_number_is_said_to() -> None:
    cluster = Cluster()
    FAULTS["HPA_AT_MAXIMUM"](cluster)
    cluster.hpa["spec"]["minReplicas"] = 4
    [finding] = cluster.report()["findings"]
    assert finding["seen"] == ["ScalingLimited for 120 minutes at max_replicas and min_replicas 4"]
    assert "can never scale" in finding["cause"]


@pytest.mark.parametrize(
    ("scope", "query", "expected"),
    [
        (Scope(), "avg(DCGM_FI_DEV_GPU_UTIL)", ["HPA_PAUSED"]),
        (Scope("ml"), "avg(DCGM_FI_DEV_GPU_UTIL)", ["HPA_PAUSED"]),
        (Scope("embed"), "avg(DCGM_FI_DEV_GPU_UTIL)", []),
        (Scope(), "sum(rate(http_requests_total[1m]))", []),
    ],
)
def test_a_pause_is_seen_where_its_hpa_is_gone(scope: Scope, query: str, expected: list[str]) -> None:
    """As KEDA leaves it: it removes the HPA."""
    cluster = Cluster()
    scaled_object(cluster, paused="true")
    cluster.scaled_objects[0]["spec"]["triggers"][0]["metadata"]["query"] = query
    state = replace(cluster.state(), autoscalers=[], hpas=[], scope=scope)
    found = health_report(state)
    assert ids(found) == expected
    if expected:
        assert "kubectl -n ml annotate scaledobject theirs " in found["findings"][0]["fix"]


@pytest.mark.parametrize("group", ["metrics.k8s.io", "external.metrics.k8s.io", "custom.metrics.k8s.io"])
def test_the_right_that_the_controller_lacks_is_that_of_the_api_which_it_names(group: str) -> None:
    """Of several metrics it tells of the first that fails."""
    cluster = Cluster()
    cannot = f'User "system:serviceaccount:kube-system:hpa" cannot list resource "pods" in API group "{group}"'
    message = f"the HPA was unable to compute the replica count: pods.{group} is forbidden: {cannot}"
    cluster.hpa["status"]["conditions"][1] = turned("ScalingActive", "False", 900, reason="Failed", message=message)
    [finding] = cluster.report()["findings"]
    assert finding["id"] == "HPA_FORBIDDEN"
    assert f"get and list on {group};" in finding["fix"]


def test_a_pod_without_a_node_hides_no_pod_that_fails() -> None:
    """The one that holds the GPU crashes, and the other waits for a GPU: a node more would mend nothing."""
    cluster = Cluster()
    FAULTS["WORKLOAD_NOT_READY"](cluster)
    message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    cluster.pods["chat-1"] = pod("chat-1", "ml", "", {"app": "chat"}, ready=False)
    cluster.pods["chat-1"]["status"]["conditions"] = [turned("PodScheduled", "False", 60, message=message)]
    [finding] = cluster.report()["findings"]
    assert (finding["id"], finding["cause"]) == ("WORKLOAD_NOT_READY", "a container exits by itself")
    assert ids(cluster.report(grace=False)) == ["WORKLOAD_NOT_READY", "WORKLOAD_PODS_PENDING"]


def test_a_readiness_gate_is_quoted() -> None:
    cluster = Cluster()
    FAULTS["WORKLOAD_PODS_FAIL by a readiness gate"](cluster)
    [finding] = cluster.report()["findings"]
    assert 'ReadinessGatesNotReady: gate "target-health" does not exist' in finding["seen"][0]


def test_the_pod_that_fails_is_named_and_not_one_that_starts() -> None:
    cluster = Cluster()
    FAULTS["WORKLOAD_PODS_FAIL beside one that only starts"](cluster)
    [finding] = cluster.report(grace=False)["findings"]
    assert finding["seen"][0].startswith("2 of 4 pods are not ready: ml/chat-3: ImagePullBackOff")
    del cluster.pods["chat-0"], cluster.pods["chat-1"]
    [finding] = cluster.report(grace=False)["findings"]
    assert finding["seen"][0].startswith("0 of 2 pods are ready: ml/chat-3: ImagePullBackOff")


@pytest.mark.parametrize("is_ready", [True, False])
def test_the_log_is_that_of_the_pod_that_fails(is_ready: bool) -> None:
    """kubectl takes the log of a ready pod of a Deployment, and knows no pods of a Rollout."""
    cluster = Cluster()
    crash(cluster.pods["chat-1"], "CUDA out of memory")
    cluster.pods["chat-0"]["status"]["conditions"][1] = turned("Ready", str(is_ready))
    cluster.silence("chat-1", expected_objects=frozenset({"chat-0"} if is_ready else ()))
    [finding] = cluster.report(grace=False)["findings"]
    assert finding["id"] == ("WORKLOAD_PODS_FAIL" if is_ready else "WORKLOAD_NOT_READY")
    assert finding["fix"] == "kubectl -n ml logs chat-1 --previous"


def test_a_rollout_s_pods_are_told_apart() -> None:
    cluster = Cluster()
    tried(cluster, 90, 20)
    found = cluster.report()
    [finding] = found["findings"]
    assert finding["seen"] == [
        "gpu: 1 stable pods at 90, 1 canary pods at 20; 55 on average, and the target is 60",
    ]
    [autoscaler] = found["autoscalers"]
    assert autoscaler["revisions"] == {"stable": ["chat-0"], "canary": ["chat-1"]}


@pytest.mark.parametrize(("stable", "canary"), [(62, 20), (90, 60)])
def test_revisions_within_the_target_are_fine_and_where_the_average_is_over_the_hpa_acts(
    stable: float, canary: float
) -> None:
    cluster = Cluster()
    tried(cluster, stable, canary)
    assert ids(cluster.report()) == []


@pytest.mark.parametrize(("tolerance", "findings"), [("500m", []), ("0", ["HPA_AVERAGES_REVISIONS"])])
def test_a_revision_is_over_the_target_by_the_tolerance_of_the_hpa(tolerance: str, findings: list[str]) -> None:
    cluster = Cluster()
    tried(cluster, 62 if findings else 80, 20)
    cluster.hpa["spec"]["behavior"] = {"scaleUp": {"tolerance": tolerance}}
    assert ids(cluster.report()) == findings


def test_a_rollout_of_one_revision_has_nothing_to_tell_apart() -> None:
    cluster = Cluster()
    tried(cluster, 90, 20)
    assert cluster.target
    cluster.target["status"]["currentPodHash"] = "5f6b"
    assert ids(cluster.report()) == []
    assert "revisions" not in cluster.report()["autoscalers"][0]


def test_pods_that_a_kubelet_refused_are_forgotten_once_others_run() -> None:
    cluster = Cluster()
    cluster.rejected = [rejected("chat-2", 300)]
    assert ids(cluster.report()) == []


def test_what_follows_is_said_as_a_consequence() -> None:
    cluster = Cluster()
    FAULTS["RULE_NOT_SELECTED"](cluster)
    found = cluster.report()
    [finding] = found["findings"]
    assert [consequence.split(":")[0] for consequence in finding["consequences"]] == [
        "Metrics API",
        "Metric of each pod",
        "HorizontalPodAutoscaler",
    ]
    statuses = {hop["id"]: hop["status"] for hop in found["hops"]}
    assert statuses["rule"] == "broken"
    assert {statuses[hop] for hop in ("metrics_api", "metric", "hpa")} == {"consequence"}
    assert statuses["workload"] == "ok"


def test_a_fault_of_one_node_does_not_explain_another() -> None:
    cluster = Cluster()
    FAULTS["EXPORTER_NOT_ON_NODE"](cluster)
    cluster.prometheus["rows"] = rows({"ml/embed-0": "10.0.0.2:9400"})
    cluster.silence("chat-0", "chat-1")
    state = cluster.state()
    second = replace(state.autoscalers[0], hpa=hpa("embed"), pods=[pod("embed-1", "ml", "gpu2", {})])
    found = health_report(replace(state, autoscalers=[*state.autoscalers, second]))
    assert ids(found)[:2] == ["EXPORTER_NOT_ON_NODE", "POD_WITHOUT_SERIES"]
    assert "embed-1 on node gpu2" in found["findings"][1]["seen"][0]


def test_a_warning_explains_nothing() -> None:
    cluster = Cluster()
    FAULTS["GPU_UNHEALTHY"](cluster)
    FAULTS["METRIC_WITHOUT_VALUE"](cluster)
    assert ids(cluster.report()) == ["METRIC_WITHOUT_VALUE", "GPU_UNHEALTHY"]


def test_a_selector_that_is_not_set_selects_nothing() -> None:
    cluster = Cluster()
    FAULTS["RULE_NOT_LOADED"](cluster)
    del cluster.prometheuses[0]["spec"]["ruleSelector"]
    [finding] = cluster.report()["findings"]
    assert finding["id"] == "RULE_NOT_SELECTED"
    assert "ruleSelector of Prometheus monitoring/k8s is not set" in finding["seen"][0]


def test_pods_that_find_no_node_are_no_consequence_of_a_rule() -> None:
    cluster = Cluster()
    FAULTS["RULE_MISSING"](cluster)
    FAULTS["WORKLOAD_PODS_PENDING"](cluster)
    assert ids(cluster.report()) == ["RULE_MISSING", "WORKLOAD_PODS_PENDING"]


def test_faults_that_are_alike_are_one_finding() -> None:
    cluster = Cluster()
    for gpu_node in cluster.nodes:
        gpu_node["status"]["conditions"] = [turned("Ready", "Unknown", 900, reason="NodeStatusUnknown")]
    [finding] = cluster.report()["findings"]
    assert finding["object"] == "node gpu1, node gpu2"


def test_a_node_of_another_operator_is_found_by_its_labels() -> None:
    cluster = Cluster()
    cluster.nodes.append(node("gpu3", 0, **{"feature.node.kubernetes.io/pci-10de.present": "true"}))
    cluster.nodes[2]["metadata"]["labels"].pop("nvidia.com/gpu.present")
    found = cluster.report()
    assert ids(found) == ["DEVICE_PLUGIN_NOT_ON_NODE"]
    assert "nvidia.com/gpu.present=true" in found["findings"][0]["seen"][0]


def test_services_and_pods_of_others_are_left_alone() -> None:
    cluster = Cluster()
    cluster.services.append(service("web", "ml", {"app": "web"}, 80, "http"))
    cluster.pods["stray"] = pod("stray", "nvidia-device-plugin", "cpu1", PLUGIN, ready=False)
    assert ids(cluster.report()) == []


def test_without_a_ready_pod_a_value_goes_to_the_minimum() -> None:
    cluster = Cluster()
    FAULTS["WORKLOAD_NOT_READY a target of type Value"](cluster)
    assert "so it goes to the minimum of 1" in cluster.report()["findings"][0]["seen"][0]
