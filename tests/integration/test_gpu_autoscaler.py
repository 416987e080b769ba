"""Module gpu_autoscaler against a real API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import RULES, remove_crd
from kubernetes import client
from workloads import Workloads

Run = Callable[..., dict[str, Any]]


def spec(workloads: Workloads, **changes: Any) -> dict[str, Any]:
    target = {"kind": "Deployment", "name": "chat"}
    return {"namespace": workloads.namespace, "target": target, "max_replicas": 4, **changes}


def objects(kube: client.ApiClient, workloads: Workloads) -> tuple[list[Any], list[Any]]:
    hpas = client.AutoscalingV2Api(kube).list_namespaced_horizontal_pod_autoscaler(workloads.namespace).items
    rules = client.CustomObjectsApi(kube).list_namespaced_custom_object(*RULES)["items"]
    return hpas, rules


def test_create_change_and_delete_in_twelve_steps(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    workloads.deployment("chat")
    wanted = {"autoscalers": [spec(workloads)]}

    for check in (True, False):
        assert run(check=check, **wanted)["changed"] is True
    assert [len(each) for each in objects(kube, workloads)] == [1, 1]
    for check in (True, False):
        assert run(check=check, **wanted)["changed"] is False

    wanted = {"autoscalers": [spec(workloads, max_replicas=3, target_value=55)]}
    change = run(check=True, **wanted)
    assert change["changed"] is True
    assert [entry["after"]["spec"]["maxReplicas"] for entry in change["diff"]] == [3]
    assert objects(kube, workloads)[0][0].spec.max_replicas == 4
    assert run(**wanted)["changed"] is True
    assert objects(kube, workloads)[0][0].spec.max_replicas == 3
    for check in (True, False):
        assert run(check=check, **wanted)["changed"] is False

    for check in (True, False):
        assert [len(each) for each in objects(kube, workloads)] == [1, 1]
        assert run(check=check, state="absent", **wanted)["changed"] is True
    assert objects(kube, workloads) == ([], [])
    for check in (True, False):
        assert run(check=check, state="absent", **wanted)["changed"] is False


def test_a_result_has_always_the_same_shape(run: Run, workloads: Workloads) -> None:
    workloads.deployment("chat")
    results = [
        run(check=True, autoscalers=[spec(workloads)]),
        run(autoscalers=[spec(workloads)]),
        run(autoscalers=[spec(workloads, max_replicas=0)]),
        run(state="absent", autoscalers=[spec(workloads)]),
    ]
    for result in results:
        assert {"changed", "result", "diff", "duration_s"} <= set(result)


def test_an_option_that_is_taken_back_leaves_the_object(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    workloads.deployment("chat")
    run(autoscalers=[spec(workloads, scale_up={"tolerance": 0.05})])
    assert run(autoscalers=[spec(workloads)])["changed"] is True
    assert objects(kube, workloads)[0][0].spec.behavior.scale_up.tolerance is None


def test_a_rule_goes_with_its_last_user(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    for name in ("chat", "embed"):
        workloads.deployment(name)
    run(autoscalers=[spec(workloads), spec(workloads, target={"name": "embed"})])
    assert [len(each) for each in objects(kube, workloads)] == [2, 1]
    run(state="absent", autoscalers=[spec(workloads)])
    assert [len(each) for each in objects(kube, workloads)] == [1, 1]
    run(autoscalers=[spec(workloads, target={"name": "embed"}, metric="gpu_util")])
    assert [rule["metadata"]["name"] for rule in objects(kube, workloads)[1]] == ["kubegpu-gpu-util"]
    run(state="absent", autoscalers=[{"namespace": workloads.namespace, "name": "embed"}])
    assert objects(kube, workloads) == ([], [])


def test_absent_where_the_crd_is_gone(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    workloads.deployment("chat")
    run(autoscalers=[spec(workloads)])
    remove_crd(kube)
    assert run(state="absent", autoscalers=[spec(workloads)])["changed"] is True
    assert run(state="absent", autoscalers=[spec(workloads)])["changed"] is False


def test_check_mode_before_the_operator_is_there(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    remove_crd(kube)
    result = run(check=True, autoscalers=[spec(workloads)])
    assert result["changed"] is True
    assert ["no kind PrometheusRule" in each for each in result["warnings"]].count(True) == 1
    assert ["there is no Deployment chat" in each for each in result["warnings"]].count(True) == 1
    refusal = run(autoscalers=[spec(workloads)])
    assert refusal["failed"]
    assert refusal["changed"] is False


OTHER_HPA = {
    "metadata": {"name": "other"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
        "maxReplicas": 2,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }
        ],
    },
}


REFUSALS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"max_replicas": 2, "min_replicas": 3}, {}, "max_replicas 2 is below min_replicas 3"),
    ({"metric": "gpu_speed"}, {}, "metric 'gpu_speed' is no profile"),
    ({"target": {"name": "chit"}}, {}, "there is no Deployment chit"),
    ({"target": {"kind": "Rollout", "name": "chat"}}, {}, "the cluster has no kind Rollout"),
    ({"target": {"kind": "DaemonSet", "api_version": "apps/v1", "name": "chat"}}, {}, "no scale subresource"),
    ({"metric": {"name": "queue", "query": "sum("}, "target_value": 1}, {}, "the query of metric queue is not usable"),
    ({}, {"prometheus": {"service": "thanos"}}, "Prometheus does not answer"),
    ({"name": "other"}, {}, "was not made by this module, but by OpenAPI-Generator"),
    ({}, {}, "would have 2 autoscalers: HPA"),
]


@pytest.mark.parametrize(("changes", "options", "seen"), REFUSALS, ids=[seen for *_options, seen in REFUSALS])
def test_a_refusal_changes_nothing(
    run: Run,
    kube: client.ApiClient,
    workloads: Workloads,
    changes: dict[str, Any],
    options: dict[str, Any],
    seen: str,
) -> None:
    workloads.deployment("chat")
    workloads.deployment("embed")
    others = [OTHER_HPA] if "HPA" in seen or "other" in changes.values() else []
    for hpa in others:
        client.AutoscalingV2Api(kube).create_namespaced_horizontal_pod_autoscaler(workloads.namespace, hpa)
    result = run(autoscalers=[spec(workloads, target={"name": "embed"}), spec(workloads, **changes)], **options)
    assert result["failed"]
    assert not result["changed"]
    assert seen in result["msg"]
    assert result["hop"]
    assert result["fix"]
    assert [len(each) for each in objects(kube, workloads)] == [len(others), 0]


def test_an_hpa_of_somebody_else_is_not_removed(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    client.AutoscalingV2Api(kube).create_namespaced_horizontal_pod_autoscaler(workloads.namespace, OTHER_HPA)
    result = run(state="absent", autoscalers=[{"namespace": workloads.namespace, "name": "other"}])
    assert result["changed"] is False
    assert "was not made by this module" in result["warnings"][0]
    assert len(objects(kube, workloads)[0]) == 1


def test_a_custom_metrics_api_of_somebody_else_is_not_used(
    run: Run, kube: client.ApiClient, workloads: Workloads
) -> None:
    workloads.deployment("chat")
    services = client.ApiregistrationV1Api(kube)
    name = "v1beta1.custom.metrics.k8s.io"
    ours = {"spec": {"service": {"name": "prometheus-adapter"}}}
    services.patch_api_service(name, {"spec": {"service": {"name": "datadog"}}})
    try:
        assert "belongs to service monitoring/datadog" in run(autoscalers=[spec(workloads)])["msg"]
    finally:
        services.patch_api_service(name, ours)
    assert objects(kube, workloads) == ([], [])


def test_a_field_that_somebody_else_manages_names_the_manager(
    run: Run, kube: client.ApiClient, workloads: Workloads
) -> None:
    workloads.deployment("chat")
    run(autoscalers=[spec(workloads)])
    client.AutoscalingV2Api(kube).patch_namespaced_horizontal_pod_autoscaler(
        "chat", workloads.namespace, {"spec": {"maxReplicas": 7}}, field_manager="an-admin"
    )
    result = run(autoscalers=[spec(workloads)])
    assert result["failed"]
    assert "an-admin" in result["msg"]
    assert ".spec.maxReplicas" in result["msg"]


def test_what_makes_scaling_worse_is_warned_of(run: Run, workloads: Workloads) -> None:
    workloads.deployment("chat", probe=False, gpus=2)
    workloads.deployment("embed", gpus=0)
    workloads.node("gpu1", gpus=4)
    result = run(autoscalers=[spec(workloads), spec(workloads, target={"name": "embed"})])
    warnings = " ".join(result["warnings"])
    assert f"autoscaler {workloads.namespace}/chat: its pods have no readiness probe" in warnings
    assert f"autoscaler {workloads.namespace}/embed: its pods have no nvidia.com/gpu limit" in warnings
    assert "max_replicas is 4, but of pods with 2 nvidia.com/gpu the nodes that they may run on hold 2" in warnings
    assert len(result["warnings"]) == 3
