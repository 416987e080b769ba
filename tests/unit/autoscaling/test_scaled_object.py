"""What is made for KEDA, and what is refused because KEDA would decide otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import (
    manifests,
    unused_rules,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    autoscaler_of,
    horizontal_pod_autoscaler,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaled_object import (
    hpa_of,
    rule_names,
    scaled_object,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from golden import GOLDEN, KEDA_CASES, keda_texts

QUEUE = {"name": "queue", "query": "max by (namespace, pod) (queue_length)"}


def autoscaler(**options: Any) -> Autoscaler:
    return Autoscaler.from_params(
        {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 8, **options}, backend="keda"
    )


def made(*autoscalers: Autoscaler) -> list[Manifest]:
    return manifests(autoscalers, RuleOptions())


@pytest.mark.parametrize("case", KEDA_CASES)
def test_golden(case: str) -> None:
    """After an intended change: python tests/golden.py, then read the difference."""
    for name, text in keda_texts(case).items():
        assert (GOLDEN / name).read_text() == text


def test_workloads_share_the_rules_of_their_metric() -> None:
    names = [
        (manifest["kind"], manifest["metadata"]["name"])
        for manifest in made(autoscaler(), autoscaler(target={"name": "embed"}))
    ]
    assert names == [
        ("PrometheusRule", "kubegpu-gpu"),
        ("PrometheusRule", "kubegpu-decisions-gpu"),
        ("PrometheusRule", "kubegpu-ml.chat"),
        ("PrometheusRule", "kubegpu-ml.embed"),
        ("ScaledObject", "chat"),
        ("ScaledObject", "embed"),
    ]


@pytest.mark.parametrize(("evaluated_s", "decided"), [(1, "500ms"), (2, "1s"), (4, "2s")])
def test_decisions_are_recorded_soon_after_the_values(evaluated_s: int, decided: str) -> None:
    rules = RuleOptions(evaluation_interval_s=evaluated_s, prometheus_url="http://prometheus")
    by_name = {manifest["metadata"]["name"]: manifest for manifest in manifests([autoscaler()], rules)}
    assert by_name["kubegpu-decisions-gpu"]["spec"]["groups"][0]["interval"] == decided


def test_a_metric_of_the_user_is_decided_on_in_its_namespace() -> None:
    one = autoscaler(metric=QUEUE, target_value=5)
    rules = [manifest for manifest in made(one) if manifest["kind"] == "PrometheusRule"]
    assert [rule["metadata"]["name"] for rule in rules] == rule_names(one)
    assert rule_names(one)[:2] == ["kubegpu.ml.queue", "kubegpu.ml.queue.decisions"]
    for recording in rules[1]["spec"]["groups"][0]["rules"]:
        assert '{namespace="ml"}' in recording["expr"]
        assert recording["labels"] == {"namespace": "ml"}


def test_the_scaled_object_has_the_hpa_s_labels_bounds_and_policies() -> None:
    one = autoscaler(min_replicas=2, scale_down={"stabilization_window_seconds": 600}).with_dead_time(90)
    hpa, wanted = horizontal_pod_autoscaler(one, "prod"), scaled_object(one, RuleOptions(inventory="prod"))
    config = wanted["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
    assert wanted["metadata"]["labels"] == hpa["metadata"]["labels"]
    assert hpa["metadata"]["annotations"].items() <= wanted["metadata"]["annotations"].items()
    assert config["name"] == hpa["metadata"]["name"]
    assert wanted["spec"]["scaleTargetRef"] == hpa["spec"]["scaleTargetRef"]
    assert (wanted["spec"]["minReplicaCount"], wanted["spec"]["maxReplicaCount"]) == (2, 8)
    for direction, rules in hpa["spec"]["behavior"].items():
        assert config["behavior"][direction] == {**rules, "tolerance": "0"}


def test_a_tolerance_is_the_rule_s_and_not_the_hpa_s() -> None:
    one = autoscaler(scale_up={"tolerance": 0.25}, scale_down={"tolerance": 0.7})
    constants = {
        recording["record"].partition("_")[2]: recording["expr"]
        for recording in made(one)[2]["spec"]["groups"][0]["rules"]
    }
    assert constants == {
        "workload:gpu_target:milli": "vector(60000)",
        # The controller's doubles: 0.7 is 700 * 0.001.
        "workload:gpu_tolerance:lowest": "vector(0.29999999999999993)",
        "workload:gpu_tolerance:highest": "vector(1.25)",
    }


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"target": {"kind": "Rollout", "name": "chat"}}, "scales Deployment and StatefulSet only"),
        ({"metric_type": "Object"}, "and totals of type Object, and gpu is an average of type Object"),
        ({"demand": {"source": "istio", "name": "chat", "prior_gpu_seconds": 1}}, "does not support demand"),
        (
            {"extra_metrics": [{"metric": {**QUEUE, "per": "workload"}, "target_value": 5}]},
            "has a tolerance of 0 for metrics of type Pods, and extra_metrics has a total",
        ),
        (
            {
                "extra_metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                    }
                ]
            },
            "extra_metrics has one of type Resource",
        ),
        ({"name": "n" * 64}, "the name has 64 characters"),
    ],
)
def test_what_keda_would_decide_otherwise_is_refused(options: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError) as refused:
        made(autoscaler(**options))
    assert seen in refused.value.seen
    assert refused.value.fix.endswith(", or set backend to adapter")


def test_a_prometheus_with_a_login_is_refused() -> None:
    """A ScaledObject would need a TriggerAuthentication with the login."""
    with pytest.raises(HopError, match="prometheus has a login or a CA"):
        manifests([autoscaler()], RuleOptions(prometheus_url=""))


def test_both_backends_share_the_rule_of_a_profile() -> None:
    by_adapter = replace(autoscaler(name="other"), backend="adapter")
    names = [manifest["metadata"]["name"] for manifest in manifests([by_adapter, autoscaler()], RuleOptions())]
    assert names == ["kubegpu-gpu", "kubegpu-decisions-gpu", "kubegpu-ml.chat", "other", "chat"]


def test_rules_stay_as_long_as_a_scaled_object_or_keda_s_hpa_reads_them() -> None:
    *rules, wanted = made(autoscaler())
    assert unused_rules(rules, [wanted]) == []
    assert unused_rules(rules, [hpa_of_keda(wanted)]) == []
    assert unused_rules(rules, []) == rules
    by_adapter = horizontal_pod_autoscaler(autoscaler())
    assert unused_rules(rules, [by_adapter]) == rules[1:]


def test_each_refused_autoscaler_is_named() -> None:
    with pytest.raises(HopError) as refused:
        made(autoscaler(metric_type="Object"), autoscaler(name="fine"), autoscaler(name="n" * 64))
    assert "autoscaler chat: " in str(refused.value)
    assert "autoscaler nnn" in str(refused.value)
    assert "autoscaler fine" not in str(refused.value)


def hpa_of_keda(wanted: Manifest) -> Manifest:
    """As KEDA 2.21 makes it: labels and annotations copied, a metric for each trigger (controllers/keda/hpa.go)."""
    spec, metadata = wanted["spec"], wanted["metadata"]
    config = spec["advanced"]["horizontalPodAutoscalerConfig"]
    selector = {"matchLabels": {"scaledobject.keda.sh/name": metadata["name"]}}
    kinds = {"AverageValue": "averageValue", "Value": "value"}
    metrics = [
        {
            "type": "External",
            "external": {
                "metric": {"name": f"s{number}-prometheus", "selector": selector},
                "target": {"type": trigger["metricType"], kinds[trigger["metricType"]]: "1"},
            },
        }
        for number, trigger in enumerate(spec["triggers"])
    ]
    return {
        "metadata": {**metadata, "name": config["name"]},
        "spec": {
            "scaleTargetRef": spec["scaleTargetRef"],
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": metrics,
            "behavior": config["behavior"],
        },
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"metric": "llm", "target_values": {"llm_kv_cache": 75}},
        {"scale_up": {"tolerance": 0.05}, "scale_down": {"tolerance": 0, "stabilization_window_seconds": 600}},
    ],
)
def test_keda_s_hpa_is_read_back_as_the_adapter_s(options: dict[str, Any]) -> None:
    one = autoscaler(**options).with_dead_time(90)
    by_adapter, by_keda = horizontal_pod_autoscaler(one), hpa_of_keda(scaled_object(one, RuleOptions()))
    assert autoscaler_of(by_keda, {}) == replace(autoscaler_of(by_adapter, {}), backend="keda")


def test_an_annotation_on_an_hpa_of_others_is_not_read() -> None:
    hpa = hpa_of_keda(scaled_object(autoscaler(), RuleOptions()))
    hpa["metadata"]["labels"] = {}
    read = autoscaler_of(hpa, {})
    assert [target.metric.name for target in read.metric_targets] == ["s0-prometheus", "s1-prometheus"]


def test_an_hpa_that_returned_to_the_adapter_is_read_by_its_metrics() -> None:
    """Server-side apply leaves the annotations that KEDA gave it."""
    one = replace(autoscaler(target_value=70), backend="adapter")
    hpa = horizontal_pod_autoscaler(one)
    hpa["metadata"]["annotations"] = scaled_object(autoscaler(target_value=40), RuleOptions())["metadata"][
        "annotations"
    ]
    read = autoscaler_of(hpa, {})
    assert (read.backend, read.target_value) == ("adapter", 70)


def test_an_hpa_without_its_scaled_object_is_still_keda_s() -> None:
    hpa = hpa_of_keda(scaled_object(autoscaler(), RuleOptions()))
    assert "ownerReferences" not in hpa["metadata"]
    assert autoscaler_of(hpa, {}).backend == "keda"


def test_an_hpa_that_keda_has_not_made_yet_is_the_one_that_it_makes() -> None:
    wanted = scaled_object(autoscaler(metric="llm", min_replicas=2), RuleOptions())
    awaited = hpa_of(wanted)
    assert awaited["metadata"].pop("ownerReferences") == [{"kind": "ScaledObject", "name": "chat"}]
    assert {part: awaited[part] for part in ("metadata", "spec")} == hpa_of_keda(wanted)
