"""An autoscaler changes from prometheus-adapter to KEDA and back: no replica moves, and its HPA stays the same object.

KEDA's operator is played (keda_stand_in.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import keda_stand_in
import pytest
from control_plane import eventually, running
from kubernetes import client
from module_process import run_module
from prometheus_rules import rules, serve_kind
from test_keda import WAYS, DecisionChain, Nodes, deploy

Run = Callable[..., dict[str, Any]]
NAMESPACE = WAYS[1]
AUTOSCALER = {
    "namespace": NAMESPACE,
    "target": {"name": "chat"},
    "max_replicas": 12,
    "dead_time_seconds": 15,
    # Longer than the test: what the HPA has recommended under load is still known at the end.
    "scale_down": {"stabilization_window_seconds": 1200},
}
SCALED_S = 180


class Cluster:
    """A workload under load, and a module that scales it."""

    def __init__(self, kube: client.ApiClient, nodes: Nodes, run: Run) -> None:
        self.nodes, self._kube, self._run = nodes, kube, run
        self._hpas = client.AutoscalingV2Api(kube)

    def scale_by(self, backend: str, **options: Any) -> dict[str, Any]:
        return self._run(autoscalers=[AUTOSCALER], metrics_backend=backend, wait_timeout=SCALED_S, **options)

    @property
    def hpa(self) -> client.V2HorizontalPodAutoscaler:
        return self._hpas.read_namespaced_horizontal_pod_autoscaler("chat", NAMESPACE)

    @property
    def replicas(self) -> int:
        return client.AppsV1Api(self._kube).read_namespaced_deployment("chat", NAMESPACE).spec.replicas

    @property
    def scaled_objects(self) -> list[Any]:
        objects = client.CustomObjectsApi(self._kube)
        return objects.list_namespaced_custom_object("keda.sh", "v1alpha1", NAMESPACE, "scaledobjects")["items"]

    @property
    def rule_names(self) -> set[str]:
        return {rule["metadata"]["name"] for rule in rules(self._kube)}

    def has_hpa(self) -> bool:
        return bool(self._hpas.list_namespaced_horizontal_pod_autoscaler(NAMESPACE).items)


class Counts:
    """The replicas that were seen, each tenth of a second."""

    def __init__(self, cluster: Cluster) -> None:
        self.seen: set[int] = set()
        self._cluster, self._stopped = cluster, threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Counts:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stopped.wait(0.1):
            self.seen.add(self._cluster.replicas)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    controllers = ("deployment-controller", "replicaset-controller", "garbage-collector-controller")
    with running(tmp_path_factory.mktemp("switch"), *controllers) as (plane, kube):
        chain = DecisionChain(plane, kube)
        serve_kind(kube)
        chain.start()
        deploy(kube, NAMESPACE)
        nodes = Nodes(kube, chain)

        def run(*, check: bool = False, **options: Any) -> dict[str, Any]:
            return run_module("gpu_autoscaler", {"kubeconfig": str(plane.kubeconfig), **options}, check=check)

        try:
            with keda_stand_in.installed(kube, chain):
                yield Cluster(kube, nodes, run)
        finally:
            nodes.stop()
            chain.stop()


def succeeded(result: dict[str, Any]) -> dict[str, Any]:
    assert "failed" not in result, result
    return result


def condition(hpa: client.V2HorizontalPodAutoscaler, kind: str) -> str:
    return next((row.reason for row in hpa.status.conditions or () if row.type == kind), "")


def test_from_the_adapter_to_keda_and_back_no_replica_moves(cluster: Cluster) -> None:
    cluster.nodes.load = 110
    succeeded(cluster.scale_by("adapter"))
    cluster.nodes.load = 290
    eventually(lambda: cluster.replicas == 5, "it scales up", SCALED_S)
    cluster.nodes.load = 110  # two would do, but for the window
    eventually(lambda: condition(cluster.hpa, "AbleToScale") == "ScaleDownStabilized", "the window holds", SCALED_S)
    uid = cluster.hpa.metadata.uid

    with Counts(cluster) as counts:
        assert cluster.scale_by("keda", check=True)["changed"]
        assert cluster.scaled_objects == []
        by_keda = succeeded(cluster.scale_by("keda"))
        hpa = cluster.hpa
        assert {metric.type for metric in hpa.spec.metrics} == {"External"}
        assert [owner.kind for owner in hpa.metadata.owner_references] == ["ScaledObject"]
        assert hpa.metadata.uid == uid
        assert [entry["verified"] for entry in by_keda["result"]["autoscalers"]] == [True]
        assert not succeeded(cluster.scale_by("keda"))["changed"]
        eventually(lambda: condition(cluster.hpa, "AbleToScale") == "ScaleDownStabilized", "it still holds", SCALED_S)

        assert cluster.scale_by("adapter", check=True)["changed"]
        assert len(cluster.scaled_objects) == 1
        succeeded(cluster.scale_by("adapter"))
        hpa = cluster.hpa
        assert {metric.type for metric in hpa.spec.metrics} == {"Pods"}
        assert not hpa.metadata.owner_references
        assert hpa.metadata.uid == uid
        assert cluster.scaled_objects == []
        assert not succeeded(cluster.scale_by("adapter"))["changed"]
        eventually(lambda: condition(cluster.hpa, "AbleToScale") == "ScaleDownStabilized", "it still holds", SCALED_S)
    assert counts.seen == {5}
    assert cluster.rule_names == {"kubegpu-gpu"}


def test_absent_removes_the_scaled_object_its_hpa_and_its_rules(cluster: Cluster) -> None:
    succeeded(cluster.scale_by("keda"))
    assert cluster.rule_names == {"kubegpu-gpu", "kubegpu-decisions-gpu", f"kubegpu-{NAMESPACE}.chat"}
    before = cluster.replicas
    for check in (True, False):
        assert succeeded(cluster.scale_by("keda", state="absent", check=check))["changed"]
    eventually(lambda: not cluster.scaled_objects and not cluster.has_hpa(), "both are gone", SCALED_S)
    assert cluster.replicas == before
    assert cluster.rule_names == set()
    assert not succeeded(cluster.scale_by("keda", state="absent"))["changed"]
