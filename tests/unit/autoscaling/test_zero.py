"""min_replicas: 0: what is rejected because it would never sleep, never wake or flap, and what is made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    autoscaler_of,
    horizontal_pod_autoscaler,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaled_object import hpa_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.zero import controller_gap
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest

QUEUE = {"name": "queue", "query": 'gateway_queue{service="chat"} or vector(0)', "per": "workload"}
PODS_QUEUE = {"name": "waiting", "query": "max by (namespace, pod) (waiting)"}
PERCENT = {"type": "Percent", "value": 100, "period_seconds": 15}
POD = {"type": "Pods", "value": 4, "period_seconds": 15}


def sleeper(backend: str = "adapter", **options: Any) -> Autoscaler:
    given = {
        "namespace": "ml",
        "target": {"name": "chat"},
        "metric": QUEUE,
        "target_value": 5,
        "min_replicas": 0,
        "max_replicas": 8,
        **options,
    }
    return Autoscaler.from_params(given, backend=backend)


def made(autoscaler: Autoscaler) -> Manifest:
    [*_rules, scaler] = manifests([autoscaler], RuleOptions())
    return scaler


def cpu(**target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", **target}}}


def external(**target: Any) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": "jobs"}, "target": target}}


BOTH: dict[str, tuple[dict[str, Any], str]] = {
    "a profile of GPUs": ({"metric": "gpu", "target_value": 60}, "metric gpu has a value for each pod"),
    "a metric of pods": ({"metric": PODS_QUEUE}, "metric waiting has a value for each pod"),
    "a metric of pods beside a total": (
        {"extra_metrics": [{"metric": "gpu", "target_value": 60}]},
        "gpu has a value for each pod",
    ),
    "no way down": ({"scale_down": {"select_policy": "Disabled"}}, "it never scales to zero"),
}
NATIVE: dict[str, tuple[dict[str, Any], str]] = {
    "an average": ({"metric": PODS_QUEUE, "metric_type": "Object"}, "it flaps around zero"),
    "a total recorded from pods": ({"metric": PODS_QUEUE, "metric_type": "External"}, "is recorded from pods"),
    "a demand beside pods": (
        {"metric": "gpu", "target_value": 60, "demand": {"source": "istio"}},
        "gpu_sustained has a value for each pod",
    ),
    "CPU": ({"extra_metrics": [cpu(averageUtilization=50)]}, "a metric of type Resource, which never asks for 0"),
    "a value": ({"extra_metrics": [external(type="Value", value="5")]}, "with target type Value"),
    "percent alone": ({"scale_up": {"policies": [PERCENT]}}, "a percentage of 0 replicas is 0"),
    "the smallest of percent and pods": (
        {"scale_up": {"policies": [POD, PERCENT], "select_policy": "Min"}},
        "a percentage of 0 replicas is 0",
    ),
    "no way up": ({"scale_up": {"select_policy": "Disabled"}}, "it never leaves zero"),
}


@pytest.mark.parametrize("backend", ["adapter", "keda"])
@pytest.mark.parametrize(("options", "seen"), BOTH.values(), ids=BOTH)
def test_what_cannot_be_at_zero_is_rejected_by_both(backend: str, options: dict[str, Any], seen: str) -> None:
    if backend == "keda" and "extra_metrics" in options:
        seen = "extra_metrics has a total"  # which it rejects with any minimum
    with pytest.raises(HopError) as rejected:
        made(sleeper(backend, **options))
    assert rejected.value.seen.startswith("autoscaler chat: ")
    assert seen in rejected.value.seen
    assert rejected.value.fix


@pytest.mark.parametrize(("options", "seen"), NATIVE.values(), ids=NATIVE)
def test_what_cannot_be_at_zero_natively_is_rejected(options: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError) as rejected:
        made(sleeper(**options))
    assert seen in rejected.value.seen


@pytest.mark.parametrize(("options", "seen"), {**BOTH, **NATIVE}.values(), ids={**BOTH, **NATIVE})
def test_a_minimum_of_one_may_have_all_of_it(options: dict[str, Any], seen: str) -> None:
    assert made(sleeper(**options, min_replicas=1))["spec"]["minReplicas"] == 1, seen


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"metric_type": "External"},
        {"metric": {"name": "jobs", "selector": {"queue": "chat"}}, "metric_type": "External"},
        {"extra_metrics": [external(type="AverageValue", averageValue="5")]},
        {"scale_up": {"policies": [POD, PERCENT], "select_policy": "Max"}},
        {"scale_up": {"policies": [POD], "select_policy": "Min"}},
    ],
    ids=["object", "external", "existing external", "raw external", "pods or percent", "pods alone"],
)
def test_a_total_with_a_policy_in_pods_scales_to_zero_natively(options: dict[str, Any]) -> None:
    hpa = made(sleeper(**options))
    assert (hpa["kind"], hpa["spec"]["minReplicas"]) == ("HorizontalPodAutoscaler", 0)
    kinds = [entry[entry["type"].lower()]["target"]["type"] for entry in hpa["spec"]["metrics"]]
    assert set(kinds) == {"AverageValue"}


def test_keda_reads_the_total_itself_often_and_waits_for_the_window() -> None:
    wanted = made(sleeper("keda", target_value=0.5, scale_down={"stabilization_window_seconds": 120}))
    spec = wanted["spec"]
    assert (spec["minReplicaCount"], spec["pollingInterval"]) == (0, 5)
    # KEDA scales a workload that was never active to zero after the initial period, 0 by default.
    assert (spec["cooldownPeriod"], spec["initialCooldownPeriod"]) == (120, 120)
    (trigger,) = spec["triggers"]
    assert trigger["metricType"] == "AverageValue"
    recorded = 'namespace_workload:queue:sum{namespace="ml",deployment="chat"}'
    assert trigger["metadata"]["query"] == f"max({recorded} offset -1s)"
    assert (trigger["metadata"]["threshold"], trigger["metadata"]["ignoreNullValues"]) == ("0.5", "false")
    assert "fallback" not in spec, "without a value it would scale to zero"


def test_keda_with_a_minimum_of_one_keeps_its_own_periods() -> None:
    assert not {"pollingInterval", "cooldownPeriod"} & made(sleeper("keda", min_replicas=1))["spec"].keys()


def test_keda_takes_its_first_step_by_itself() -> None:
    assert made(sleeper("keda", scale_up={"policies": [PERCENT]}))["kind"] == "ScaledObject"


def test_keda_scales_totals_with_the_tolerance_and_the_rules_of_the_adapter() -> None:
    options = {"scale_up": {"tolerance": 0.2}, "min_replicas": 1}
    *rules, wanted = manifests([sleeper("keda", **options)], RuleOptions())
    *same, hpa = manifests([sleeper(**options)], RuleOptions())
    assert rules == same
    config = wanted["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
    assert config["behavior"] == hpa["spec"]["behavior"]


@pytest.mark.parametrize("minimum", [0, 2])
def test_keda_s_hpa_of_a_total_is_read_back_as_the_adapter_s(minimum: int) -> None:
    """KEDA's HPA never has a minimum of 0."""
    one = sleeper("keda", min_replicas=minimum, scale_up={"tolerance": 0.2})
    by_keda = hpa_of(made(one))
    assert by_keda["spec"]["minReplicas"] == max(minimum, 1)
    assert autoscaler_of(by_keda, {}) == replace(autoscaler_of(horizontal_pod_autoscaler(one), {}), backend="keda")


def manager(image: str, *flags: str) -> Manifest:
    container = {"image": f"registry.k8s.io/kube-controller-manager:{image}", "command": ["x", *flags]}
    return {"metadata": {"name": "kube-controller-manager-a"}, "spec": {"containers": [container]}}


OFF = "--feature-gates=A=true,HPAScaleToZero=false"
ON = "--feature-gates=HPAScaleToZero=true,B=false"


@pytest.mark.parametrize(
    ("managers", "is_gap"),
    [
        ([manager("v1.37.0")], False),
        ([manager("v1.36.3")], True),
        ([manager("v1.36.3", ON)], False),
        ([manager("v1.37.0", OFF)], True),
        ([manager("v1.37.0"), manager("v1.36.3")], True),
        ([manager("v1.36.3", "--feature-gates=A=true")], True),
        ([manager("latest")], False),
        ([], False),
    ],
    ids=["newer", "older", "gate on", "gate off", "one is older", "another gate", "unknown version", "hidden"],
)
def test_the_controller_has_to_know_zero_too(managers: list[Manifest], is_gap: bool) -> None:
    assert bool(controller_gap(managers)) is is_gap
