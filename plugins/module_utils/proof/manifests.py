# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The temporary objects of a proof: a CUDA pod per node, and a workload that scales."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..autoscaling.spec import ADAPTER
from ..kube.labels import NAME_LABEL, marked
from ..kube.objects import Manifest
from ..kube.visible_devices import VARIABLE
from .nodes import WHOLE, ProofNode

PART = "proof"
WORKLOAD = "proof"
SCRIPTS = "scripts"
PRIORITY = "kubegpu-proof"
# Below every workload, and below the cutoff of the cluster autoscaler (-10), so that no node is added.
PRIORITY_VALUE = -1000
HOSTNAME = "kubernetes.io/hostname"
PORT = 8000
# Target of the workload's autoscaler, percent of a GPU; its load keeps one busy all the time.
TARGET_VALUE = 50
# More would occupy GPUs without proving more.
MOST_REPLICAS = 2


@dataclass(frozen=True)
class Options:
    """scripts: content by file name; `cuda_proof.py` and `sample_service.py` are started.

    backend: metrics backend of the autoscaler. conformance: also prove what conformance needs besides.
    """

    inventory: str
    namespace: str
    image: str
    scripts: Mapping[str, str]
    runtime_class: str = ""
    tolerations: Sequence[Mapping[str, Any]] = ()
    timeout_s: int = 300
    backend: str = ADAPTER
    conformance: bool = False


def namespace(options: Options) -> Manifest:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return _marked(options, "v1", "Namespace", options.namespace, labels=labels, placed=False)


def priority_class(options: Options) -> Manifest:
    """Pods of the proof preempt nothing, and every other pod can preempt them."""
    made = _marked(options, "scheduling.k8s.io/v1", "PriorityClass", PRIORITY, placed=False)
    return {
        **made,
        "value": PRIORITY_VALUE,
        "preemptionPolicy": "Never",
        "description": "Pods of kubegpu.autoscale's proof",
    }


def scripts(options: Options) -> Manifest:
    return {**_marked(options, "v1", "ConfigMap", SCRIPTS), "data": dict(options.scripts)}


def cuda_pod_name(node: str) -> str:
    return f"cuda-{hashlib.sha1(node.encode(), usedforsecurity=False).hexdigest()[:12]}"


def cuda_pods(options: Options, node: ProofNode) -> list[Manifest]:
    """Pods that request all free GPUs of a node; two if it has several, which get different ones."""
    counts = [node.asked] if node.asked < 2 else [node.asked - 1, 1]
    name = cuda_pod_name(node.name)
    return [
        _pod_on(options, node, f"{name}{'-2' * number}", {node.resource: count}) for number, count in enumerate(counts)
    ]


def idle_pods(options: Options, node: ProofNode) -> list[Manifest]:
    """Pods that request no GPU, but name all GPUs of the node in the variable that NVIDIA's images set.

    One has the RuntimeClass, the other has none.
    """
    name = cuda_pod_name(node.name)
    plain = _pod_on(replace(options, runtime_class=""), node, f"{name}-idle", {})
    classed = [_pod_on(options, node, f"{name}-idle-class", {})] if options.runtime_class else []
    return [plain, *classed]


def _pod_on(options: Options, node: ProofNode, name: str, gpus: Mapping[str, int]) -> Manifest:
    """It tolerates all taints of its node, which may also be cordoned for a driver upgrade."""
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    container: dict[str, Any] = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    if not gpus:
        container["env"] = [{"name": VARIABLE, "value": "all"}]
    spec = {
        **_pod(options, "cuda_proof.py", [], gpus, container),
        "restartPolicy": "Never",
        "activeDeadlineSeconds": options.timeout_s,
        "tolerations": [{"operator": "Exists"}],
        "affinity": _affinity({"matchFields": [field]}),
    }
    return {**_marked(options, "v1", "Pod", name, labels={NAME_LABEL: "cuda"}), "spec": spec}


def workload(options: Options, nodes: Sequence[ProofNode]) -> Manifest:
    """A service whose requests keep its GPU busy, on one of the proven nodes."""
    hosts = {"key": HOSTNAME, "operator": "In", "values": [node.name for node in nodes]}
    container = {
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1},
    }
    spec = {
        **_pod(options, "sample_service.py", ["--queue", "8"], {WHOLE: 1}, container),
        "tolerations": list(options.tolerations),
        "affinity": _affinity({"matchExpressions": [hosts]}),
    }
    labels = {NAME_LABEL: WORKLOAD}
    template = {"metadata": {"labels": labels}, "spec": spec}
    made = _marked(options, "apps/v1", "Deployment", WORKLOAD, labels=labels)
    return {**made, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def pod_monitor(options: Options, labels: Mapping[str, str]) -> Manifest:
    """Of the workload. labels: those by which Prometheus selects it."""
    made = _marked(options, "monitoring.coreos.com/v1", "PodMonitor", WORKLOAD, labels=labels)
    endpoint = {"port": "http", "path": "/metrics", "interval": "2s"}
    return {**made, "spec": {"selector": {"matchLabels": {NAME_LABEL: WORKLOAD}}, "podMetricsEndpoints": [endpoint]}}


def autoscaler(options: Options, gpus: int) -> dict[str, Any]:
    """With one GPU, the maximum prevents the HPA from scaling up: a dry decision.

    No window, so that the HPA soon wants one replica again after a starting program kept its GPU busy.
    """
    return {
        "namespace": options.namespace,
        "target": {"kind": "Deployment", "name": WORKLOAD},
        "metric": "gpu",
        "target_value": TARGET_VALUE,
        "min_replicas": 1,
        "max_replicas": min(gpus, MOST_REPLICAS),
        "dead_time_seconds": 30,
        "scale_down": {"stabilization_window_seconds": 0},
        "backend": options.backend,
    }


def _pod(
    options: Options,
    script: str,
    arguments: Sequence[str],
    gpus: Mapping[str, int],
    container: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Satisfies the strictest Pod Security Standard."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "priorityClassName": PRIORITY,
        **({"runtimeClassName": options.runtime_class} if options.runtime_class else {}),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "runAsGroup": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": SCRIPTS, "configMap": {"name": SCRIPTS}}],
        "containers": [
            {
                "name": script.removesuffix(".py").replace("_", "-"),
                "image": options.image,
                "command": ["python3", "-B", f"/{SCRIPTS}/{script}"],
                "args": list(arguments),
                "volumeMounts": [{"name": SCRIPTS, "mountPath": f"/{SCRIPTS}", "readOnly": True}],
                "resources": {
                    "requests": {"cpu": "50m", "memory": "64Mi"},
                    "limits": {"memory": "512Mi", **{name: str(count) for name, count in gpus.items()}},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                **(container or {}),
            }
        ],
    }


def _affinity(term: Mapping[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _marked(
    options: Options,
    version: str,
    kind: str,
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    placed: bool = True,
) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": options.namespace} if placed else {}), "labels": dict(labels or {})}
    return marked({"apiVersion": version, "kind": kind, "metadata": metadata}, options.inventory, PART)
