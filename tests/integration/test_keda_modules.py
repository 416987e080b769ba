"""What the modules report of an autoscaler that KEDA serves: the same as of one that prometheus-adapter serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from control_plane import eventually
from keda import Rig, beside_the_adapter, needs_keda
from kubernetes import client
from module_process import run_module
from shared_load import BY_ADAPTER, BY_KEDA, CONTROLLERS, WAYS, Nodes, deploy, replicas_of
from workloads import Workloads

pytestmark = needs_keda

SCALED_S, PROOF_S = 180, 120
# In percent of one GPU, for two replicas and for five.
LOW, HIGH = 110, 290
BACKENDS = {BY_ADAPTER: "adapter", BY_KEDA: "keda"}
AUTOSCALERS = [
    {
        "namespace": namespace,
        "target": {"name": "chat"},
        "max_replicas": 12,
        "dead_time_seconds": 15,
        "backend": backend,
        "scale_down": {
            "stabilization_window_seconds": 5,
            "policies": [{"type": "Pods", "value": 4, "period_seconds": 5}],
        },
    }
    for namespace, backend in BACKENDS.items()
]


class Cluster(NamedTuple):
    rig: Rig
    nodes: Nodes

    def run(self, module: str, **options: Any) -> dict[str, Any]:
        access = self.rig.access
        if module == "gpu_autoscaler_watch":
            access = {"kubeconfig": access["kubeconfig"]}
        result = run_module(module, {**access, **options})
        assert "failed" not in result, result
        return result

    def settle(self, load: float, replicas: int) -> None:
        self.nodes.load = load
        for namespace in WAYS:
            eventually(
                lambda it=namespace: self.ready(it) == replicas,
                f"{replicas} replicas for {load} % {namespace}",
                SCALED_S,
            )

    def ready(self, namespace: str) -> int:
        """0 while the pods are not as many as the Deployment asks for."""
        pods = client.CoreV1Api(self.rig.kube).list_namespaced_pod(namespace).items
        ready = [pod for pod in pods if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]
        return len(ready) if len(ready) == len(pods) == replicas_of(self.rig.kube, namespace) else 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with beside_the_adapter(tmp_path_factory.mktemp("modules"), *CONTROLLERS) as rig:
        Workloads(rig.kube, BY_KEDA).node("gpu1", gpus=32)
        for namespace in WAYS:
            deploy(rig.kube, namespace)
        nodes = Nodes(rig.kube, rig.chain.exporter, starts_s=2)
        nodes.load = LOW
        cluster = Cluster(rig, nodes)
        try:
            cluster.run("gpu_autoscaler", autoscalers=AUTOSCALERS, wait_timeout=PROOF_S)
            yield cluster
        finally:
            nodes.stop()


def both(result: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries of the adapter's autoscaler and of KEDA's."""
    entries = {entry["namespace"]: entry for entry in result["result"]["autoscalers"]}
    return entries[BY_ADAPTER], entries[BY_KEDA]


def test_verification_shows_the_gpu_percent_behind_a_decision(cluster: Cluster) -> None:
    cluster.settle(LOW, 2)
    entries = both(cluster.run("gpu_autoscaler", autoscalers=AUTOSCALERS, wait_timeout=PROOF_S))
    for entry in entries:
        assert entry["verified"]
        assert len(entry["pod_values"]) == 2
        assert set(entry["pod_values"].values()) == {55.0}


def test_info_reads_the_autoscaler_that_was_asked_for(cluster: Cluster) -> None:
    cluster.settle(HIGH, 5)
    read = lambda: both(cluster.run("gpu_autoscaler_info", verify=True, wait_timeout=PROOF_S))  # noqa: E731
    by_adapter, by_keda = eventually(
        lambda: found if {*(found := read())[1]["pod_values"].values()} == {58.0} else None, "values settle", PROOF_S
    )
    for part in ("metric", "min_replicas", "max_replicas", "managed", "target", "replicas", "verified"):
        assert by_keda[part] == by_adapter[part], part
    assert (by_keda["metric"], by_keda["replicas"], by_keda["verified"]) == ("gpu", 5, True)
    assert by_keda["budget"]["worst_s"] == by_adapter["budget"]["worst_s"]
    [metric] = by_keda["metrics"]
    assert (metric["metric"], metric["target_value"]) == ("gpu", 60)


def test_the_doctor_finds_nothing(cluster: Cluster) -> None:
    cluster.settle(LOW, 2)

    def report() -> dict[str, Any] | None:
        found = cluster.run("gpu_doctor", grace=False)["result"]
        print([finding["id"] for finding in found["findings"]])
        return found if not found["findings"] else None

    found = eventually(report, "the doctor finds nothing", PROOF_S)
    assert found["verdict"] == "ok"
    assert [autoscaler["verified"] for autoscaler in found["autoscalers"]] == [True, True]
    by_adapter, by_keda = sorted(found["autoscalers"], key=lambda one: one["namespace"])
    assert (by_adapter["metric"], by_keda["metric"]) == ("gpu", "gpu")


def test_a_watch_sees_the_load_and_the_decision(cluster: Cluster) -> None:
    """The HPA of KEDA has numbers of replicas in place of a load: the ratio is of these."""
    cluster.settle(LOW, 2)
    cluster.nodes.load = HIGH
    seen = {
        namespace: cluster.run("gpu_autoscaler_watch", namespace=namespace, name="chat", seconds=15)["result"]
        for namespace in WAYS
    }
    by_keda = seen[BY_KEDA]
    assert by_keda["max_replicas"] == 12
    assert by_keda["samples"][-1]["desired"] == 5


def test_a_plan_replays_the_load_and_its_decisions(cluster: Cluster) -> None:
    cluster.settle(LOW, 2)
    cluster.settle(HIGH, 5)
    result = cluster.run("gpu_autoscaler_plan", history=60, step=1, recent=60, settings=[{"target_value": 30}])
    assert result["result"]["not_planned"] == []
    plans = {plan["namespace"]: plan for plan in result["result"]["plans"]}
    assert set(plans) == set(WAYS)
    for plan in plans.values():
        assert (plan["metric"], plan["gpus_per_replica"]) == ("gpu", 1)
        today, other = plan["settings"]
        assert (today["target_value"], today["max_replicas"], other["target_value"]) == (60, 12, 30)
        assert plan["history"]["load"][-1] == pytest.approx(HIGH, rel=0.15)  # smoothed, and pods have just ended
