"""Argo Rollouts' own controller tries a new version under load, scaled by each type of metric.

Pods are objects only. A stand-in for kubelets makes them ready, and their GPUs share the load.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from collection import ROOT
from control_plane import ControlPlane, eventually, free_port, running
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from metric_chain import MetricChain
from owned_chain import OwnedChain
from programs import FOLDER, program
from workloads import Workloads

Run = Callable[..., dict[str, Any]]
ROLLOUTS = ("argoproj.io", "v1alpha1")
SETTLE_S = 120
TARGET = {"kind": "Rollout", "name": "chat"}

# `make test` does not compile it: its own target does.
COMPILED = (FOLDER / "argo-rollouts").exists() or bool(os.environ.get("ROLLOUTS"))
pytestmark = pytest.mark.skipif(not COMPILED, reason="`make test-rollouts` compiles it")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    """Of its own: this one makes pods of ReplicaSets."""
    controller = program("argo-rollouts")
    with running(tmp_path_factory.mktemp("control-plane"), "replicaset-controller") as (plane, kube):
        kinds = sorted((controller.resolve().parent / "crds").glob("*-crd.yaml"))
        kubectl = [program("kubectl"), f"--kubeconfig={plane.kubeconfig}"]
        for verb in (["create"], ["wait", "--for=condition=Established"]):
            files = [f"--filename={kind}" for kind in kinds]
            subprocess.run([*kubectl, *verb, *files], check=True, stdout=subprocess.DEVNULL)
        plane.run(
            "argo-rollouts", controller, "--kubeconfig=kubeconfig", "--leader-elect=false",
            f"--metricsPort={free_port()}", f"--healthzPort={free_port()}",
        )  # fmt: skip
        yield plane, kube


@pytest.fixture(scope="module")
def kube(plane: tuple[ControlPlane, client.ApiClient]) -> client.ApiClient:
    return plane[1]


@pytest.fixture(scope="module")
def chain(plane: tuple[ControlPlane, client.ApiClient]) -> Iterator[MetricChain]:
    chain = OwnedChain(*plane)
    chain.start()
    yield chain
    chain.stop()


class Rollout:
    """Two pods with a GPU each, and a load that they share; half of them are the canary's while one is tried."""

    def __init__(self, kube: client.ApiClient, chain: MetricChain, namespace: str) -> None:
        self.namespace, self.load = namespace, 100.0
        # What a canary's pod takes of the load beside a stable one: no more where a mesh sends it little.
        self.share_of_canary = 1.0
        self._chain = chain
        self._objects, self._core = client.CustomObjectsApi(kube), client.CoreV1Api(kube)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._container = {
            "name": "main",
            "image": "service:1",
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
            "readinessProbe": {"httpGet": {"port": 8080}},
        }
        labels = {"app": "chat"}
        spec = {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [self._container]}},
            "strategy": {"canary": {"steps": [{"setWeight": 50}, {"pause": {}}]}},
        }
        kind = {"apiVersion": "/".join(ROLLOUTS), "kind": "Rollout"}
        body = {**kind, "metadata": {"name": "chat"}, "spec": spec}
        self._objects.create_namespaced_custom_object(*ROLLOUTS, namespace, "rollouts", body)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._objects.delete_namespaced_custom_object(*ROLLOUTS, self.namespace, "rollouts", "chat")

    def read(self) -> dict[str, Any]:
        return self._objects.get_namespaced_custom_object(*ROLLOUTS, self.namespace, "rollouts", "chat")

    def change_image(self, image: str) -> None:
        patch = {"spec": {"template": {"spec": {"containers": [{**self._container, "image": image}]}}}}
        self._objects.patch_namespaced_custom_object(*ROLLOUTS, self.namespace, "rollouts", "chat", patch)

    def promote(self) -> None:
        """As `kubectl argo rollouts promote --full` does."""
        self._objects.patch_namespaced_custom_object_status(
            *ROLLOUTS, self.namespace, "rollouts", "chat", {"status": {"promoteFull": True}}
        )

    def pods(self) -> dict[str, list[str]]:
        """Those that are ready, by their image."""
        found: dict[str, list[str]] = {}
        for pod in self._core.list_namespaced_pod(self.namespace).items:
            if pod.status.conditions:
                found.setdefault(pod.spec.containers[0].image, []).append(pod.metadata.name)
        return {image: sorted(names) for image, names in sorted(found.items())}

    def _follow(self) -> None:
        while not self._stopped.wait(0.3):
            for pod in self._core.list_namespaced_pod(self.namespace).items:
                if not pod.status.conditions:
                    self._start(pod.metadata.name)
            stable = (self.read().get("status") or {}).get("stableRS", "")
            parts = {
                name: 1.0 if f"-{stable}-" in name else self.share_of_canary
                for names in self.pods().values()
                for name in names
            }
            a_part = self.load / (sum(parts.values()) or 1)
            self._chain.exporter.gpus(self.namespace, {name: min(100, a_part * part) for name, part in parts.items()})

    def _start(self, name: str) -> None:
        began = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": datetime.now(UTC).isoformat()}
        status = {"phase": "Running", "startTime": began, "conditions": [ready]}
        with suppress(ApiException):  # it may be gone again
            self._core.patch_namespaced_pod_status(name, self.namespace, {"status": status})


@pytest.fixture
def rollout(kube: client.ApiClient, chain: MetricChain, workloads: Workloads) -> Iterator[Rollout]:
    workloads.node("gpu1", gpus=16)
    rollout = Rollout(kube, chain, workloads.namespace)
    try:
        eventually(lambda: sum(map(len, rollout.pods().values())) == 2, "two pods are ready", SETTLE_S)
        yield rollout
    finally:
        rollout.stop()


def counts(rollout: Rollout) -> dict[str, int]:
    return {image: len(names) for image, names in rollout.pods().items()}


@pytest.mark.parametrize("metric_type", ["Pods", "Object", "External"])
def test_a_canary_under_load_is_scaled(metric_type: str, run: Run, chain: MetricChain, rollout: Rollout) -> None:
    wanted = {"namespace": rollout.namespace, "target": TARGET, "max_replicas": 8, "metric_type": metric_type}
    with chain.api("external.metrics.k8s.io") if metric_type == "External" else nullcontext():
        result = run(verify=True, wait_timeout=SETTLE_S, autoscalers=[wanted])
        assert not result.get("failed")
        assert "revisions" not in result["result"]["autoscalers"][0]

        rollout.change_image("service:2")
        eventually(lambda: counts(rollout) == {"service:1": 1, "service:2": 1}, "half of the pods are new", SETTLE_S)
        rollout.load = 220.0
        # 220 % at 60 % a pod are four.
        eventually(lambda: counts(rollout) == {"service:1": 2, "service:2": 2}, "both revisions grow", SETTLE_S)

        shown = run("gpu_autoscaler_info", namespace=rollout.namespace)["result"]["autoscalers"][0]
        pods = rollout.pods()
        assert shown["revisions"] == {"stable": pods["service:1"], "canary": pods["service:2"]}

        rollout.promote()
        eventually(lambda: counts(rollout) == {"service:2": 4}, "all pods are new", SETTLE_S)
        proven = run(verify=True, wait_timeout=SETTLE_S, autoscalers=[wanted])["result"]["autoscalers"][0]
        assert (proven["verified"], proven["replicas"]) == (True, 4)
        assert "revisions" not in proven


def test_what_each_revision_does_is_told_apart(run: Run, chain: MetricChain, rollout: Rollout) -> None:
    """By the recorded series, whose pods' names have the revision, and by the doctor where the average hides it."""
    wanted = {"namespace": rollout.namespace, "target": TARGET, "max_replicas": 8}
    assert not run(verify=True, wait_timeout=SETTLE_S, autoscalers=[wanted]).get("failed")

    def says() -> list[str]:
        report = run("gpu_doctor", namespace=rollout.namespace, grace=False)["result"]
        return [finding["id"] for finding in report["findings"]]

    rollout.change_image("service:2")
    eventually(lambda: counts(rollout) == {"service:1": 1, "service:2": 1}, "half of the pods are new", SETTLE_S)
    eventually(lambda: says() == [], "a canary with its part of the load is no finding", SETTLE_S)

    rollout.share_of_canary = 0.1  # 91 and 9 of 100: 50 on average
    eventually(lambda: says() == ["HPA_AVERAGES_REVISIONS"], "the stable pod is over the target alone", SETTLE_S)
    assert counts(rollout) == {"service:1": 1, "service:2": 1}
    page = (ROOT / "docs" / "existing-clusters.md").read_text()
    [query] = [block.partition("\n")[2] for block in page.split("```") if "label_replace(" in block]
    status = rollout.read()["status"]

    def values() -> dict[str, int]:
        rows = json.loads(chain.answer(query.replace('"ml"', f'"{rollout.namespace}"')))["data"]["result"]
        return {row["metric"]["revision"]: round(float(row["value"][1])) for row in rows}

    # Values are smoothed: all of a change shows after some evaluations.
    told_apart = {status["stableRS"]: 91, status["currentPodHash"]: 9}
    eventually(lambda: values() == told_apart, "the page's query tells the revisions apart", SETTLE_S)
