"""Names of DCGM, and values of nodes and of the fleet, by the role's rules in a real adapter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from control_plane import ControlPlane, eventually, running
from kubernetes import client
from metric_chain import ADAPTER_VALUES, MetricChain
from module_process import run_module
from workloads import Workloads

LISTED_S = 120
USED = {"chat-0": 30.0, "chat-1": 90.0}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    """Of its own: a cluster has one adapter, and this one has the role's further rules."""
    with running(tmp_path_factory.mktemp("control-plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def kube(plane: tuple[ControlPlane, client.ApiClient]) -> client.ApiClient:
    return plane[1]


@pytest.fixture(scope="module")
def chain(plane: tuple[ControlPlane, client.ApiClient]) -> Iterator[MetricChain]:
    """Two pods in `ml`, one of another namespace, an idle GPU; and two nodes as they are recorded."""
    chain = MetricChain(*plane, adapter_rules=ADAPTER_VALUES["__prometheus_adapter_raw_rules"])
    rows = [("ml", pod, value) for pod, value in USED.items()] + [("other", "train-0", 100.0), ("", "", 0.0)]
    chain.exporter.text = "".join(
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{number}",UUID="GPU-{number}",service="dcgm-exporter"'
        + (f',namespace="{namespace}",pod="{pod}"' if pod else "")
        + f"}} {value}\n"
        for number, (namespace, pod, value) in enumerate(rows)
    ) + "".join(
        f'gpu:utilization:percent{{node="{node}",gpu="0",UUID="GPU-{node}"}} {value}\n'
        for node, value in (("gpu1", 20), ("gpu2", 60))
    )
    chain.start()
    yield chain
    chain.stop()


@pytest.fixture(scope="module")
def workloads(kube: client.ApiClient, chain: MetricChain) -> Iterator[Workloads]:
    workloads = Workloads(kube, namespace="ml")
    workloads.deployment("chat", replicas=2)
    for pod in USED:
        workloads.ready_pod(pod, app="chat", start_s=600)
    yield workloads
    workloads.remove()


def values(plane: ControlPlane, **options: Any) -> dict[str, float]:
    """By the name of the object; an external value has none."""
    asked = {"kubeconfig": str(plane.kubeconfig), "namespace": "ml", "wait_sleep": 1, "wait_timeout": LISTED_S}
    result = run_module("custom_metric_info", {**asked, "until": "result.samples", **options})
    return {item.get("name", ""): item["value"] for item in result["result"]["samples"]}


def test_pods_and_the_exporter_s_service_have_dcgm_s_own_names(
    plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads
) -> None:
    raw = {"metric": "DCGM_FI_DEV_GPU_UTIL"}
    # The adapter follows the pods by a watch, one after the other.
    assert values(plane[0], **raw, until=f"length(result.samples) == `{len(USED)}`") == USED
    assert values(plane[0], **raw, resource="services", name="dcgm-exporter") == {"dcgm-exporter": 60.0}


def test_a_node_and_the_fleet_have_a_value(
    plane: tuple[ControlPlane, client.ApiClient], chain: MetricChain, workloads: Workloads
) -> None:
    with chain.api("external.metrics.k8s.io"):
        fleet = {"api": "external", "metric": "gpu_utilization_percent"}
        assert list(values(plane[0], **fleet).values()) == [40.0]
        assert list(values(plane[0], **fleet, label_selectors=["node=gpu2"]).values()) == [60.0]


def test_an_hpa_of_somebody_else_scales_on_the_exporter_s_service(
    plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads
) -> None:
    hpas = client.AutoscalingV2Api(plane[1])
    described = {"kind": "Service", "name": "dcgm-exporter", "apiVersion": "v1"}
    metric = {
        "describedObject": described,
        "metric": {"name": "DCGM_FI_DEV_GPU_UTIL"},
        "target": {"type": "Value", "value": "20"},
    }
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "chat", "apiVersion": "apps/v1"},
        "maxReplicas": 6,
        "metrics": [{"type": "Object", "object": metric}],
    }
    hpas.create_namespaced_horizontal_pod_autoscaler("ml", {"metadata": {"name": "theirs"}, "spec": spec})

    def decided() -> bool:
        return hpas.read_namespaced_horizontal_pod_autoscaler("theirs", "ml").status.desired_replicas in (4, 6)

    eventually(decided, "the HPA goes from two replicas by 60 of 20", LISTED_S)
