"""One run of the proof against a cluster that stores writes: what is proven, kept, rejected and removed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from threading import RLock
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions import proof_objects, prove
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.nodes import GpuServer
from fake_cluster import FakeTransport, refusal
from fake_cluster import Request as Asked

NAMESPACE = "kubegpu-proof"
RECORD = "/api/v1/namespaces/kube-system/configmaps/kubegpu-proof"
NAMESPACE_PATH = f"/api/v1/namespaces/{NAMESPACE}"
CLASS_PATH = "/apis/scheduling.k8s.io/v1/priorityclasses/kubegpu-proof"
OPTIONS = manifests.Options("default", NAMESPACE, "python:3", {"cuda_proof.py": "", "sample_service.py": ""})
MINE = {
    "app.kubernetes.io/managed-by": "kubegpu.autoscale",
    "app.kubernetes.io/part-of": "proof",
    "kubegpu.autoscale/inventory": "default",
}


class Cluster(FakeTransport):
    """It keeps what is written. leaves: what CUDA pods leave in their status, by node."""

    unserved: Mapping[str, Any] = {}  # why the namespace is not deleted.
    rejected_by = "ValidatingAdmissionPolicy"
    result_of_idle = ""  # what pods without a request leave instead of their result.
    rejects: frozenset[str] = frozenset()  # RuntimeClasses whose pods have to request a GPU.
    loses_pods = False  # whether pods that request GPUs are deleted.
    leaves_pending = ""  # why the scheduler leaves pods that request GPUs pending.
    only_second = False  # whether that holds only for the second pod of a node.
    is_fair = True  # whether each pod gets GPUs of its own.
    open_to: frozenset[str] = frozenset()  # RuntimeClasses whose pods see all GPUs without a request.

    def __init__(self, **nodes: int) -> None:
        self.leaves = {name: result(gpus) for name, gpus in nodes.items()}
        self.pods: dict[str, Any] = {}
        self._one_at_a_time = RLock()  # pods are created in parallel, and each gets the GPUs that are left
        super().__init__(
            {
                "GET /version": {"gitVersion": "v1.36.3"},
                "GET /api/v1/nodes": {"items": [node(name, gpus) for name, gpus in nodes.items()]},
                "GET /apis/apps/v1/daemonsets": {"items": []},
                "GET /apis/apps/v1/deployments": {"items": []},
                "GET /api/v1/pods": {"items": []},
                "GET /api/v1/events": {"items": []},
                "GET /apis/autoscaling/v2/horizontalpodautoscalers": {"items": []},
                "GET /apis/monitoring.coreos.com/v1/prometheuses": {"items": []},
                "GET /apis/monitoring.coreos.com/v1/prometheusrules": {"items": []},
            }
        )

    def __call__(self, method: str, path: str, *, body: Any = None, **more: Any) -> Any:
        with self._one_at_a_time:
            return self._answer_to(method, path, body, **more)

    def _answer_to(self, method: str, path: str, body: Any, **more: Any) -> Any:
        if method == "GET":
            of_namespaces = re.compile(r"GET /api/v1/namespaces/[^/]+")
            items = [live for asked, live in self.answers.items() if of_namespaces.fullmatch(asked)]
            self.answers["GET /api/v1/namespaces"] = {"items": items}
            return super().__call__(method, path, body=body, **more)
        self.requests.append(Asked(method, path, more["query"], body))
        if f"{method} {path}" in self.answers:
            return self.answer(f"{method} {path}")
        if method == "DELETE":
            self.answers.pop(f"GET {path}", None)
            if path == NAMESPACE_PATH:
                pods = self.answers["GET /api/v1/pods"]
                pods["items"] = [pod for pod in pods["items"] if pod["metadata"].get("namespace") != NAMESPACE]
                if self.unserved:
                    self.answers[f"GET {path}"] = {"metadata": {"name": NAMESPACE}, "status": self.unserved}
            return {}
        if "metadata" not in body:
            return {"metadata": {}}  # a review, which is not kept
        live = {**deepcopy(body), "metadata": {"uid": "uid-1", "resourceVersion": "1", **body["metadata"]}}
        if method == "POST":
            if path.endswith("/pods"):
                spec = body["spec"]
                classed = spec.get("runtimeClassName", "")
                if classed in self.rejects and "nvidia.com/gpu" not in str(spec["containers"]):
                    raise refusal(422, f"{self.rejected_by} kubegpu-unrequested-gpus denied request")
                self._run(live)
            path = f"{path}/{live['metadata']['name']}"
        self.answers[f"GET {path}"] = live
        return live

    def _run(self, pod: dict[str, Any]) -> None:
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        name = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        [container] = pod["spec"]["containers"]
        gpus = int(container["resources"]["limits"].get("nvidia.com/gpu", 0))
        message = self.leaves[name] if gpus else self.unrequested(pod["spec"])
        if gpus and self.is_fair:
            found = json.loads(message)
            begin = sum(
                int(its["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0))
                for its in self.answers["GET /api/v1/pods"]["items"]
                if its["metadata"]["name"].startswith(pod["metadata"]["name"].removesuffix("-2"))
            )
            message = json.dumps({**found, "gpus": found["gpus"][begin : begin + gpus]})
        ended = {"terminated": {"message": message, "exitCode": 0}}
        pod["status"] = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": ended}]}
        is_hit = gpus and (pod["metadata"]["name"].endswith("-2") or not self.only_second)
        if is_hit and self.leaves_pending:
            condition = {"type": "PodScheduled", "status": "False", "message": self.leaves_pending}
            pod["status"] = {"phase": "Pending", "conditions": [condition]}
        if is_hit and self.loses_pods:
            return
        self.answers["GET /api/v1/pods"]["items"].append(pod)

    def unrequested(self, spec: Mapping[str, Any]) -> str:
        if self.result_of_idle:
            return self.result_of_idle
        devices = ["nvidia0", "nvidiactl"] if spec.get("runtimeClassName", "") in self.open_to else []
        return json.dumps({"devices": devices, "gpus": [], "error": None, "seconds": 0.0})

    @property
    def written(self) -> list[str]:
        return [asked for asked in self.asked if not asked.startswith("GET ") and "reviews" not in asked]

    def record(self) -> Mapping[str, Any]:
        return {key: json.loads(text) for key, text in self.answers[f"GET {RECORD}"]["data"].items()}


def node(name: str, gpus: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus)},
            "nodeInfo": {"machineID": f"machine-{name}"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def result(gpus: int, error: Mapping[str, Any] | None = None) -> str:
    rows = [] if error else [{"uuid": f"GPU-{number}", "error": None, "seconds": 0.1} for number in range(gpus)]
    return json.dumps({"devices": ["nvidia-uvm"], "gpus": rows, "error": error, "seconds": 0.5})


class Proof:
    """A proof of a cluster, with options of the module."""

    def __init__(self, cluster: Cluster, *, check: bool = False, **request: Any) -> None:
        kube = KubeClient(cluster, dry_run=check)
        prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
        self._cluster = prove.Cluster(kube, prometheus, RuleOptions())
        self._request = replace(prove.Request(OPTIONS, chain=False, holder="this-run"), **request)

    def prove(self) -> Outcome:
        return prove.prove(self._cluster, self._request)

    def clear(self) -> Outcome:
        return prove.clear(self._cluster, self._request)


def statuses(outcome: Any) -> dict[str, str]:
    return {row["node"]: row["status"] for row in outcome.result["nodes"]}


def busy(cluster: Cluster, name: str, *, on: str) -> None:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    pod = {"metadata": {"namespace": "ml", "name": name}, "spec": {"nodeName": on, "containers": [container]}}
    cluster.answers["GET /api/v1/pods"]["items"].append({**pod, "status": {"phase": "Running"}})


def away(cluster: Cluster, name: str) -> None:
    for found in cluster.answers["GET /api/v1/nodes"]["items"]:
        if found["metadata"]["name"] == name:
            found["status"]["conditions"] = [{"type": "Ready", "status": "False"}]


def lose_pod(cluster: Cluster, _name: str) -> None:
    cluster.loses_pods = True


def lose_pod_to_another(cluster: Cluster, _name: str) -> None:
    cluster.leaves_pending = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu."


def fill(cluster: Cluster, name: str) -> None:
    busy(cluster, "chat", on=name)


def test_each_node_is_proven_once_and_all_but_the_record_is_removed() -> None:
    cluster = Cluster(gpu1=2, gpu2=1)
    first = Proof(cluster).prove()
    assert not first.errors, first.errors
    assert (first.changed, statuses(first)) == (True, {"gpu1": "proven", "gpu2": "proven"})
    assert {key: entry["gpus"] for key, entry in cluster.record().items()} == {"machine-gpu1": 2, "machine-gpu2": 1}
    assert f"GET {NAMESPACE_PATH}" not in cluster.answers
    assert f"GET {CLASS_PATH}" not in cluster.answers

    before = len(cluster.written)
    second = Proof(cluster).prove()
    assert (second.changed, statuses(second)) == (False, {"gpu1": "kept", "gpu2": "kept"})
    assert len(cluster.written) == before


def test_a_namespace_that_an_unavailable_api_keeps_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter's pods have no node while the only worker is maintained."""
    pauses: list[float] = []
    monkeypatch.setattr(
        proof_objects.Deadline, "pause", lambda _deadline, seconds: pauses.append(seconds)
    )  # and is over
    cluster = Cluster(gpu1=1)
    why = "unable to retrieve the complete list of server APIs: custom.metrics.k8s.io/v1beta1"
    cluster.unserved = {"conditions": [{"type": proof_objects.UNSERVED, "status": "True", "message": why}]}
    seen = Proof(cluster).prove()

    assert (seen.errors, statuses(seen)) == ([], {"gpu1": "proven"})
    assert any(why in warning and "kubectl get apiservices" in warning for warning in seen.warnings), seen.warnings
    assert len(pauses) == 1, "waits longer than a restart takes"


def test_check_mode_reports_what_is_due_and_writes_nothing() -> None:
    cluster = Cluster(gpu1=2)
    outcome = Proof(cluster, check=True).prove()
    assert (outcome.changed, statuses(outcome)) == (True, {"gpu1": "due"})
    assert cluster.written == []


def test_a_cuda_error_is_recorded_as_a_failure() -> None:
    cluster = Cluster(gpu1=2)
    cluster.leaves["gpu1"] = result(2, {"text": "cuInit: CUDA_ERROR_UNKNOWN", "function": "cuInit", "code": 999})
    outcome = Proof(cluster).prove()
    assert statuses(outcome) == {"gpu1": "failed"}
    assert len(outcome.errors) == 1
    assert cluster.record()["machine-gpu1"]["error"]["text"]
    assert f"GET {NAMESPACE_PATH}" not in cluster.answers


def test_gpus_in_use_wait() -> None:
    cluster = Cluster(gpu1=1)
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {"metadata": {"namespace": "ml", "name": "chat"}, "spec": {"nodeName": "gpu1", "containers": [container]}}
    cluster.answers["GET /api/v1/pods"]["items"].append({**pod, "status": {"phase": "Running"}})
    outcome = Proof(cluster).prove()
    assert statuses(outcome) == {"gpu1": "waiting"}
    assert "ml/chat" in outcome.result["nodes"][0]["reason"]
    assert cluster.written == []


def test_a_gpu_that_fell_off_the_bus_fails_without_a_program() -> None:
    cluster = Cluster(gpu1=2)
    server = GpuServer("gpu1", gpus=2, expected=3)
    outcome = Proof(cluster, servers=(server,), nodes=("gpu1",)).prove()
    assert statuses(outcome) == {"gpu1": "failed"}
    assert "2 of 3 GPUs" in outcome.errors[0].seen


@pytest.mark.parametrize(
    ("path", "kind"), [(RECORD, "ConfigMap"), (CLASS_PATH, "PriorityClass"), (NAMESPACE_PATH, "Namespace")]
)
def test_an_object_that_no_proof_created_is_kept(path: str, kind: str) -> None:
    cluster = Cluster(gpu1=1)
    cluster.answers[f"GET {path}"] = {"metadata": {"name": "kubegpu-proof"}}
    with pytest.raises(HopError, match=rf"{kind} kubegpu-proof .*was not created by a proof.*Nothing was changed"):
        Proof(cluster).prove()
    assert cluster.written == []


def test_leftover_objects_of_a_killed_run_are_removed() -> None:
    cluster = Cluster(gpu1=1)
    Proof(cluster).prove()
    cluster.answers[f"GET {NAMESPACE_PATH}"] = {"metadata": {"name": NAMESPACE, "uid": "uid-2", "labels": MINE}}
    outcome = Proof(cluster).prove()
    assert (outcome.changed, statuses(outcome)) == (True, {"gpu1": "kept"})
    assert f"DELETE {NAMESPACE_PATH}" in cluster.written


def test_a_priority_class_of_another_inventory_serves_and_is_kept() -> None:
    """A killed run has left it: only its own inventory changes or removes it."""
    theirs = {**MINE, "kubegpu.autoscale/inventory": "other"}
    cluster = Cluster(gpu1=1)
    left = {"metadata": {"name": "kubegpu-proof", "uid": "uid-9", "labels": theirs}}
    cluster.answers[f"GET {CLASS_PATH}"] = left
    assert statuses(Proof(cluster).prove()) == {"gpu1": "proven"}
    assert [path for path in cluster.written if path.endswith(CLASS_PATH)] == []
    assert cluster.answers[f"GET {CLASS_PATH}"] == left


@pytest.mark.parametrize("is_due", [False, True])
@pytest.mark.parametrize("act", [Proof.prove, Proof.clear])
def test_leftover_objects_in_a_namespace_with_another_name_are_removed(act: Any, is_due: bool) -> None:
    cluster = Cluster(gpu1=1)
    Proof(cluster).prove()
    for name, labels in {"old": MINE, "other": {**MINE, "kubegpu.autoscale/inventory": "other"}, "mine": {}}.items():
        cluster.answers[f"GET /api/v1/namespaces/{name}"] = {"metadata": {"name": name, "uid": name, "labels": labels}}
    outcome = act(Proof(cluster, repeat=is_due))
    assert outcome.changed
    left = [path.split("/")[-1] for path in cluster.answers if re.fullmatch("GET /api/v1/namespaces/[^/]+", path)]
    assert left == ["other", "mine"]


def test_absent_removes_the_record() -> None:
    cluster = Cluster(gpu1=1)
    Proof(cluster).prove()
    assert Proof(cluster).clear().changed
    assert f"GET {RECORD}" not in cluster.answers
    assert not Proof(cluster).clear().changed


def test_an_error_of_the_api_server_names_the_nodes_that_were_not_proven() -> None:
    cluster = Cluster(gpu1=1)
    cluster.answers[f"PATCH {CLASS_PATH}"] = refusal(500, "etcd is full")
    outcome = Proof(cluster).prove()
    assert statuses(outcome) == {"gpu1": "failed"}
    assert "etcd is full" in outcome.result["nodes"][0]["reason"]


@pytest.mark.parametrize(("gpus", "reason"), [(0, "no node offers a GPU"), (1, "no GPU is free")])
def test_a_chain_without_a_free_gpu_waits(gpus: int, reason: str) -> None:
    cluster = Cluster(**({"gpu1": gpus} if gpus else {}))
    for listed in cluster.answers["GET /api/v1/nodes"]["items"]:
        listed["spec"]["unschedulable"] = True
    outcome = Proof(cluster, chain=True).prove()
    assert outcome.result["chain"]["status"] == "waiting"
    assert reason in outcome.result["chain"]["reason"]


def test_the_pods_of_a_node_get_different_gpus() -> None:
    cluster = Cluster(gpu1=8)
    cluster.is_fair = False
    outcome = Proof(cluster).prove()

    assert statuses(outcome) == {"gpu1": "failed"}
    assert "two pods got the same GPU" in outcome.errors[0].seen
    assert outcome.result["nodes"][0]["unrequested"] == "visible"


IDLE_OPTIONS = replace(OPTIONS, runtime_class="nvidia")
DEFAULT_RUNTIME, CLASS = "", "nvidia"


@pytest.mark.parametrize("open_to", [DEFAULT_RUNTIME, CLASS])
@pytest.mark.parametrize(
    ("unrequested", "is_ours", "fails"),
    [("deny", False, True), ("auto", True, True), ("auto", False, False), ("allow", True, False)],
)
def test_gpus_that_no_pod_requested_are_an_error_where_they_are_denied(
    open_to: str, unrequested: str, is_ours: bool, fails: bool
) -> None:
    cluster = Cluster(gpu1=2)
    cluster.open_to = frozenset({open_to})
    if is_ours:
        cluster.answers["GET /api/v1/namespaces/kube-system/configmaps/kubegpu-cluster"] = {"data": {"name": "prod"}}
    outcome = Proof(cluster, options=IDLE_OPTIONS, unrequested=unrequested).prove()
    [row] = outcome.result["nodes"]
    texts = [str(error) for error in outcome.errors] if fails else outcome.warnings

    assert (row["status"], row["unrequested"]) == ("failed" if fails else "proven", "visible")
    assert "requests no GPU sees nvidia0, nvidiactl" in texts[0]
    assert cluster.record()["machine-gpu1"]["unrequested"] == "visible"


def test_denied_gpus_are_recorded_and_kept() -> None:
    cluster = Cluster(gpu1=2)
    first, second = (Proof(cluster, options=IDLE_OPTIONS, unrequested="deny").prove() for _run in range(2))

    assert [row["unrequested"] for outcome in (first, second) for row in outcome.result["nodes"]] == ["denied"] * 2
    assert statuses(second) == {"gpu1": "kept"}


def test_a_policy_that_rejects_pods_without_a_request_denies_them_gpus() -> None:
    """It rejects the pod with the RuntimeClass; the one without sees none."""
    cluster = Cluster(gpu1=1)
    cluster.open_to = frozenset({CLASS})
    cluster.rejects = frozenset({CLASS})
    outcome = Proof(cluster, options=IDLE_OPTIONS, unrequested="deny").prove()

    assert not outcome.errors
    assert outcome.result["nodes"][0]["unrequested"] == "denied"


def test_a_pod_without_a_result_proves_nothing_about_unrequested_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "unrequested", lambda _cluster, _spec: "Killed")
    outcome = Proof(Cluster(gpu1=1), unrequested="deny").prove()

    assert outcome.result["nodes"][0]["unrequested"] == ""


def test_a_policy_that_rejects_every_such_pod_shows_nothing() -> None:
    """It may reject the variable in a pod, and not in an image."""
    cluster = Cluster(gpu1=1)
    cluster.rejects = frozenset({DEFAULT_RUNTIME, CLASS})
    outcome = Proof(cluster, options=IDLE_OPTIONS, unrequested="deny").prove()

    assert outcome.result["nodes"][0]["unrequested"] == ""


def leave_no_result(cluster: Cluster) -> None:
    cluster.result_of_idle = "OOMKilled"


def reject_all(cluster: Cluster) -> None:
    cluster.rejects = frozenset({DEFAULT_RUNTIME, CLASS})


def reject_by_webhook(cluster: Cluster) -> None:
    cluster.rejects, cluster.rejected_by = frozenset({CLASS}), "admission webhook"


@pytest.mark.parametrize("obstacle", [None, fill, away])
@pytest.mark.parametrize("prevent", [leave_no_result, reject_all, reject_by_webhook])
def test_an_unknown_verdict_is_never_kept(prevent: Any, obstacle: Any) -> None:
    """The GPUs are open. Without anything that prevents the pods, the next run finds that."""
    cluster = Cluster(gpu1=2)
    cluster.open_to = frozenset({CLASS})
    prevent(cluster)
    options = {"options": IDLE_OPTIONS, "unrequested": "deny"}
    for _run in range(2):
        outcome = Proof(cluster, **options).prove()
        [row] = outcome.result["nodes"]
        assert (row["status"], row["unrequested"], outcome.errors) == ("proven", "", [])
    cluster.result_of_idle, cluster.rejects = "", frozenset()
    if obstacle:
        obstacle(cluster, "gpu1")
    outcome = Proof(cluster, **options).prove()
    assert statuses(outcome) == {"gpu1": "waiting" if obstacle else "failed"}
    assert bool(outcome.errors) is not bool(obstacle)


def test_a_policy_that_is_deleted_denies_nothing_any_more() -> None:
    cluster = Cluster(gpu1=2)
    path = "GET /apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    cluster.answers[path] = {"items": [{"metadata": {"name": "gpus"}, "spec": {}}]}
    cluster.open_to = cluster.rejects = frozenset({CLASS})
    outcomes = [Proof(cluster, options=IDLE_OPTIONS, unrequested="deny").prove() for _run in range(2)]
    assert [statuses(outcome)["gpu1"] for outcome in outcomes] == ["proven", "kept"]
    assert outcomes[1].result["nodes"][0]["unrequested"] == "denied"

    cluster.answers[path], cluster.rejects = {"items": []}, frozenset()
    outcome = Proof(cluster, options=IDLE_OPTIONS, unrequested="deny").prove()
    assert "requests no GPU sees" in str(outcome.errors)


@pytest.mark.parametrize("later", ["deny", "auto"])
@pytest.mark.parametrize("earlier", ["allow", "auto"])
def test_gpus_that_were_seen_are_an_error_once_they_are_denied(earlier: str, later: str) -> None:
    """The inventory has no servers, so nothing else that the proof rests on changes."""
    cluster = Cluster(gpu1=2)
    cluster.open_to = frozenset({CLASS})
    assert not Proof(cluster, options=IDLE_OPTIONS, unrequested=earlier).prove().errors
    cluster.answers["GET /api/v1/namespaces/kube-system/configmaps/kubegpu-cluster"] = {"data": {"name": "prod"}}
    outcome = Proof(cluster, options=IDLE_OPTIONS, unrequested=later).prove()
    assert "requests no GPU sees nvidia0, nvidiactl" in str(outcome.errors[0])

    cluster.open_to = frozenset()
    outcome = Proof(cluster, options=IDLE_OPTIONS, unrequested=later).prove()
    assert (outcome.errors, statuses(outcome)) == ([], {"gpu1": "proven"})


OBSTACLES = [fill, away, lose_pod, lose_pod_to_another]
FAILURES: dict[str, dict[str, Any]] = {
    "CUDA": {"error": {"text": "node gpu1: CUDA does not compute", "code": 999, "function": "cuInit"}},
    "not started": {"error": {"text": "node gpu1: the CUDA pod did not end", "cause": "why", "fix": "what"}},
    "unrequested": {
        "error": {"text": "node gpu1: a pod sees GPUs", "unrequested": "visible"},
        "unrequested": "visible",
    },
    "seen while allowed": {"unrequested": "visible"},
}


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("obstacle", OBSTACLES)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_recorded_failure_stays_an_error_until_a_proof_succeeds(failure: str, obstacle: Any, repeat: bool) -> None:
    cluster = Cluster(gpu1=2, gpu2=1)
    Proof(cluster).prove()
    data = cluster.answers[f"GET {RECORD}"]["data"]
    before = {**json.loads(data["machine-gpu1"]), **FAILURES[failure]}
    data["machine-gpu1"] = json.dumps(before)
    obstacle(cluster, "gpu1")
    for _run in range(2):
        outcome = Proof(cluster, unrequested="deny", repeat=repeat).prove()
        assert [error for error in outcome.errors if "node gpu1: " in str(error)], outcome.result
        assert statuses(outcome)["gpu1"] == "failed"
        assert cluster.record()["machine-gpu1"] == before


def test_a_chain_that_failed_stays_an_error_until_a_proof_succeeds() -> None:
    cluster = Cluster(gpu1=1)
    Proof(cluster).prove()
    failed = {"at": "2026-11-28T07:00:00+00:00", "error": {"text": "hpa: it did not scale up\n  fix: it"}}
    cluster.answers[f"GET {RECORD}"]["data"]["chain"] = json.dumps(failed)
    for obstacle in (fill, away):
        obstacle(cluster, "gpu1")
        outcome = Proof(cluster, chain=True).prove()
        assert "it did not scale up. This is from the proof of 2026-11-28" in str(outcome.errors)
        assert (statuses(outcome), outcome.result["chain"]["status"]) == ({"gpu1": "kept"}, "failed")


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("obstacle", [None, *OBSTACLES])
def test_what_this_run_does_not_read_is_neither_kept_nor_a_failure(
    obstacle: Any, is_read: bool, is_changed: bool, repeat: bool
) -> None:
    """Only an obstacle together with a change, or with a repetition, leaves a run without any proof."""
    cluster = Cluster(gpu1=2)
    servers = (GpuServer("gpu1", gpus=2, driver="580", uuids=("a", "b"), toolkit="1.20", toolkit_config="abc"),)
    assert not Proof(cluster, servers=servers).prove().errors
    if is_changed:
        cluster.answers["GET /api/v1/nodes"]["items"][0]["status"]["nodeInfo"]["bootID"] = "another"
    if obstacle:
        obstacle(cluster, "gpu1")
    outcome = Proof(cluster, servers=servers if is_read else (), repeat=repeat).prove()
    [row] = outcome.result["nodes"]

    is_same = is_read and not is_changed and not repeat
    assert row["status"] == ("kept" if is_same else "waiting" if obstacle else "proven")
    assert bool(outcome.errors) == (bool(obstacle) and (is_changed or repeat))
    if row["status"] == "waiting":
        assert ("it was proven 20" in row["reason"]) != bool(outcome.errors)


RESOURCES = ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "pods"]
FULL = [f"Insufficient {resource}" for resource in RESOURCES] + ["Too many pods"]
OTHER_REASONS = [
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) had untolerated taint(s)",
    "node(s) were unschedulable",
]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("others", [[], *([reason] for reason in OTHER_REASONS), OTHER_REASONS])
@pytest.mark.parametrize("reason", [*FULL, ""])
def test_a_full_node_waits(reason: str, others: list[str], is_first: bool) -> None:
    listed = [f"1 {its}" for its in ([reason] if reason else []) + others][:: 1 if is_first else -1]
    cluster = Cluster(gpu1=2, gpu2=1)
    Proof(cluster, nodes=("gpu2",)).prove()
    cluster.leaves_pending = f"0/2 nodes are available: {', '.join(listed)}."
    outcome = Proof(cluster, options=replace(OPTIONS, timeout_s=0)).prove()

    assert statuses(outcome) == {"gpu1": "waiting" if reason else "failed", "gpu2": "kept"}
    assert bool(outcome.errors) is not bool(reason)
    assert not reason or outcome.result["nodes"][0]["reason"] == f"its pod has no room: {reason}"


@pytest.mark.parametrize("obstacle", [lose_pod, lose_pod_to_another])
def test_an_error_counts_also_if_another_pod_of_the_node_did_not_end(obstacle: Any) -> None:
    cluster = Cluster(gpu1=2)
    cluster.leaves["gpu1"] = result(0, {"text": "cuInit: CUDA_ERROR_UNKNOWN", "function": "cuInit", "code": 999})
    cluster.only_second = True
    obstacle(cluster, "gpu1")
    outcome = Proof(cluster).prove()
    assert (statuses(outcome), len(outcome.errors)) == ({"gpu1": "failed"}, 1)


def claimed(name: str, *, by_device_plugin: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """A node, and the ResourceSlice of its two GPUs."""
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": {"name": name}}
    devices = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(2)]
    return node(name, by_device_plugin), {"metadata": {"name": name}, "spec": {**spec, "devices": devices}}


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("has_server", [False, True])
@pytest.mark.parametrize("others", [[], ["free"], ["busy"]])
def test_gpus_that_pods_have_to_claim_are_not_proven_and_no_failure(
    others: list[str], has_server: bool, is_recorded: bool
) -> None:
    cluster = Cluster(claimed=2, **dict.fromkeys(others, 2))
    if is_recorded:
        Proof(cluster, nodes=("claimed",)).prove()
    found, devices = claimed("claimed")
    cluster.answers["GET /api/v1/nodes"]["items"][0] = found
    cluster.answers["GET /apis/resource.k8s.io/v1/resourceslices"] = {"items": [devices]}
    fill(cluster, "busy")
    outcome = Proof(cluster, servers=(GpuServer("claimed", gpus=2, expected=2),) if has_server else ()).prove()

    [reason] = [row["reason"] for row in outcome.result["nodes"] if row["node"] == "claimed"]
    assert reason == "its GPUs are offered only by dynamic resource allocation, which the proof does not support"
    of_others = {"free": "proven", "busy": "waiting"}
    assert statuses(outcome) == {"claimed": "waiting", **{name: of_others[name] for name in others}}
    assert bool(outcome.errors) == (others == ["busy"])


def test_gpus_that_are_offered_twice_are_not_used_and_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod of the proof might compute on a GPU that a claim holds."""
    monkeypatch.setattr(proof_objects.Deadline, "pause", lambda *_: False)  # nothing here starts the sample service
    cluster = Cluster(twice=2, free=2)
    found, devices = claimed("twice", by_device_plugin=2)
    cluster.answers["GET /api/v1/nodes"]["items"][0] = found
    cluster.answers["GET /apis/resource.k8s.io/v1/resourceslices"] = {"items": [devices]}
    outcome = Proof(cluster, chain=True).prove()
    assert statuses(outcome) == {"twice": "failed", "free": "proven"}
    assert "node twice offers 2 GPUs, and 2 can be claimed" in str(outcome.errors)
    pods = [str(asked.body) for asked in cluster.requests if asked.method == "POST" and asked.path.endswith("/pods")]
    assert any("free" in pod for pod in pods)
    assert not any("twice" in pod for pod in pods)


@pytest.mark.parametrize("seen", range(5))
def test_a_pod_that_sees_other_gpus_than_it_requested_proves_nothing(seen: int) -> None:
    cluster = Cluster(gpu1=1)
    cluster.is_fair = False
    cluster.leaves["gpu1"] = result(seen)
    [row] = Proof(cluster).prove().result["nodes"]
    assert (row["status"], row["gpus"]) == (("proven", 1) if seen == 1 else ("failed", 0))
    assert (row["unrequested"] == "visible") == (seen > 1)


@pytest.mark.parametrize("obstacle", [lose_pod, lose_pod_to_another])
def test_gpus_that_were_seen_are_recorded_also_if_the_cuda_pod_did_not_end(obstacle: Any) -> None:
    cluster = Cluster(gpu1=2, gpu2=1)
    Proof(cluster, nodes=("gpu2",)).prove()
    cluster.open_to = frozenset({DEFAULT_RUNTIME})
    obstacle(cluster, "gpu1")
    assert Proof(cluster, unrequested="deny").prove().errors
    fill(cluster, "gpu1")
    outcome = Proof(cluster, unrequested="deny").prove()
    assert (statuses(outcome), len(outcome.errors)) == ({"gpu1": "failed", "gpu2": "kept"}, 1)


@pytest.mark.parametrize("left_out", [{"nodes": ["gpu1"]}, {"selector": {"pool": "a"}}], ids=str)
@pytest.mark.parametrize(
    ("label", "provider", "is_cloud"),
    [
        ("eks.amazonaws.com/nodegroup", "", True),
        *(("", f"{scheme}://1", True) for scheme in ("aws", "gce", "azure", "hcloud", "openstack", "digitalocean")),
        *(("", f"{scheme}://gpu2", False) for scheme in ("k3s", "rke2", "k0s", "kind", "minikube")),
        ("", "", False),
    ],
)
def test_gpu_nodes_that_are_not_to_be_proven_are_reported(
    left_out: dict[str, Any], label: str, provider: str, is_cloud: bool
) -> None:
    """The playbook conformance reads them: a cluster may add nodes although none is selected."""
    cluster = Cluster(gpu1=2, gpu2=2)
    first, second = cluster.answers["GET /api/v1/nodes"]["items"]
    first["metadata"]["labels"] = {"pool": "a"}
    second["metadata"]["labels"] = {label: "b"} if label else {}
    second["spec"] = {"providerID": provider} if provider else {}
    result = Proof(cluster, **left_out).prove().result
    assert [row["node"] for row in result["nodes"]] == ["gpu1"]
    assert result["gpu_nodes"] == ["gpu1", "gpu2"]
    assert result["adds_nodes"] == is_cloud
