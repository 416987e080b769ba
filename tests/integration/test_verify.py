"""Verification by gpu_autoscaler: the proof, and for each hop that can break its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from control_plane import eventually
from kubernetes import client
from metric_chain import PROOF_S, MetricChain
from workloads import Workloads

Run = Callable[..., dict[str, Any]]

# What each test is about is there before: what is broken does not mend itself.
FAILURE_S = 8
RECORDED = "namespace_pod:gpu:avg"


@pytest.fixture
def spec(workloads: Workloads) -> dict[str, Any]:
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    return {"namespace": workloads.namespace, "target": {"name": "chat"}, "max_replicas": 4}


def test_each_ready_pod_has_its_value(run: Run, chain: MetricChain, workloads: Workloads, spec: dict[str, Any]) -> None:
    for pod in ("chat-0", "chat-1"):
        workloads.ready_pod(pod, app="chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50, "chat-1": 30})
    result = run(verify=True, wait_timeout=PROOF_S, autoscalers=[spec])
    assert not result.get("failed")
    assert result["result"]["autoscalers"][0]["pod_values"] == {"chat-0": 50, "chat-1": 30}
    assert result["warnings"] == []
    assert run(verify=True, wait_timeout=PROOF_S, autoscalers=[spec])["changed"] is False


def test_no_ready_pod(run: Run, chain: MetricChain, workloads: Workloads, spec: dict[str, Any]) -> None:
    chain.exporter.gpus(workloads.namespace, {"embed-0": 50})
    result = run(verify=True, wait_timeout=1, autoscalers=[spec])
    assert result["hop"] == "workload"
    assert result["changed"] is True


def test_no_series_of_the_exporter(run: Run, chain: MetricChain, workloads: Workloads, spec: dict[str, Any]) -> None:
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.text = ""
    eventually(lambda: "DCGM_FI" not in chain.series(), "the series of other tests end", PROOF_S)
    result = run(verify=True, wait_timeout=FAILURE_S, autoscalers=[spec])
    assert result["hop"] == "exporter"
    assert "no DaemonSet runs an image dcgm-exporter, and Prometheus has no series DCGM_FI_*" in result["msg"]


def test_series_that_name_another_pod(run: Run, chain: MetricChain, workloads: Workloads, spec: dict[str, Any]) -> None:
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(workloads.namespace, {"embed-0": 50})
    eventually(lambda: "embed-0" in chain.series(), "the series are scraped", PROOF_S)
    result = run(verify=True, wait_timeout=FAILURE_S, autoscalers=[spec])
    assert result["hop"] == "labels"
    assert "names chat-0" in result["msg"]


def test_a_rule_that_is_not_loaded(run: Run, chain: MetricChain, workloads: Workloads, spec: dict[str, Any]) -> None:
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50})
    options = {"prometheus": {"rule_labels": {"release": "another"}}}
    eventually(lambda: workloads.namespace in chain.series(), "the series are scraped", PROOF_S)
    eventually(lambda: not chain.records(RECORDED), "the rules of other tests are unloaded", PROOF_S)
    result = run(verify=True, wait_timeout=FAILURE_S, autoscalers=[spec], **options)
    assert result["hop"] == "rule"
    assert "it records namespace_pod:gpu:avg, which Prometheus" in result["msg"]


def test_values_that_are_none(run: Run, chain: MetricChain, workloads: Workloads, spec: dict[str, Any]) -> None:
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 9.2e18})
    eventually(lambda: str(int(9.2e18)) in chain.series(), "the value is scraped", PROOF_S)
    result = run(verify=True, wait_timeout=FAILURE_S, autoscalers=[spec])
    assert result["hop"] == "exporter"
    assert f"pod {workloads.namespace}/chat-0: DCGM_FI_DEV_GPU_UTIL is 9.2e+18" in result["msg"]


def test_an_adapter_that_is_down(run: Run, chain: MetricChain, workloads: Workloads, spec: dict[str, Any]) -> None:
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50})
    assert not run(verify=True, wait_timeout=PROOF_S, autoscalers=[spec]).get("failed")
    with chain.adapter_away():
        result = run(verify=True, wait_timeout=FAILURE_S, autoscalers=[spec])
    assert result["hop"] == "metrics_api"
    assert "APIService v1beta1.custom.metrics.k8s.io" in result["msg"]


def test_an_hpa_that_does_not_scale(
    run: Run, kube: client.ApiClient, chain: MetricChain, workloads: Workloads, spec: dict[str, Any]
) -> None:
    """A label that two controllers' pods share makes the selector ambiguous, which only the HPA's condition tells."""
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50})
    assert not run(verify=True, wait_timeout=PROOF_S, autoscalers=[spec]).get("failed")
    workloads.deployment("twin", selects="chat")
    other = {**spec, "name": "twin", "target": {"name": "twin"}}
    assert not run(autoscalers=[spec, other]).get("failed")
    hpas = client.AutoscalingV2Api(kube)

    def told() -> bool:
        found = hpas.list_namespaced_horizontal_pod_autoscaler(workloads.namespace).items
        return all("AmbiguousSelector" in str(hpa.status.conditions) for hpa in found)

    eventually(told, "the HPA controller says it", PROOF_S)
    result = run(verify=True, wait_timeout=FAILURE_S, autoscalers=[spec, other])
    assert result["hop"] == "hpa"
    assert "AmbiguousSelector" in result["msg"]
