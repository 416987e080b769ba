"""gpu_proof: what is new is proven, recorded and not proven again, and nothing of it stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.conformance import conformance_files
from control_plane import ControlPlane, eventually
from gpu_kubelet import NAMESPACE, Kubelet, gone, kubelet, message
from kubernetes import client
from metric_chain import PROOF_S, MetricChain
from workloads import Workloads

Run = Callable[..., dict[str, Any]]

RECORD = "kubegpu-proof"
PENDING_S = 60  # to wait for pods, in a run in which one never becomes ready
SCRIPTS = {"cuda.py": "", "cuda_proof.py": "", "sample_service.py": ""}
# What the API server wants of a node's description.
_NODE_INFO = (
    *("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion"),
    *("operatingSystem", "osImage", "systemUUID"),
)
# Of the temporary objects of a proof.
LABELS = {
    "app.kubernetes.io/managed-by": "kubegpu.autoscale",
    "app.kubernetes.io/part-of": "proof",
    "kubegpu.autoscale/inventory": "default",
}
NO_UVM = {"text": "cuInit: CUDA_ERROR_UNKNOWN", "function": "cuInit", "code": 999}


class Cluster:
    """Nodes with GPUs, and what a proof has left."""

    def __init__(self, kube: client.ApiClient, kubelet: Kubelet, run: Run) -> None:
        self.kubelet = kubelet
        self._core, self._kube, self._run = client.CoreV1Api(kube), kube, run

    def node(self, name: str, gpus: int, *, leaves: str = "") -> None:
        self._core.create_node({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        self._core.patch_node(name, {"spec": {"taints": []}})
        info = dict.fromkeys(_NODE_INFO, "v1")
        status = {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {**info, "machineID": f"machine-{name}"},
        }
        self._core.patch_node_status(name, {"status": status})
        self.kubelet.messages[name] = leaves or message(gpus)

    def reboot(self, name: str) -> None:
        self._core.patch_node_status(name, {"status": {"nodeInfo": {"bootID": "another"}}})

    def withdraw(self, name: str) -> None:
        """Offer no GPU, as a kubelet without a device plugin."""
        self._core.patch_node_status(name, {"status": {"allocatable": {"nvidia.com/gpu": "0"}}})

    def prove(self, *, check: bool = False, **options: Any) -> dict[str, Any]:
        options = {"image": "python", "scripts": SCRIPTS, "runtime_class": "", "wait_timeout": PROOF_S, **options}
        return self._run("gpu_proof", check=check, **options)

    def cuda_failures(self) -> dict[str, tuple[str, str]]:
        """What the doctor has seen of nodes whose last proof failed, and the cause."""
        found = self._run("gpu_doctor", grace=False)["result"]["findings"]
        return {entry["object"]: (entry["seen"][0], entry["cause"]) for entry in found if entry["id"] == "CUDA_FAILED"}

    def record(self) -> dict[str, Any]:
        data = self._core.read_namespaced_config_map(RECORD, "kube-system").data or {}
        return {name: json.loads(text) for name, text in data.items()}

    def left(self) -> list[str]:
        """What is there of a proof beside its record."""
        scheduling, coordination = client.SchedulingV1Api(self._kube), client.CoordinationV1Api(self._kube)
        rules = client.CustomObjectsApi(self._kube).list_cluster_custom_object(
            "monitoring.coreos.com", "v1", "prometheusrules"
        )["items"]
        found = {
            "namespace": lambda: self._core.read_namespace(NAMESPACE),
            "priority class": lambda: scheduling.read_priority_class("kubegpu-proof"),
            "lease": lambda: coordination.read_namespaced_lease(RECORD, "kube-system"),
        }
        return [name for name, read in found.items() if not gone(read)] + [rule["metadata"]["name"] for rule in rules]

    def forget(self) -> None:
        for remove in (
            lambda: self._core.delete_namespaced_config_map(RECORD, "kube-system"),
            lambda: self._core.delete_namespace(NAMESPACE),
            lambda: client.SchedulingV1Api(self._kube).delete_priority_class("kubegpu-proof"),
        ):
            gone(remove)
        eventually(lambda: gone(lambda: self._core.read_namespace(NAMESPACE)), "the namespace is gone", PROOF_S)


def reasons(done: dict[str, Any]) -> dict[str, str]:
    return {row["node"]: row["reason"] for row in done["result"]["nodes"]}


@pytest.fixture
def cluster(
    plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain, workloads: Workloads, run: Run
) -> Iterator[Cluster]:
    with kubelet(*plane, chain) as found:
        cluster = Cluster(plane[1], found, run)
        yield cluster
        cluster.forget()


def test_a_first_run_proves_and_a_second_one_changes_nothing(cluster: Cluster) -> None:
    cluster.node("gpu1", 2)
    first = cluster.prove()
    assert not first.get("failed"), first
    assert first["changed"]
    (row,) = first["result"]["nodes"]
    assert (row["status"], row["gpus"], row["of"]) == ("proven", 2, 2)
    hops = [hop["hop"] for hop in first["result"]["chain"]["hops"]]
    assert hops == ["pod", "rule", "metrics_api", "hpa", "decision", "release"]
    decision = first["result"]["chain"]["decision"]
    assert (decision["before"], decision["after"], decision["dry"]) == (1, 2, False)
    assert decision["value"] > decision["target_value"]
    assert 0 < decision["down_s"] < 20
    assert cluster.left() == []

    second = cluster.prove()
    assert not second["changed"]
    assert [row["status"] for row in second["result"]["nodes"]] == ["kept"]
    assert second["result"]["chain"]["status"] == "kept"
    assert cluster.kubelet.cuda == ["gpu1"]


def test_a_reboot_and_a_device_plugin_that_goes_are_proven_again(cluster: Cluster) -> None:
    cluster.node("gpu1", 2)
    cluster.node("gpu2", 2)
    assert reasons(cluster.prove(chain=False)) == {"gpu1": "new", "gpu2": "new"}
    cluster.reboot("gpu1")
    again = cluster.prove(chain=False)
    assert reasons(again)["gpu1"] == "boot v1 -> another"
    assert {row["node"]: row["status"] for row in again["result"]["nodes"]} == {"gpu1": "proven", "gpu2": "kept"}
    cluster.withdraw("gpu2")
    failed = cluster.prove(chain=False)
    assert failed["failed"]
    assert "node gpu2 offers 0 of 2 GPUs (the last proof)" in failed["msg"]
    assert {row["node"]: row["status"] for row in failed["result"]["nodes"]} == {"gpu1": "kept", "gpu2": "failed"}


def test_one_free_gpu_gives_a_dry_decision(cluster: Cluster) -> None:
    cluster.node("gpu1", 1)
    result = cluster.prove()["result"]["chain"]
    assert (result["status"], result["decision"]["dry"], result["decision"]["after"]) == ("proven", True, 2)


def test_conformance_has_the_series_of_the_gpus_and_says_what_is_not_scraped(cluster: Cluster) -> None:
    """No PodMonitor is served here: that is no failure of the proof, and nothing is claimed."""
    cluster.node("gpu1", 2)
    done = cluster.prove(conformance=True)
    assert not done.get("failed"), done
    metrics = done["result"]["chain"]["metrics"]
    assert metrics["series"]["DCGM_FI_DEV_GPU_UTIL"] == {"gpu1": 2}
    assert metrics["served"] == 0
    assert "the PodMonitor was not created" in metrics["unscraped"]
    product = yaml.safe_load(conformance_files(done["result"])["PRODUCT.yaml"])
    entries = {entry["id"]: entry for entries in product["spec"].values() for entry in entries}
    assert entries["pod_autoscaling"]["status"] == "Implemented"
    assert entries["ai_service_metrics"]["status"] == ""
    decision = done["result"]["chain"]["decision"]
    assert (decision["ready"], decision["left"]) == (2, 1)
    assert cluster.left() == []


def test_conformance_shows_no_scaling_without_a_second_ready_pod(cluster: Cluster) -> None:
    """The second pod stays pending: the HPA's decision alone is no evidence."""
    cluster.node("gpu1", 2)
    cluster.kubelet.starts = 1
    done = cluster.prove(conformance=True, wait_timeout=PENDING_S)
    assert not done.get("failed"), done
    decision = done["result"]["chain"]["decision"]
    assert (decision["after"], decision["ready"]) == (2, 1)
    product = yaml.safe_load(conformance_files(done["result"])["PRODUCT.yaml"])
    [entry] = [entry for entry in product["spec"]["schedulingOrchestration"] if entry["id"] == "pod_autoscaling"]
    assert entry["status"] == ""
    assert cluster.left() == []


def test_a_node_that_joins_is_proven_alone(cluster: Cluster) -> None:
    cluster.node("gpu1", 2)
    cluster.prove(chain=False)
    cluster.node("gpu2", 4)
    result = cluster.prove(chain=False)
    assert {row["node"]: row["status"] for row in result["result"]["nodes"]} == {"gpu1": "kept", "gpu2": "proven"}
    assert cluster.kubelet.cuda == ["gpu1", "gpu2"]


def test_cuda_that_does_not_start_fails_with_its_cause_and_is_proven_once_it_does(cluster: Cluster) -> None:
    cluster.node("gpu1", 2, leaves=message(error=NO_UVM, devices=("nvidia0", "nvidiactl")))
    cluster.node("gpu2", 2)
    failed = cluster.prove(chain=False)
    assert failed["failed"]
    assert failed["hop"] == "node"
    assert "node gpu1: CUDA does not compute: cuInit: CUDA_ERROR_UNKNOWN (999)" in failed["msg"]
    assert "the container has no /dev/nvidia-uvm" in failed["msg"]
    assert {row["node"]: row["status"] for row in failed["result"]["nodes"]} == {"gpu1": "failed", "gpu2": "proven"}
    assert cluster.record()["machine-gpu1"]["error"]["code"] == 999
    assert cluster.left() == []

    cluster.kubelet.messages["gpu1"] = message(2)
    assert not cluster.prove(chain=False).get("failed")
    assert "error" not in cluster.record()["machine-gpu1"]
    assert cluster.kubelet.cuda.count("gpu2") == 1


LOST = {"text": "cuDevicePrimaryCtxRetain: CUDA_ERROR_UNKNOWN", "function": "cuDevicePrimaryCtxRetain", "code": 999}


@pytest.mark.parametrize(
    ("left", "seen", "cause"),
    [
        (
            message(error=NO_UVM, devices=("nvidia0", "nvidiactl")),
            "CUDA does not compute: cuInit: CUDA_ERROR_UNKNOWN (999)",
            "the container had no /dev/nvidia-uvm",
        ),
        (
            message(error={"text": "cuInit: CUDA_ERROR_SYSTEM_NOT_READY", "function": "cuInit", "code": 802}),
            "CUDA does not compute: cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802)",
            "the NVLink fabric was not completed",
        ),
        (
            json.dumps({**json.loads(message(1)), "gpus": [{"uuid": "1", "error": LOST, "seconds": 0.0}]}),
            "GPU 1 does not compute: cuDevicePrimaryCtxRetain: CUDA_ERROR_UNKNOWN (999)",
            "a CUDA program failed on a GPU of the node in the last proof",
        ),
    ],
    ids=["no nvidia-uvm", "fabric in progress", "GPU lost"],
)
def test_the_doctor_reports_what_the_last_proof_found(cluster: Cluster, left: str, seen: str, cause: str) -> None:
    """What tests/machine/test_cuda_faults.py sees CUDA answer on a machine with that fault."""
    cluster.node("gpu1", 2, leaves=left)
    assert cluster.prove(chain=False)["failed"]
    found = cluster.cuda_failures()["node gpu1"]
    assert seen in found[0]
    assert cause in found[1]

    cluster.kubelet.messages["gpu1"] = message(2)
    assert not cluster.prove(chain=False).get("failed")
    assert cluster.cuda_failures() == {}


def test_gpus_in_use_are_not_proven_and_their_pods_stay(cluster: Cluster, workloads: Workloads, kube: Any) -> None:
    cluster.node("busy", 1)  # its pod stays bound to it, without a kubelet
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {"metadata": {"name": "chat"}, "spec": {"nodeName": "busy", "containers": [container]}}
    client.CoreV1Api(kube).create_namespaced_pod(workloads.namespace, pod)
    result = cluster.prove()
    assert not result["changed"]
    assert result["failed"]
    assert f"nothing was proven on busy. busy: 1 of 1 GPUs are in use: {workloads.namespace}/chat" in result["msg"]
    (row,) = result["result"]["nodes"]
    assert row["status"] == "waiting"
    assert row["reason"] == f"1 of 1 GPUs are in use: {workloads.namespace}/chat"
    assert result["result"]["chain"]["status"] == "waiting"
    assert client.CoreV1Api(kube).read_namespaced_pod("chat", workloads.namespace).metadata.deletion_timestamp is None


def test_check_mode_says_what_would_be_proven(cluster: Cluster) -> None:
    cluster.node("gpu1", 2)
    result = cluster.prove(check=True)
    assert result["changed"]
    assert [(row["status"], row["reason"]) for row in result["result"]["nodes"]] == [("due", "new")]
    assert result["result"]["chain"]["status"] == "due"
    assert cluster.left() == []
    assert cluster.kubelet.cuda == []


def test_what_a_killed_run_left_is_removed_by_the_next_one(cluster: Cluster, kube: Any) -> None:
    cluster.node("gpu1", 2)
    cluster.prove(chain=False)
    client.CoreV1Api(kube).create_namespace({"metadata": {"name": NAMESPACE, "labels": LABELS}})
    result = cluster.prove(chain=False)
    assert result["changed"]
    assert [row["status"] for row in result["result"]["nodes"]] == ["kept"]
    assert cluster.left() == []


def test_a_namespace_of_others_is_left_alone(cluster: Cluster, kube: Any) -> None:
    cluster.node("gpu1", 2)
    client.CoreV1Api(kube).create_namespace({"metadata": {"name": NAMESPACE}})
    result = cluster.prove(chain=False)
    assert result["failed"]
    assert f"Namespace {NAMESPACE} is not managed by this collection" in result["msg"]
    assert "gpu_proof_namespace" in result["fix"]
    assert cluster.kubelet.cuda == []


def test_a_priority_class_that_no_proof_created_stays(cluster: Cluster, kube: Any) -> None:
    cluster.node("gpu1", 2)
    scheduling = client.SchedulingV1Api(kube)
    scheduling.create_priority_class({"metadata": {"name": "kubegpu-proof"}, "value": -1000})
    result = cluster.prove(chain=False)
    assert result["failed"]
    assert "PriorityClass kubegpu-proof is not managed by this collection" in result["msg"]
    assert cluster.kubelet.cuda == []
    assert not cluster.prove(state="absent")["changed"]
    assert scheduling.read_priority_class("kubegpu-proof").metadata.labels is None


def test_a_record_that_no_proof_created_stays(cluster: Cluster, kube: Any) -> None:
    cluster.node("gpu1", 2)
    metadata = {"name": RECORD, "namespace": "kube-system"}
    client.CoreV1Api(kube).create_namespaced_config_map("kube-system", {"metadata": metadata, "data": {"mine": "1"}})
    result = cluster.prove(chain=False)
    assert result["failed"]
    assert f"ConfigMap {RECORD} is not managed by this collection" in result["msg"]
    assert cluster.record() == {"mine": 1}


def test_a_priority_class_that_a_killed_run_left_is_removed(cluster: Cluster, kube: Any) -> None:
    cluster.node("gpu1", 2)
    cluster.prove(chain=False)
    metadata = {"name": "kubegpu-proof", "labels": LABELS}
    client.SchedulingV1Api(kube).create_priority_class({"metadata": metadata, "value": -1000})
    assert cluster.prove(chain=False)["changed"]
    assert cluster.left() == []


def test_a_pod_that_is_preempted_proves_nothing(cluster: Cluster) -> None:
    cluster.node("gpu1", 2)
    cluster.kubelet.preempts = True
    result = cluster.prove(chain=False)
    assert "nothing was proven on gpu1. gpu1: its pod was preempted" in result["msg"]
    (row,) = result["result"]["nodes"]
    assert (row["status"], row["reason"]) == ("waiting", "its pod was preempted, evicted or deleted")
    assert cluster.record() == {}
    assert cluster.left() == []


def test_a_gpu_that_cuda_does_not_show_fails(cluster: Cluster) -> None:
    cluster.node("gpu1", 2, leaves=message(1))
    failed = cluster.prove(chain=False)
    assert failed["failed"]
    assert "node gpu1: CUDA shows 1 of the 2 GPUs that the pod requested" in failed["msg"]
    assert [row["status"] for row in failed["result"]["nodes"]] == ["failed"]


def test_an_hpa_that_wants_more_before_the_load_proves_nothing(cluster: Cluster) -> None:
    cluster.node("gpu1", 1)
    cluster.kubelet.is_always_busy = True
    failed = cluster.prove()
    assert failed["failed"]
    assert failed["hop"] == "hpa"
    assert "the HPA wants 2 replicas before the load step, and sees 100 for target 50" in failed["msg"]
    assert failed["result"]["chain"]["status"] == "failed"
    assert cluster.left() == []


def test_a_load_that_does_not_reach_its_pod_fails_and_nothing_stays(cluster: Cluster) -> None:
    cluster.node("gpu1", 2)
    cluster.kubelet.refuse_requests()
    result = cluster.prove()
    assert result["failed"]
    assert result["hop"] == "workload"
    assert "did not reach its pod through the API server" in result["msg"]
    assert result["result"]["nodes"][0]["status"] == "proven"
    assert cluster.record()["chain"]["error"]
    assert cluster.left() == []


def test_absent_forgets_what_was_proven(cluster: Cluster) -> None:
    cluster.node("gpu1", 2)
    cluster.prove(chain=False)
    result = cluster.prove(state="absent")
    assert result["changed"]
    assert cluster.prove(state="absent")["changed"] is False
    assert [row["status"] for row in cluster.prove(check=True, chain=False)["result"]["nodes"]] == ["due"]
