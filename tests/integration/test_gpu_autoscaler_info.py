"""Module gpu_autoscaler_info: what it reads back, what it proves later, and what it does not wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client
from metric_chain import PROOF_S, MetricChain
from test_gpu_autoscaler import OTHER_HPA
from workloads import Workloads

Run = Callable[..., dict[str, Any]]

INFO = "gpu_autoscaler_info"


@pytest.fixture
def chat(run: Run, workloads: Workloads) -> dict[str, Any]:
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    spec = {"namespace": workloads.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    run(autoscalers=[spec])
    return spec


def test_what_was_applied_is_proven_later(
    run: Run, chain: MetricChain, workloads: Workloads, chat: dict[str, Any]
) -> None:
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50})
    result = run(INFO, autoscalers=[chat], verify=True, wait_timeout=PROOF_S)
    assert not result.get("failed")
    assert result["changed"] is False
    (entry,) = result["result"]["autoscalers"]
    assert (entry["managed"], entry["verified"], entry["metric"]) == (True, True, "gpu")
    assert entry["target"] == {"api_version": "apps/v1", "kind": "Deployment", "name": "chat"}
    assert (entry["min_replicas"], entry["max_replicas"], entry["replicas"]) == (1, 4, 1)
    assert entry["pod_values"] == {"chat-0": 50}
    assert entry["ready_pods"] == ["chat-0"]
    (evidence,) = entry["metrics"]
    assert (evidence["listed"], evidence["prometheus"]) == (True, {"chat-0": 50})
    assert 0 <= evidence["age_s"] < PROOF_S
    assert {"type": "ScalingActive", "status": "True"}.items() <= entry["conditions"][1].items()
    budget = entry["budget"]
    assert (budget["scrape_s"], budget["sources"]["scrape"]) == (pytest.approx(1, abs=0.5), "seen")
    assert (budget["evaluate_s"], budget["sources"]["evaluate"]) == (2, "configured")
    assert budget["worst_s"] == pytest.approx(
        sum(budget[f"{hop}_s"] for hop in ("collect", "scrape", "evaluate", "sync")), abs=0.2
    )


def test_it_finds_by_itself_what_the_module_has_made(
    run: Run, kube: client.ApiClient, workloads: Workloads, chat: dict[str, Any]
) -> None:
    client.AutoscalingV2Api(kube).create_namespaced_horizontal_pod_autoscaler(workloads.namespace, OTHER_HPA)
    found = run(INFO, namespace=workloads.namespace)["result"]["autoscalers"]
    assert [entry["name"] for entry in found] == ["chat"]
    assert found[0]["verified"] is False
    named = run(INFO, autoscalers=[{"namespace": workloads.namespace, "name": "other"}])["result"]["autoscalers"]
    assert [(entry["name"], entry["managed"], entry["metrics"]) for entry in named] == [("other", False, [])]


def test_one_that_is_not_there(run: Run, workloads: Workloads) -> None:
    result = run(INFO, autoscalers=[{"namespace": workloads.namespace, "name": "chat"}])
    assert result["failed"]
    assert f"unknown HPA {workloads.namespace}/chat" in result["msg"]


def test_a_target_without_a_ready_pod_is_not_waited_for(
    run: Run, chain: MetricChain, workloads: Workloads, chat: dict[str, Any]
) -> None:
    """The other one is, and is proven; the deadline is far away."""
    workloads.deployment("embed")
    workloads.ready_pod("embed-0", app="embed")
    chain.exporter.gpus(workloads.namespace, {"embed-0": 50})
    embed = {**chat, "target": {"name": "embed"}}
    started = time.monotonic()
    result = run(verify=True, wait_timeout=500, autoscalers=[chat, embed])
    assert time.monotonic() - started < 250
    assert result["hop"] == "workload"
    assert f"Deployment {workloads.namespace}/chat: 0 of 0 pods are ready" in result["msg"]
    assert [entry["verified"] for entry in result["result"]["autoscalers"]] == [False, True]
    assert result["result"]["autoscalers"][1]["pod_values"] == {"embed-0": 50}


def test_each_that_is_broken_is_named(run: Run, workloads: Workloads, chat: dict[str, Any]) -> None:
    workloads.deployment("embed", replicas=0)
    result = run(verify=True, wait_timeout=500, autoscalers=[chat, {**chat, "target": {"name": "embed"}}])
    assert f"Deployment {workloads.namespace}/chat: 0 of 0 pods are ready" in result["msg"]
    assert f"Deployment {workloads.namespace}/embed: replicas is 0" in result["msg"]


def test_the_pace_is_measured_on_the_pods_and_kept(
    run: Run, chain: MetricChain, workloads: Workloads, chat: dict[str, Any]
) -> None:
    assumed = run(INFO, autoscalers=[chat])["result"]["behaviors"][0]
    assert (assumed["dead_time_s"], assumed["measured"], assumed["given"]) == (60, False, [])
    workloads.ready_pod("chat-0", app="chat", start_s=200)
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50})
    result = run(autoscalers=[chat])
    assert result["changed"] is True
    measured = result["result"]["behaviors"][0]
    assert (measured["dead_time_s"], measured["measured"]) == (240, True)
    assert "in 240 s" in measured["scale_up"]
    assert run(autoscalers=[chat])["changed"] is False
    given = {"policies": [{"type": "Pods", "value": 1, "period_seconds": 30}]}
    own = {**chat, "scale_up": given, "scale_down": {**given, "stabilization_window_seconds": 60}}
    result = run(autoscalers=[own])
    behavior = result["result"]["behaviors"][0]
    assert (behavior["scale_up"], behavior["given"]) == ("1 pods in 30 s at once", ["scale_up", "scale_down"])
    assert run(autoscalers=[own])["changed"] is False
