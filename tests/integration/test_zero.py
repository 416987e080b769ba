"""min_replicas: 0 on a control plane with the feature gate HPAScaleToZero, and on one without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from control_plane import eventually, running
from kubernetes import client
from metric_chain import MetricChain
from module_process import run_module
from prometheus_rules import serve_kind
from workloads import Workloads

Run = Callable[..., dict[str, Any]]
NAMESPACE = "zero"
SCALED_S = 120
CONTROLLERS = ("deployment-controller", "replicaset-controller")


def sleeper(namespace: str, **changes: Any) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "target": {"name": "chat"},
        "metric": {"name": "queue", "query": 'gateway_queue{service="chat"}', "per": "workload"},
        "target_value": 5,
        "min_replicas": 0,
        "max_replicas": 4,
        "dead_time_seconds": 15,
        "scale_down": {
            "stabilization_window_seconds": 0,
            "policies": [{"type": "Percent", "value": 100, "period_seconds": 15}],
        },
        **changes,
    }


class Cluster:
    def __init__(self, kube: client.ApiClient, chain: MetricChain, run: Run) -> None:
        self._kube, self._chain, self.run = kube, chain, run

    def queue(self, length: float) -> None:
        self._chain.exporter.text = f'gateway_queue{{service="chat"}} {length}\n'

    @property
    def replicas(self) -> int:
        return client.AppsV1Api(self._kube).read_namespaced_deployment("chat", NAMESPACE).spec.replicas

    def scale(self, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        client.AppsV1Api(self._kube).patch_namespaced_deployment_scale("chat", NAMESPACE, body)

    def findings(self) -> list[str]:
        """Of the doctor. There is no node and no exporter here, which it reports as well."""
        done = self.run("gpu_doctor", namespace=NAMESPACE, grace=False)
        return [finding["id"] for finding in done["result"]["findings"]]

    def hpas(self) -> list[str]:
        found = client.AutoscalingV2Api(self._kube).list_namespaced_horizontal_pod_autoscaler(NAMESPACE)
        return [hpa.metadata.name for hpa in found.items]

    def condition(self, kind: str) -> tuple[str, str]:
        hpa = client.AutoscalingV2Api(self._kube).read_namespaced_horizontal_pod_autoscaler("chat", NAMESPACE)
        rows = (hpa.status and hpa.status.conditions) or ()
        return next(((row.status, row.reason) for row in rows if row.type == kind), ("", ""))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with made(tmp_path_factory.mktemp("zero"), "HPAScaleToZero=true") as cluster:
        yield cluster


@contextmanager
def made(work: Path, gates: str) -> Iterator[Cluster]:
    with running(work, *CONTROLLERS, gates=gates) as (plane, kube):
        chain = MetricChain(plane, kube)
        serve_kind(kube)
        chain.start()
        Workloads(kube, NAMESPACE).deployment("chat")

        def run(module: str = "gpu_autoscaler", **options: Any) -> dict[str, Any]:
            result = run_module(module, {"kubeconfig": str(plane.kubeconfig), **options})
            return {**result, "warnings": [warning["event"]["msg"] for warning in result.get("warnings", [])]}

        try:
            yield Cluster(kube, chain, run)
        finally:
            chain.stop()


def test_to_zero_and_back_with_an_ok_at_zero(cluster: Cluster) -> None:
    cluster.queue(8)
    wanted = [sleeper(NAMESPACE)]
    made = cluster.run(autoscalers=wanted, verify=False)
    assert made["changed"], made
    eventually(lambda: cluster.replicas == 2, "the queue needs two replicas", SCALED_S)

    cluster.queue(0)
    eventually(lambda: cluster.replicas == 0, "nothing to do", SCALED_S)
    eventually(lambda: cluster.condition("ScaledToZero") == ("True", "ScaledToZero"), "by the HPA", SCALED_S)
    info = cluster.run("gpu_autoscaler_info", autoscalers=wanted, verify=True, wait_timeout=30)
    assert "failed" not in info, info
    (seen,) = info["result"]["autoscalers"]
    assert (seen["replicas"], seen["min_replicas"]) == (0, 0)
    assert "WORKLOAD_AT_ZERO" not in cluster.findings()
    again = cluster.run(autoscalers=wanted, verify=False)
    assert (again["changed"], [text for text in again["warnings"] if "not by its HPA" in text]) == (False, [])

    began = time.monotonic()
    cluster.queue(12)
    eventually(lambda: cluster.replicas > 0, "it wakes up", SCALED_S)
    print(f"awake after {time.monotonic() - began:.1f} s")
    eventually(lambda: cluster.replicas == 3, "the queue needs three", SCALED_S)


def test_the_zero_of_a_person_is_told_from_the_hpa_s(cluster: Cluster) -> None:
    cluster.queue(8)
    wanted = [sleeper(NAMESPACE)]
    cluster.run(autoscalers=wanted, verify=False)
    eventually(lambda: cluster.replicas == 2, "the queue needs two replicas", SCALED_S)
    cluster.scale(0)
    eventually(lambda: cluster.condition("ScalingActive") == ("False", "ScalingDisabled"), "switched off", SCALED_S)
    told = cluster.run(autoscalers=wanted, verify=False)
    assert ["kubectl -n zero scale deployment chat --replicas=1" in text for text in told["warnings"]].count(True) == 1
    proof = cluster.run("gpu_autoscaler_info", autoscalers=wanted, verify=True, wait_timeout=5)
    assert "replicas is 0" in proof["msg"]
    assert "WORKLOAD_AT_ZERO" in cluster.findings()
    assert cluster.replicas == 0
    cluster.scale(1)
    eventually(lambda: cluster.replicas == 2, "it scales again", SCALED_S)


def test_without_the_gate_it_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with made(tmp_path, "HPAScaleToZero=false") as cluster:
        refused = cluster.run(autoscalers=[sleeper(NAMESPACE)])
        assert "must be greater than or equal to 1" in refused["msg"]
        assert "set backend: keda" in refused["msg"]
        assert not refused["changed"]
        assert cluster.hpas() == []
        assert cluster.run(autoscalers=[sleeper(NAMESPACE, min_replicas=1)])["changed"]
