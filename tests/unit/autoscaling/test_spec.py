from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES, Metric
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaling_rules import ScalingPolicy
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import (
    Autoscaler,
    Target,
    autoscaler_key,
    read_specs,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError

QUEUE = {"name": "queue", "query": "max by (namespace, pod) (queue_length)"}
POLICY = {"type": "Pods", "value": 1, "period_seconds": 30}


def params(**changes: Any) -> dict[str, Any]:
    return {"target": {"kind": "Deployment", "name": "chat"}, "max_replicas": 4, **changes}


def test_what_is_not_given() -> None:
    autoscaler = Autoscaler.from_params(params())
    assert (autoscaler.namespace, autoscaler.name) == ("default", "chat")
    assert autoscaler.target == Target("Deployment", "chat", "apps/v1")
    assert autoscaler.profile is PROFILES["gpu"]
    assert [
        (metric_target.metric.name, metric_target.value, metric_target.type)
        for metric_target in autoscaler.metric_targets
    ] == [("gpu", 60, "Pods")]
    assert (autoscaler.min_replicas, autoscaler.max_replicas) == (1, 4)
    assert autoscaler.raw_metrics == ()
    assert (autoscaler.dead_time, autoscaler.is_measured) == (60, False)


def test_an_autoscaler_selects_its_backend_or_has_the_default() -> None:
    found = read_specs([params(), params(name="own", backend="adapter")], "keda")
    assert [autoscaler.backend for autoscaler in found] == ["keda", "adapter"]
    assert [autoscaler.backend for autoscaler in read_specs([params()])] == ["adapter"]


def test_scaling_rules_replace_the_default_option_by_option() -> None:
    down = {"stabilization_window_seconds": 600, "policies": None, "select_policy": None, "tolerance": 0.05}
    up = {"policies": [{"type": "Pods", "value": 1, "period_seconds": 30}]}
    autoscaler = Autoscaler.from_params(params(scale_up=up, scale_down=down))
    assert autoscaler.scale_up.policies == (ScalingPolicy("Pods", 1, 30),)
    assert autoscaler.scale_up.stabilization_window_seconds == 0
    assert autoscaler.scale_down.stabilization_window_seconds == 600
    assert autoscaler.scale_down.tolerance == 0.05
    assert autoscaler.scale_down.select_policy == "Min"
    assert len(autoscaler.scale_down.policies) == 2


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [
        ("Rollout", "argoproj.io/v1alpha1"),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"),
        ("StatefulSet", "apps/v1"),
    ],
)
def test_known_kinds(kind: str, api_version: str) -> None:
    assert Autoscaler.from_params(params(target={"kind": kind, "name": "x"})).target.api_version == api_version


def test_a_target_is_the_same_in_another_version() -> None:
    assert Target("Rollout", "x", "argoproj.io/v1").identity == Target("Rollout", "x", "argoproj.io/v2").identity
    assert Target("Rollout", "x", "argoproj.io/v1").identity != Target("Rollout", "x", "example.com/v1").identity


TOTAL = {"name": "requests", "query": 'rate(ingress_requests_total{service="chat"}[1m])', "per": "workload"}


@pytest.mark.parametrize(
    ("changes", "type_", "series"),
    [
        ({}, "Pods", "namespace_pod:gpu:avg"),
        ({"metric_type": "Object"}, "Object", "namespace_workload:gpu:avg"),
        ({"metric_type": "External"}, "External", "external:gpu:sum"),
        ({"metric": TOTAL, "target_value": 9}, "Object", "namespace_workload:requests:sum"),
        ({"metric": TOTAL, "target_value": 9, "metric_type": "External"}, "External", "external:requests:sum"),
        ({"metric": {"name": "s0-sqs"}, "target_value": 9, "metric_type": "External"}, "External", ""),
    ],
)
def test_where_the_hpa_reads_a_metric(changes: dict[str, Any], type_: str, series: str) -> None:
    (metric_target,) = Autoscaler.from_params(params(**changes)).metric_targets
    assert (metric_target.type, metric_target.series) == (type_, series)


def test_extra_metrics_are_ours_or_as_the_api_has_them() -> None:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    filled = cpu | {"pods": None, "metric": None}  # by Ansible, for options that are not given
    extra = [filled, {"metric": "gpu_util", "target_value": 90}, {"metric": TOTAL, "target_value": 50}]
    autoscaler = Autoscaler.from_params(params(target_value=70, extra_metrics=extra))
    assert [
        (metric_target.metric.name, metric_target.value, metric_target.type)
        for metric_target in autoscaler.metric_targets
    ] == [
        ("gpu", 70, "Pods"),
        ("gpu_util", 90, "Pods"),
        ("requests", 50, "Object"),
    ]
    assert autoscaler.raw_metrics == (cpu,)
    assert [profile.name for profile in autoscaler.profiles] == ["gpu", "gpu_util", "requests"]


def test_target_values_name_any_metric_of_the_profile() -> None:
    assert Autoscaler.from_params(params(target_values={"gpu": 45})).metric_targets[0].value == 45


@pytest.mark.parametrize(
    ("up", "down", "needs"),
    [
        ({}, {}, True),
        ({"policies": [POLICY]}, {}, True),
        ({"policies": [POLICY]}, {"policies": [POLICY]}, True),
        ({"policies": [POLICY]}, {"policies": [POLICY], "stabilization_window_seconds": 60}, False),
        ({}, {"policies": [POLICY], "stabilization_window_seconds": 60}, True),
    ],
)
def test_a_dead_time_is_needed_unless_all_rules_are_given(
    up: dict[str, Any], down: dict[str, Any], needs: bool
) -> None:
    assert Autoscaler.from_params(params(scale_up=up, scale_down=down)).needs_dead_time is needs


def test_a_measured_dead_time_sets_the_pace_of_a_queue() -> None:
    given = params(metric="llm", target_value=None, scale_down={"tolerance": 0.2})
    autoscaler = Autoscaler.from_params(given).with_dead_time(180)
    assert {policy.period_seconds for policy in autoscaler.scale_up.policies} == {180}
    assert {policy.period_seconds for policy in autoscaler.scale_down.policies} == {60}
    assert autoscaler.scale_down.stabilization_window_seconds == 300
    assert autoscaler.scale_down.tolerance == 0.2


REFUSED = {
    "maximum below minimum": (params(min_replicas=5), "max_replicas 4 is below min_replicas 5"),
    "minimum below nothing": (params(min_replicas=-1), "min_replicas is -1"),
    "priority out of range": (params(priority=1001), "priority is 1001"),
    "priority as a word": (params(priority="high"), "priority is 'high'"),
    "unknown backend": (params(backend="Keda"), "backend is 'Keda'"),
    "no maximum": (params(max_replicas=None), "max_replicas is missing"),
    "no target": ({"max_replicas": 2}, "neither a name nor a target"),
    "unknown kind": (params(target={"kind": "Fleet", "name": "x"}), "target.kind is Fleet, whose API is unknown"),
    "unknown profile": (params(metric="gpu_speed"), "metric 'gpu_speed' is not a profile"),
    "over a hundred percent": (params(target_value=101), "gpu is in percent"),
    "target of nothing": (params(target_value=0), "target_value is 0"),
    "own metric without target": (params(metric=QUEUE), "metric queue has no target_value"),
    "own metric without query": (params(metric={"name": "queue"}, target_value=1), "metric queue has no query"),
    "external metric in upper case": (
        params(metric={"name": "S0"}, target_value=1, metric_type="External"),
        "is not complete",
    ),
    "own metric without name": (params(metric={"query": "up"}), "is not complete"),
    "own metric per node": (params(metric={**QUEUE, "per": "node"}), "has per: node"),
    "total as a value of pods": (
        params(metric=TOTAL, target_value=1, metric_type="Pods"),
        "one value for the workload",
    ),
    "object of an unknown kind": (
        params(target={"kind": "LeaderWorkerSet", "name": "x"}, metric_type="Object"),
        "metric_type Object cannot identify the pods of a LeaderWorkerSet",
    ),
    "target value of another metric": (
        params(target_values={"gpu_util": 5}),
        'target_values: unknown option "gpu_util"',
    ),
    "extra metric that is none": (
        params(extra_metrics=[{"target_value": 3}]),
        'extra_metrics[0]: unknown option "target_value"',
    ),
    "extra metric without target": (params(extra_metrics=[{"metric": QUEUE}]), "metric queue has no target_value"),
    "own metric with more": (params(metric={**QUEUE, "unit": "1"}), "is not complete"),
    "own metric with a name that is none": (params(metric={**QUEUE, "name": "Queue-1"}), "is not complete"),
    "own metric with a profile's name": (params(metric={**QUEUE, "name": "gpu"}), "is the name of a profile"),
}


PERCENT = [metric for profile in PROFILES.values() for metric in profile.metrics if metric.is_percent]


@pytest.mark.parametrize("metric", PERCENT, ids=lambda metric: metric.name)
@pytest.mark.parametrize("share", [0.01, 0.6, 0.999, 1])
def test_a_share_is_no_target_of_a_metric_in_percent(metric: Metric, share: float) -> None:
    """An HPA with `0/600m` goes to its maximum at any load."""
    [profile] = [profile for profile in PROFILES.values() if metric in profile.metrics]
    with pytest.raises(HopError) as caught:
        Autoscaler.from_params(params(metric=profile.name, target_values={metric.name: share}))
    assert f"is {share:g}, but {metric.name} is in percent, so any load exceeds it" in caught.value.seen
    assert f"set it to {100 * share:g} for" in caught.value.fix
    for value in (1.01, 100):
        Autoscaler.from_params(params(metric=profile.name, target_values={metric.name: value}))


@pytest.mark.parametrize(("given", "seen"), REFUSED.values(), ids=REFUSED)
def test_refusals(given: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError) as caught:
        Autoscaler.from_params(given)
    assert caught.value.hop == "autoscaler spec"
    assert seen in caught.value.seen
    assert caught.value.fix


@pytest.mark.parametrize(
    "wrong",
    [{"metric": "llm_in_flight"}, {"target_value": "much"}, {"metric_type": "Node"}],
    ids=lambda given: str(given),
)
def test_a_refusal_names_the_autoscaler(wrong: dict[str, Any]) -> None:
    """By its target, where it has no name of its own, and not by its metric: several may have that."""
    with pytest.raises(HopError) as caught:
        Autoscaler.from_params(params(**wrong))
    assert caught.value.seen.startswith("autoscaler chat: ")


def test_a_key_needs_no_more_than_a_name() -> None:
    assert autoscaler_key({"name": "chat", "namespace": "ml"}) == ("ml", "chat")
    assert autoscaler_key({"target": {"name": "chat"}}) == ("default", "chat")
    with pytest.raises(HopError, match="neither a name nor a target"):
        autoscaler_key({"namespace": "ml"})


def test_an_error_says_hop_seen_and_fix() -> None:
    assert str(HopError("a -> b", seen="nothing", fix="look")) == "a -> b: nothing\n  fix: look"


CHAT = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 3}
WRONG_OPTIONS = {
    "a typo in an extra metric": ({"extra_metrics": [{"metric": "gpu_util", "target_valeu": 70}]}, "target_valeu"),
    "a metric type in lower case": (
        {"extra_metrics": [{"metric": "gpu_util", "metric_type": "pods"}]},
        "extra_metrics[0].metric_type is 'pods'",
    ),
    "a target value that is no number": ({"target_values": {"gpu": "75%"}}, "target_values.gpu is '75%'"),
    "not a number": ({"target_value": float("nan")}, "target_value is nan"),
    "a target value that the API rounds to 0": (
        {"metric": {"name": "queue", "query": "x"}, "target_value": 0.0003},
        "target_value is 0.0003",
    ),
    "a metric twice": ({"extra_metrics": [{"metric": "gpu"}]}, "extra_metrics give the Pods metric gpu 2 times"),
    "no policy up": ({"scale_up": {"policies": []}}, "scale_up.policies is empty"),
    "no policy down": (
        {"scale_down": {"select_policy": "Disabled", "policies": []}},
        "scale_down.policies is empty",
    ),
    "no dead time": ({"dead_time_seconds": 0}, "dead_time_seconds is 0"),
    "a dead time beyond the API's periods": ({"dead_time_seconds": 1801}, "dead_time_seconds is 1801"),
}


@pytest.mark.parametrize(("options", "seen"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_what_is_written_wrong_is_one_clear_error(options: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError) as raised:
        Autoscaler.from_params({**CHAT, **options})
    assert raised.value.hop == "autoscaler spec"
    assert seen in raised.value.seen


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = [{**CHAT, "name": name, "max_replicas": 0} for name in ("a", "b")]
    with pytest.raises(HopError) as raised:
        read_specs([CHAT, *wrong])
    assert "autoscaler a:" in str(raised.value)
    assert "autoscaler b:" in str(raised.value)
