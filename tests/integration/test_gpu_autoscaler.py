"""Module gpu_autoscaler against a real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from control_plane import eventually
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from metric_chain import PROOF_S, MetricChain
from prometheus_rules import remove_kind, rules
from workloads import Workloads

Run = Callable[..., dict[str, Any]]


def spec(workloads: Workloads, **changes: Any) -> dict[str, Any]:
    target = {"kind": "Deployment", "name": "chat"}
    return {"namespace": workloads.namespace, "target": target, "max_replicas": 4, **changes}


def objects(kube: client.ApiClient, workloads: Workloads) -> tuple[list[Any], list[Any]]:
    hpas = client.AutoscalingV2Api(kube).list_namespaced_horizontal_pod_autoscaler(workloads.namespace).items
    return hpas, rules(kube)


def test_create_change_and_delete_in_twelve_steps(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    workloads.deployment("chat")
    wanted = {"autoscalers": [spec(workloads)]}

    for check in (True, False):
        assert run(check=check, **wanted)["changed"] is True
    assert [len(of_kind) for of_kind in objects(kube, workloads)] == [1, 1]
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
        assert [len(of_kind) for of_kind in objects(kube, workloads)] == [1, 1]
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
    assert [len(of_kind) for of_kind in objects(kube, workloads)] == [2, 1]
    run(state="absent", autoscalers=[spec(workloads)])
    assert [len(of_kind) for of_kind in objects(kube, workloads)] == [1, 1]
    run(autoscalers=[spec(workloads, target={"name": "embed"}, metric="gpu_util")])
    assert [rule["metadata"]["name"] for rule in objects(kube, workloads)[1]] == ["kubegpu-gpu-util"]
    run(state="absent", autoscalers=[{"namespace": workloads.namespace, "name": "embed"}])
    assert objects(kube, workloads) == ([], [])


def test_absent_where_the_crd_is_gone(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    workloads.deployment("chat")
    run(autoscalers=[spec(workloads)])
    remove_kind(kube)
    assert run(state="absent", autoscalers=[spec(workloads)])["changed"] is True
    assert run(state="absent", autoscalers=[spec(workloads)])["changed"] is False


def test_check_mode_before_the_operator_is_there(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    remove_kind(kube)
    result = run(check=True, autoscalers=[spec(workloads)])
    assert result["changed"] is True
    assert ["does not serve the kind PrometheusRule" in warning for warning in result["warnings"]].count(True) == 1
    assert ["chat: not found" in warning for warning in result["warnings"]].count(True) == 1
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
    ({"metric": "gpu_speed"}, {}, "metric 'gpu_speed' is not a profile"),
    ({"target": {"name": "chit"}}, {}, "chit: not found"),
    ({"target": {"kind": "Rollout", "name": "chat"}}, {}, "the cluster has no kind Rollout"),
    ({"target": {"kind": "DaemonSet", "api_version": "apps/v1", "name": "chat"}}, {}, "no scale subresource"),
    ({"metric": {"name": "queue", "query": "sum("}, "target_value": 1}, {}, "metric queue: its query is not usable"),
    ({}, {"prometheus": {"service": "thanos"}}, "Prometheus monitoring/thanos:9090"),
    ({}, {"prometheus": {"rule_namespace": "nowhere"}}, "recording rules: namespace nowhere does not exist"),
    ({"name": "other"}, {}, "was not made by this module, but by OpenAPI-Generator"),
    ({}, {}, "chat: HPA"),
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
    assert [len(of_kind) for of_kind in objects(kube, workloads)] == [len(others), 0]


def test_an_hpa_of_somebody_else_is_not_removed(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    client.AutoscalingV2Api(kube).create_namespaced_horizontal_pod_autoscaler(workloads.namespace, OTHER_HPA)
    result = run(state="absent", autoscalers=[{"namespace": workloads.namespace, "name": "other"}])
    assert result["changed"] is False
    assert "was not created by this module" in result["warnings"][0]
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
        assert "service monitoring/datadog does not serve the metrics of" in run(autoscalers=[spec(workloads)])["msg"]
    finally:
        services.patch_api_service(name, ours)
    assert objects(kube, workloads) == ([], [])


def test_what_makes_scaling_worse_is_warned_of(run: Run, workloads: Workloads) -> None:
    workloads.deployment("chat", probe=False, gpus=2)
    workloads.deployment("embed", gpus=0)
    workloads.node("gpu1", gpus=4)
    result = run(autoscalers=[spec(workloads), spec(workloads, target={"name": "embed"})])
    warnings = " ".join(result["warnings"])
    assert f"Deployment {workloads.namespace}/chat: no container of its pod template has a readinessProbe" in warnings
    assert (
        f"Deployment {workloads.namespace}/embed: no container of its pod template has a limit of nvidia.com/*"
        in warnings
    )
    assert "max_replicas is 4, but eligible nodes have room for only 2 replicas (2 nvidia.com/gpu a pod)" in warnings
    assert len(result["warnings"]) == 3


def test_a_model_server_on_the_gpu_metric_is_warned_of(run: Run, workloads: Workloads) -> None:
    workloads.deployment("chat", image="vllm/vllm-openai:v0.11")
    seen = "image vllm/vllm-openai:v0.11 scales on gpu alone"
    assert any(seen in warning for warning in run(check=True, autoscalers=[spec(workloads)])["warnings"])
    other = spec(workloads, metric="llm_in_flight", target_value=8)
    assert not any("scales on" in warning for warning in run(check=True, autoscalers=[other])["warnings"])


def test_an_hpa_of_somebody_else_is_taken_over_if_asked_for(
    run: Run, kube: client.ApiClient, workloads: Workloads
) -> None:
    workloads.deployment("chat")
    api = client.AutoscalingV2Api(kube)
    theirs = {**OTHER_HPA, "metadata": {"name": "chat", "annotations": {"team": "search"}}}
    api.create_namespaced_horizontal_pod_autoscaler(workloads.namespace, theirs, field_manager="a-team")
    refusal = run(autoscalers=[spec(workloads)])
    assert "was not made by this module, but by a-team" in refusal["msg"]
    wanted = [spec(workloads, adopt=True)]
    for check in (True, False):
        taken = run(check=check, autoscalers=wanted)
        assert (taken["changed"], taken["result"]["autoscalers"][0]["action"]) == (True, "changed")
    (hpa,) = objects(kube, workloads)[0]
    assert (hpa.spec.max_replicas, len(hpa.spec.metrics), hpa.spec.metrics[0].type) == (4, 1, "Pods")
    assert hpa.metadata.annotations["team"] == "search"
    assert run(autoscalers=wanted)["changed"] is False
    assert run(autoscalers=[spec(workloads)])["changed"] is False


def test_what_others_add_is_left_alone(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    workloads.deployment("chat")
    run(autoscalers=[spec(workloads)])
    added = {"metadata": {"labels": {"team": "search"}}, "spec": {"behavior": {"scaleUp": {"tolerance": "0.3"}}}}
    client.AutoscalingV2Api(kube).patch_namespaced_horizontal_pod_autoscaler(
        "chat", workloads.namespace, added, field_manager="an-admin"
    )
    assert run(autoscalers=[spec(workloads)])["changed"] is False
    assert run(autoscalers=[spec(workloads, max_replicas=3)])["changed"] is True
    (hpa,) = objects(kube, workloads)[0]
    assert (hpa.metadata.labels["team"], hpa.spec.behavior.scale_up.tolerance) == ("search", "300m")


@contextmanager
def nobody_makes(kube: client.ApiClient, name: str) -> Iterator[None]:
    """A policy of the cluster that rejects HPAs of a name: no check of options knows of it."""
    api, place = client.AdmissionregistrationV1Api(kube), {"metadata": {"name": "kubegpu-test"}}
    rules = [
        {
            "apiGroups": ["autoscaling"],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["horizontalpodautoscalers"],
        }
    ]
    rejects = {"expression": f"object.metadata.name != '{name}'", "message": f"nobody makes {name}"}
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [rejects], "failurePolicy": "Fail"}
    hpa = {
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}, "maxReplicas": 1},
    }

    def is_rejected() -> bool:
        try:
            client.AutoscalingV2Api(kube).create_namespaced_horizontal_pod_autoscaler("default", hpa, dry_run="All")
        except ApiException as err:
            return f"nobody makes {name}" in err.body
        return False

    api.create_validating_admission_policy({**place, "spec": spec})
    bound = {"policyName": "kubegpu-test", "validationActions": ["Deny"]}
    api.create_validating_admission_policy_binding({**place, "spec": bound})
    try:
        eventually(is_rejected, "the policy is in force", 60)
        yield
    finally:
        api.delete_validating_admission_policy_binding("kubegpu-test")
        api.delete_validating_admission_policy("kubegpu-test")
        eventually(lambda: not is_rejected(), "the policy is gone", 60)


def test_what_fails_is_named_and_the_next_run_does_the_rest(
    run: Run, kube: client.ApiClient, workloads: Workloads
) -> None:
    names = ("chat", "embed", "rank")
    for name in names:
        workloads.deployment(name)
    wanted = [spec(workloads, target={"name": name}) for name in names]
    with nobody_makes(kube, "embed"):
        result = run(autoscalers=wanted)
    assert result["failed"]
    assert result["changed"]
    assert "horizontalpodautoscalers/embed" in result["msg"]
    assert "nobody makes embed" in result["msg"]
    assert [entry["action"] for entry in result["result"]["autoscalers"]] == ["created", "failed", "created"]
    assert [hpa.metadata.name for hpa in objects(kube, workloads)[0]] == ["chat", "rank"]
    result = run(autoscalers=wanted)
    assert [entry["action"] for entry in result["result"]["autoscalers"]] == ["unchanged", "created", "unchanged"]


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [
        ("StatefulSet", "apps/v1"),
        ("Rollout", "argoproj.io/v1alpha1"),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"),
        ("Fleet", "example.com/v1"),
    ],
)
def test_whatever_has_a_scale_subresource_can_be_scaled(
    run: Run, kube: client.ApiClient, workloads: Workloads, kind: str, api_version: str
) -> None:
    with workloads.kind(kind, api_version):
        workloads.scalable(kind, api_version, "chat")
        target = {"kind": kind, "name": "chat", "api_version": api_version if kind == "Fleet" else None}
        assert run(autoscalers=[spec(workloads, target=target)])["changed"] is True
        assert run(autoscalers=[spec(workloads, target=target)])["changed"] is False
        ref = objects(kube, workloads)[0][0].spec.scale_target_ref
        assert (ref.kind, ref.api_version) == (kind, api_version)


def test_a_scaled_object_on_the_target_is_in_the_way(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    workloads.deployment("chat")
    with workloads.kind("ScaledObject", "keda.sh/v1alpha1"):
        body = {"metadata": {"name": "theirs"}, "spec": {"scaleTargetRef": {"name": "chat"}}}
        workloads.custom("ScaledObject", "keda.sh/v1alpha1", body)
        result = run(autoscalers=[spec(workloads)])
    namespace = workloads.namespace
    assert f"HPA {namespace}/chat, ScaledObject {namespace}/theirs" in result["msg"]
    assert objects(kube, workloads) == ([], [])


def test_a_query_has_to_give_one_series_a_pod(run: Run, chain: MetricChain, workloads: Workloads) -> None:
    workloads.deployment("chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50, "chat-1": 60})
    eventually(lambda: workloads.namespace in chain.series(), "the exporter is scraped", PROOF_S)
    for query, seen in {
        "max(DCGM_FI_DEV_GPU_UTIL)": "a series has no label namespace",
        "max by (namespace) (DCGM_FI_DEV_GPU_UTIL)": "a series has no label pod",
        'label_replace(DCGM_FI_DEV_GPU_UTIL, "pod", "chat-0", "", "")': "chat-0 has 2 series",
    }.items():
        metric = {"name": "own", "query": query}
        assert seen in run(autoscalers=[spec(workloads, metric=metric, target_value=1)])["msg"]


def test_what_a_profile_cannot_tell_is_said(run: Run, workloads: Workloads) -> None:
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    for profile in ("llm", "shared", "mig"):
        warnings = run(check=True, autoscalers=[spec(workloads, metric=profile)])["warnings"]
        assert any(f"profile {profile}: " in warning for warning in warnings)


def test_one_field_changed_by_hand(run: Run, kube: client.ApiClient, workloads: Workloads) -> None:
    """What we made is put back, and who had changed it is named; check mode shows how."""
    workloads.deployment("chat")
    wanted = [spec(workloads)]
    run(autoscalers=wanted)
    client.AutoscalingV2Api(kube).patch_namespaced_horizontal_pod_autoscaler(
        "chat", workloads.namespace, {"spec": {"maxReplicas": 7}}, field_manager="kubectl-edit"
    )
    shown = run(check=True, autoscalers=wanted)
    assert [
        (change["before"]["spec"]["maxReplicas"], change["after"]["spec"]["maxReplicas"]) for change in shown["diff"]
    ] == [(7, 4)]
    assert objects(kube, workloads)[0][0].spec.max_replicas == 7
    done = run(autoscalers=wanted)
    assert done["changed"] is True
    assert any("what kubectl-edit had changed is restored" in warning for warning in done["warnings"])
    assert objects(kube, workloads)[0][0].spec.max_replicas == 4
    assert run(autoscalers=wanted)["changed"] is False
