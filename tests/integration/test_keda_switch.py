"""An autoscaler changes from prometheus-adapter to KEDA and back: no replica moves, and its HPA is the same object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keda
import pytest
from control_plane import eventually
from keda import needs_keda
from kubernetes import client
from module_process import run_module
from prometheus_rules import rules
from shared_load import BY_KEDA as NAMESPACE
from shared_load import CONTROLLERS, Counts, Nodes, condition, deploy, replicas_of

pytestmark = needs_keda

Run = Callable[..., dict[str, Any]]
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
        self.nodes, self.kube, self._run = nodes, kube, run
        self._hpas = client.AutoscalingV2Api(kube)

    def scale_by(self, backend: str, **options: Any) -> dict[str, Any]:
        return self._run(autoscalers=[AUTOSCALER], metrics_backend=backend, wait_timeout=SCALED_S, **options)

    @property
    def hpa(self) -> client.V2HorizontalPodAutoscaler:
        return self._hpas.read_namespaced_horizontal_pod_autoscaler("chat", NAMESPACE)

    @property
    def replicas(self) -> int:
        return replicas_of(self.kube, NAMESPACE)

    def holds(self) -> bool:
        """Whether it is the window of the HPA that keeps the replicas."""
        return condition(self.kube, NAMESPACE, "AbleToScale")[1] == "ScaleDownStabilized"

    @property
    def scaled_objects(self) -> list[Any]:
        group, version, plural = keda.SCALED_OBJECTS
        return client.CustomObjectsApi(self.kube).list_namespaced_custom_object(group, version, NAMESPACE, plural)[
            "items"
        ]

    @property
    def rule_names(self) -> set[str]:
        return {rule["metadata"]["name"] for rule in rules(self.kube)}

    def has_hpa(self) -> bool:
        return bool(self._hpas.list_namespaced_horizontal_pod_autoscaler(NAMESPACE).items)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with keda.beside_the_adapter(tmp_path_factory.mktemp("switch"), *CONTROLLERS) as rig:
        deploy(rig.kube, NAMESPACE)
        nodes = Nodes(rig.kube, rig.chain.exporter, [NAMESPACE])

        def run(*, check: bool = False, **options: Any) -> dict[str, Any]:
            return run_module("gpu_autoscaler", {**rig.access, **options}, check=check)

        try:
            yield Cluster(rig.kube, nodes, run)
        finally:
            nodes.stop()


def succeeded(result: dict[str, Any]) -> dict[str, Any]:
    assert "failed" not in result, result
    return result


def test_from_the_adapter_to_keda_and_back_no_replica_moves(cluster: Cluster) -> None:
    cluster.nodes.load = 110
    succeeded(cluster.scale_by("adapter"))
    cluster.nodes.load = 290
    eventually(lambda: cluster.replicas == 5, "it scales up", SCALED_S)
    cluster.nodes.load = 110  # two would do, but for the window
    eventually(cluster.holds, "the window holds", SCALED_S)
    uid = cluster.hpa.metadata.uid

    with Counts(cluster.kube, NAMESPACE) as counts:
        assert cluster.scale_by("keda", check=True)["changed"]
        assert cluster.scaled_objects == []
        by_keda = succeeded(cluster.scale_by("keda"))
        hpa = cluster.hpa
        assert {metric.type for metric in hpa.spec.metrics} == {"External"}
        assert [owner.kind for owner in hpa.metadata.owner_references] == ["ScaledObject"]
        assert hpa.metadata.uid == uid
        assert [entry["verified"] for entry in by_keda["result"]["autoscalers"]] == [True]
        assert not succeeded(cluster.scale_by("keda"))["changed"]
        eventually(cluster.holds, "it still holds", SCALED_S)

        assert cluster.scale_by("adapter", check=True)["changed"]
        assert len(cluster.scaled_objects) == 1
        succeeded(cluster.scale_by("adapter"))
        hpa = cluster.hpa
        assert {metric.type for metric in hpa.spec.metrics} == {"Pods"}
        assert not hpa.metadata.owner_references
        assert hpa.metadata.uid == uid
        assert cluster.scaled_objects == []
        assert not succeeded(cluster.scale_by("adapter"))["changed"]
        eventually(cluster.holds, "it still holds", SCALED_S)
    assert counts.values == {5}
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
