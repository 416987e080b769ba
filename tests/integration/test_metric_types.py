"""Each way in which an HPA can read a metric, from the exporter's text to the HPA's condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client
from metric_chain import PROOF_S, MetricChain
from workloads import Workloads

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def spec(chain: MetricChain, workloads: Workloads) -> dict[str, Any]:
    """A Deployment of two pods with a GPU each, which Prometheus knows to be its pods."""
    workloads.deployment("chat", replicas=2)
    workloads.node("gpu1", gpus=8)
    pods = {"chat-0": 50, "chat-1": 30}
    for pod in pods:
        workloads.ready_pod(pod, app="chat")
    namespace = workloads.namespace
    chain.exporter.gpus(namespace, pods)
    chain.exporter.text += "".join(
        f'kube_pod_owner{{namespace="{namespace}",pod="{pod}",owner_kind="ReplicaSet",owner_name="chat-6d5f"}} 1\n'
        f'istio_requests_total{{namespace="{namespace}",pod="{pod}"}} 7\n'
        for pod in pods
    )
    chain.exporter.text += (
        f'kube_replicaset_owner{{namespace="{namespace}",replicaset="chat-6d5f",owner_kind="Deployment",'
        f'owner_name="chat"}} 1\n'
    )
    chain.exporter.text += f'ingress_queue{{namespace="{namespace}",ingress="chat"}} 12\n'
    return {"namespace": namespace, "target": {"name": "chat"}, "max_replicas": 8}


def proven(result: dict[str, Any]) -> dict[str, Any]:
    assert not result.get("failed")
    (entry,) = result["result"]["autoscalers"]
    assert entry["verified"] is True
    return entry


def test_an_object_is_the_average_over_the_workloads_pods(run: Run, spec: dict[str, Any]) -> None:
    result = run(verify=True, wait_timeout=PROOF_S, autoscalers=[{**spec, "metric_type": "Object"}])
    assert proven(result)["pod_values"] == {"chat": 40}
    assert ["each new pod makes the HPA request more" in warning for warning in result["warnings"]].count(True) == 1
    assert [rule["name"] for rule in result["result"]["rules"]] == ["kubegpu-gpu", f"kubegpu-{spec['namespace']}.chat"]


def test_an_external_metric_is_their_sum(run: Run, chain: MetricChain, spec: dict[str, Any]) -> None:
    wanted = [{**spec, "metric_type": "External"}]
    assert "APIService v1beta1.external.metrics.k8s.io: not found" in run(autoscalers=wanted)["msg"]
    with chain.api("external.metrics.k8s.io"):
        entry = proven(run(verify=True, wait_timeout=PROOF_S, autoscalers=wanted))
        assert entry["pod_values"] == {"chat": 80}


def test_a_workloads_total_is_divided_by_its_replicas(run: Run, kube: client.ApiClient, spec: dict[str, Any]) -> None:
    query = f'ingress_queue{{namespace="{spec["namespace"]}"}}'
    metric = {"name": "requests_waiting", "query": query, "per": "workload"}
    entry = proven(run(verify=True, wait_timeout=PROOF_S, autoscalers=[{**spec, "metric": metric, "target_value": 3}]))
    assert entry["pod_values"] == {"chat": 12}
    # 12 requests at 3 a pod are 4 pods, however many there are.
    assert entry["desired_replicas"] == 4


def test_several_metrics_in_one_hpa(run: Run, kube: client.ApiClient, chain: MetricChain, spec: dict[str, Any]) -> None:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    requests = {"name": "requests", "query": "max by (namespace, pod) (istio_requests_total)"}
    extra = [{"metric": requests, "target_value": 50}, {"metric": "gpu_util", "target_value": 90}]
    entry = proven(run(verify=True, wait_timeout=PROOF_S, autoscalers=[{**spec, "extra_metrics": extra}]))
    assert {metric["metric"]: metric["pod_values"] for metric in entry["metrics"]} == {
        "gpu": {"chat-0": 50, "chat-1": 30},
        "requests": {"chat-0": 7, "chat-1": 7},
        "gpu_util": {"chat-0": 50, "chat-1": 30},
    }
    extra.append(cpu)
    refused = run(autoscalers=[{**spec, "extra_metrics": extra}])
    assert "asks for cpu, and no server is registered for metrics.k8s.io" in refused["msg"]
    assert refused["changed"] is False
    assert "asks for cpu" in str(run(check=True, autoscalers=[{**spec, "extra_metrics": extra}])["warnings"])
    # Its server knows nothing of these pods. The HPA is active all the same, but would never scale down.
    with chain.api("metrics.k8s.io"):
        result = run(verify=True, wait_timeout=5, autoscalers=[{**spec, "extra_metrics": extra}])
        assert result["hop"] == "hpa"
        assert "no value of Resource cpu" in result["msg"]
        hpa = client.AutoscalingV2Api(kube).read_namespaced_horizontal_pod_autoscaler("chat", spec["namespace"])
        assert [metric.type for metric in hpa.spec.metrics] == ["Pods", "Pods", "Pods", "Resource"]
        assert run(autoscalers=[{**spec, "extra_metrics": extra}])["changed"] is False


def test_a_rule_of_a_workload_goes_with_it(run: Run, kube: client.ApiClient, spec: dict[str, Any]) -> None:
    run(autoscalers=[{**spec, "metric_type": "Object"}])
    shown = run(check=True, autoscalers=[spec])
    assert ("deleted", f"kubegpu-{spec['namespace']}.chat") in {
        (rule["action"], rule["name"]) for rule in shown["result"]["rules"]
    }
    assert run(autoscalers=[spec])["changed"] is True
    assert run(autoscalers=[spec])["changed"] is False
    assert len(run(state="absent", autoscalers=[spec])["diff"]) == 2


def test_a_target_that_only_has_a_scale_subresource_is_proven(
    run: Run, chain: MetricChain, workloads: Workloads
) -> None:
    with workloads.kind("Rollout", "argoproj.io/v1alpha1"):
        workloads.scalable("Rollout", "argoproj.io/v1alpha1", "chat")
        workloads.ready_pod("chat-0", app="chat")
        chain.exporter.gpus(workloads.namespace, {"chat-0": 50})
        wanted = [{"namespace": workloads.namespace, "target": {"kind": "Rollout", "name": "chat"}, "max_replicas": 2}]
        assert proven(run(verify=True, wait_timeout=PROOF_S, autoscalers=wanted))["pod_values"] == {"chat-0": 50}
