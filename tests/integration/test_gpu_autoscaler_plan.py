"""Module gpu_autoscaler_plan on a real Prometheus: what it reads of the last seconds, and what it makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from control_plane import eventually
from kubernetes import client
from metric_chain import MetricChain
from test_gpu_autoscaler import OTHER_HPA
from workloads import Workloads

Run = Callable[..., dict[str, Any]]

PLAN = "gpu_autoscaler_plan"
RECORDED_S = 120
PODS = ("chat-5d9c7f6b8-x2x4q", "chat-5d9c7f6b8-7kq9z")
DESIRED = "kube_horizontalpodautoscaler_status_desired_replicas"


@pytest.fixture
def chat(run: Run, workloads: Workloads) -> dict[str, Any]:
    workloads.deployment("chat", gpus=2)
    workloads.node("gpu1", gpus=16)
    spec = {"namespace": workloads.namespace, "target": {"name": "chat"}, "max_replicas": 8}
    run(autoscalers=[spec])
    return spec


def serve(chain: MetricChain, namespace: str, replicas: int) -> None:
    """Two pods at 80 and 40 percent, one of another workload, and what kube-state-metrics says of the HPA."""
    chain.exporter.gpus(namespace, {PODS[0]: 80, PODS[1]: 40, "chat-api-5d9c7f6b8-abcde": 99})
    chain.exporter.text += f'{DESIRED}{{exported_namespace="{namespace}",horizontalpodautoscaler="chat"}} {replicas}\n'


def recorded(chain: MetricChain, namespace: str, replicas: int) -> bool:
    """At two of the moments at which the module looks for decisions."""
    pods = f'count(namespace_pod:gpu:avg{{namespace="{namespace}"}}) == 3'
    seen = f'count_over_time(({DESIRED}{{exported_namespace="{namespace}"}} == {replicas})[1m:5s]) >= 2'
    return '"value"' in chain.answer(f"{pods} and on () {seen}")


def test_the_load_of_a_workload_and_its_last_decision(
    run: Run, chain: MetricChain, workloads: Workloads, chat: dict[str, Any]
) -> None:
    for replicas in (2, 4):
        serve(chain, workloads.namespace, replicas)
        eventually(
            lambda replicas=replicas: recorded(chain, workloads.namespace, replicas), "all is recorded", RECORDED_S
        )
    result = run(PLAN, namespace=workloads.namespace, history=60, step=1, recent=60, settings=[{"target_value": 20}])
    assert not result.get("failed")
    assert (result["changed"], result["result"]["not_planned"]) == (False, [])
    (plan,) = result["result"]["plans"]
    assert (plan["name"], plan["metric"], plan["gpus_per_replica"], plan["demand"]) == ("chat", "gpu", 2, False)
    assert plan["history"]["load"][-1] == 120
    assert plan["history"]["replicas"][-1] == 4
    today, other = plan["settings"]
    assert (today["name"], today["target_value"], today["max_replicas"]) == ("today", 60, 8)
    assert (other["name"], other["target_value"]) == ("target 20", 20)
    assert other["gpu_minutes"] > today["gpu_minutes"] > 0
    (decision,) = plan["decisions"]
    assert (decision["before"], decision["after"], decision["agrees"]) == (2, 4, False)
    assert decision["sentence"].startswith("wanted 2: 2 pods at 60 % against 60 %; the HPA set 4")


def test_an_hpa_without_a_recorded_metric(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    """What cannot be planned says why."""
    workloads.deployment("chat")
    hpas = client.AutoscalingV2Api(kube)
    hpas.create_namespaced_horizontal_pod_autoscaler(workloads.namespace, OTHER_HPA)
    name = OTHER_HPA["metadata"]["name"]
    asked = [{"namespace": workloads.namespace, "name": name}]
    (left_out,) = run(PLAN, autoscalers=asked)["result"]["not_planned"]
    assert (left_out["name"], left_out["reason"]) == (name, "Prometheus has recorded none of its metrics in that time")


def test_what_cannot_be_is_refused(run: Run, workloads: Workloads) -> None:
    refused = run(PLAN, namespace=workloads.namespace, settings=[{"min_replicas": 0}])
    assert (refused["failed"], refused["hop"], refused["fix"]) == (True, "plan", "set it to 1 or more")
    refused = run(PLAN, autoscalers=[{"namespace": workloads.namespace, "name": "none"}])
    assert refused["hop"] == "hpa"
