from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.behavior_texts import describe_behaviors
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    autoscaler_of,
    horizontal_pod_autoscaler,
    metric_names,
    metrics_of,
    profile_rule,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from golden import CASES, GOLDEN, texts


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    """After an intended change: python tests/golden.py, then read the difference."""
    for name, text in texts(case).items():
        assert (GOLDEN / name).read_text() == text


def test_each_profile_has_a_golden_rule() -> None:
    assert set(PROFILES) <= set(CASES)


def test_autoscalers_share_the_rule_of_their_metric() -> None:
    names = ("chat", "embed", "rank")
    metrics = ("gpu", "gpu_util", "gpu")
    autoscalers = [
        Autoscaler.from_params({"target": {"name": name}, "metric": metric, "max_replicas": 2})
        for name, metric in zip(names, metrics, strict=True)
    ]
    assert [metric.name for metric in metrics_of(autoscalers)] == ["gpu", "gpu_util"]
    made = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests(autoscalers, RuleOptions())]
    assert made == [
        ("PrometheusRule", "kubegpu-gpu"),
        ("PrometheusRule", "kubegpu-gpu-util"),
        *(("HorizontalPodAutoscaler", name) for name in names),
    ]


TOTAL = {"name": "requests", "query": "rate(requests_total[1m])", "per": "workload"}


def own(**changes: Any) -> Autoscaler:
    return Autoscaler.from_params({"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4, **changes})


def test_an_object_metric_has_a_rule_of_its_workload_beside_the_shared_one() -> None:
    shared, workload, hpa = manifests([own(metric_type="Object")], RuleOptions())
    assert [manifest["metadata"]["name"] for manifest in (shared, workload, hpa)] == [
        "kubegpu-gpu",
        "kubegpu-ml.chat",
        "chat",
    ]
    assert workload["metadata"]["annotations"] == {"kubegpu.autoscale/autoscaler": "ml/chat"}
    (rule,) = workload["spec"]["groups"][0]["rules"]
    assert rule["record"] == "namespace_workload:gpu:avg"
    assert rule["labels"] == {"namespace": "ml", "deployment": "chat"}
    assert hpa["spec"]["metrics"][0]["object"] == {
        "metric": {"name": "gpu"},
        "describedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
        "target": {"type": "Value", "value": "60"},
    }


def test_a_workloads_total_is_divided_by_the_hpa() -> None:
    workload, hpa = manifests([own(metric=TOTAL, target_value=50)], RuleOptions())
    assert workload["spec"]["groups"][0]["rules"][0]["expr"] == "sum (\n  rate(requests_total[1m])\n)"
    assert hpa["spec"]["metrics"][0]["object"]["target"] == {"type": "AverageValue", "averageValue": "50"}


@pytest.mark.parametrize(
    ("metric", "labels"),
    [("gpu", {"deployment": "chat"}), ({"name": "sqs", "selector": {"queue": "a"}}, {"queue": "a"})],
)
def test_an_external_metric_is_selected_by_labels(metric: Any, labels: dict[str, str]) -> None:
    hpa = horizontal_pod_autoscaler(own(metric=metric, target_value=50, metric_type="External"))
    entry = hpa["spec"]["metrics"][0]["external"]
    assert entry["metric"]["selector"] == {"matchLabels": labels}
    assert entry["target"] == {"type": "AverageValue", "averageValue": "50"}


@pytest.mark.parametrize(("type_", "operator"), [("Object", "avg"), ("External", "sum")])
def test_a_workloads_value_is_an_average_or_a_total(type_: str, operator: str) -> None:
    _shared, workload, _hpa = manifests([own(metric_type=type_)], RuleOptions())
    assert workload["spec"]["groups"][0]["rules"][0]["expr"].startswith(f"{operator} (")


def test_an_external_metric_of_somebody_else_has_no_rule() -> None:
    external = own(metric={"name": "sqs"}, target_value=5, metric_type="External")
    (hpa,) = manifests([external], RuleOptions())
    assert "selector" not in hpa["spec"]["metrics"][0]["external"]["metric"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"metric": "gpu_util", "target_value": 12.5, "min_replicas": 2},
        {"metric_type": "Object"},
        {"metric_type": "External"},
        {"metric": TOTAL, "target_value": 5},
        {"metric": {"name": "sqs", "selector": {"queue": "a"}}, "target_value": 5, "metric_type": "External"},
        {"extra_metrics": [{"metric": "gpu_util", "target_value": 9}]},
    ],
)
def test_an_autoscaler_can_be_read_back(changes: dict[str, Any]) -> None:
    wanted = own(**changes)
    *rules, hpa = manifests([wanted], RuleOptions())
    queries = {
        recording["record"]: recording["expr"]
        for rule in rules
        for group in rule["spec"]["groups"]
        for recording in group["rules"]
    }
    found = autoscaler_of(hpa, queries)
    assert (found.key, found.target, found.profile.name) == (wanted.key, wanted.target, wanted.profile.name)
    assert [
        (metric_target.metric.name, metric_target.value, metric_target.type, metric_target.series)
        for metric_target in found.metric_targets
    ] == [
        (metric_target.metric.name, metric_target.value, metric_target.type, metric_target.series)
        for metric_target in wanted.metric_targets
    ]
    assert (found.min_replicas, found.max_replicas) == (wanted.min_replicas, wanted.max_replicas)
    assert metric_names(hpa) == {metric_target.metric.name for metric_target in wanted.metric_targets}


def test_an_hpa_of_somebody_else_can_be_read_too() -> None:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    hpa = {
        "metadata": {"name": "other", "namespace": "ml"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, "maxReplicas": 3, "metrics": [cpu]},
    }
    found = autoscaler_of(hpa, {})
    assert (found.metric_targets, found.raw_metrics, found.min_replicas) == ((), (cpu,), 1)
    assert metric_names(hpa) == set()


def test_what_the_pace_was_computed_from_stays_with_the_hpa() -> None:
    hpa = horizontal_pod_autoscaler(own().with_dead_time(30))
    assert hpa["metadata"]["annotations"] == {"kubegpu.autoscale/dead-time-seconds": "30"}
    found = autoscaler_of(hpa, {})
    assert (found.dead_time, found.is_given, found.is_measured) == (30, False, True)
    hpa["metadata"]["annotations"]["kubegpu.autoscale/dead-time-seconds"] = "²"
    assert not autoscaler_of(hpa, {}).is_measured
    assert "annotations" not in horizontal_pod_autoscaler(own())["metadata"]
    found = autoscaler_of(horizontal_pod_autoscaler(own(dead_time_seconds=400)), {})
    assert (found.dead_time, found.is_given, found.is_measured) == (400, True, False)


SLOW = {"policies": [{"type": "Pods", "value": 1, "period_seconds": 600}]}
CAUTIOUS = {"stabilization_window_seconds": 1800, "policies": [{"type": "Percent", "value": 10, "period_seconds": 90}]}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dead_time_seconds": 15},
        {"dead_time_seconds": 600},
        {"dead_time_seconds": 600, "demand": {"source": "istio"}},
        {"dead_time_seconds": 300, "scale_up": SLOW},
        {"scale_up": SLOW, "scale_down": CAUTIOUS},
        {"scale_up": {"stabilization_window_seconds": 30}, "scale_down": {"select_policy": "Disabled"}},
    ],
)
def test_the_pace_that_is_read_back_is_that_of_the_hpa(changes: dict[str, Any]) -> None:
    """Also where nobody has measured what it follows from."""
    wanted = own(**changes)
    assert describe_behaviors([autoscaler_of(horizontal_pod_autoscaler(wanted), {})]) == describe_behaviors([wanted])


def test_the_pace_of_an_hpa_of_somebody_else_is_that_of_kubernetes() -> None:
    (words,), _ = describe_behaviors([autoscaler_of(hpa_with(), {})])
    assert (words["dead_time_s"], words["given"]) == (60, ["scale_up", "scale_down"])
    assert words["scale_up"] == "the larger of 4 pods in 15 s or 100 percent in 15 s at once"
    assert words["scale_down"] == "100 percent in 15 s after 300 s"


def test_a_rule_goes_where_prometheus_looks_for_it() -> None:
    options = RuleOptions(namespace="observability", labels={"team": "ml"}, evaluation_interval_s=5, inventory="prod")
    rule = profile_rule(PROFILES["gpu"], options)
    assert rule["metadata"] == {
        "name": "kubegpu-gpu",
        "namespace": "observability",
        "labels": {
            "team": "ml",
            "app.kubernetes.io/managed-by": "kubegpu.autoscale",
            "kubegpu.autoscale/inventory": "prod",
            "kubegpu.autoscale/metric": "gpu",
        },
    }


@pytest.mark.parametrize(
    ("profile", "interval"),
    [("gpu", "3s"), ("mig", "3s"), ("gpu_memory", "5s"), ("llm", "5s"), ("llm_in_flight", "5s")],
)
def test_a_rule_that_smooths_is_evaluated_twice_as_often(profile: str, interval: str) -> None:
    rule = profile_rule(PROFILES[profile], RuleOptions(evaluation_interval_s=5))
    assert rule["spec"]["groups"][0]["interval"] == interval


def entry_of(kind: str, **content: object) -> Manifest:
    target = {"type": "AverageValue", "averageValue": "5"}
    return {"type": kind, kind.lower(): {"metric": {"name": "rps"}, "target": target, **content}}


INGRESS = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "chat"}
GROUP = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "chat"}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}


def hpa_with(*metrics: Manifest, target: Manifest = DEPLOYMENT, labels: Manifest | None = None) -> Manifest:
    metadata = {"name": "chat", "namespace": "ml", "labels": labels or {}}
    return {"metadata": metadata, "spec": {"scaleTargetRef": target, "maxReplicas": 3, "metrics": list(metrics)}}


@pytest.mark.parametrize(
    ("described", "target"),
    [(INGRESS, DEPLOYMENT), (INGRESS, GROUP), (GROUP, GROUP), ({**DEPLOYMENT, "name": "other"}, DEPLOYMENT)],
)
def test_a_metric_of_another_object_is_not_the_targets(described: Manifest, target: Manifest) -> None:
    """A target whose kind has no metrics of its own counts as another object: nothing can be asked for it."""
    other = entry_of("Object", describedObject=described)
    found = autoscaler_of(hpa_with(entry_of("Pods"), other, target=target), {})
    assert [metric_target.type for metric_target in found.metric_targets] == ["Pods"]
    assert found.raw_metrics == (other,)


def test_an_external_metric_of_a_kind_whose_pods_cannot_be_told_is_somebody_elses() -> None:
    found = autoscaler_of(hpa_with(entry_of("External"), target=GROUP), {"external:rps:sum": "x"})
    assert [metric_target.series for metric_target in found.metric_targets] == [""]


def test_a_metric_that_only_has_the_name_of_one_of_ours_is_not_taken_for_recorded() -> None:
    foreign = entry_of("Pods", metric={"name": "gpu_util"})
    ours = {"app.kubernetes.io/managed-by": "kubegpu.autoscale"}
    assert [metric_target.series for metric_target in autoscaler_of(hpa_with(foreign), {}).metric_targets] == [""]
    recorded = {"namespace_pod:gpu_util:avg": "avg(x)"}
    assert [metric_target.series for metric_target in autoscaler_of(hpa_with(foreign), recorded).metric_targets] == [
        "namespace_pod:gpu_util:avg"
    ]
    # In an HPA of ours the rule ought to be there: that it is not is to be found.
    assert [
        metric_target.series for metric_target in autoscaler_of(hpa_with(foreign, labels=ours), {}).metric_targets
    ] == ["namespace_pod:gpu_util:avg"]
