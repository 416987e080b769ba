from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import (
    PROFILES,
    Autoscaler,
    HopError,
    ScalingPolicy,
    Target,
    autoscaler_key,
)

QUEUE = {"name": "queue", "query": "max by (namespace, pod) (queue_length)"}


def params(**changes: Any) -> dict[str, Any]:
    return {"target": {"kind": "Deployment", "name": "chat"}, "max_replicas": 4, **changes}


def test_what_is_not_given() -> None:
    autoscaler = Autoscaler.from_params(params())
    assert (autoscaler.namespace, autoscaler.name) == ("default", "chat")
    assert autoscaler.target == Target("Deployment", "chat", "apps/v1")
    assert autoscaler.metric is PROFILES["gpu"]
    assert (autoscaler.target_value, autoscaler.min_replicas, autoscaler.max_replicas) == (60, 1, 4)
    assert autoscaler.extra_metrics == ()


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


REFUSED = {
    "maximum below minimum": (params(min_replicas=5), "max_replicas 4 is below min_replicas 5"),
    "minimum of nothing": (params(min_replicas=0), "min_replicas is 0"),
    "no maximum": (params(max_replicas=None), "max_replicas is missing"),
    "no target": ({"max_replicas": 2}, "no target is given"),
    "unknown kind": (params(target={"kind": "Fleet", "name": "x"}), "target kind Fleet is not one we know"),
    "unknown profile": (params(metric="gpu_speed"), "metric 'gpu_speed' is no profile"),
    "over a hundred percent": (params(target_value=101), "profile gpu is in percent"),
    "target of nothing": (params(target_value=0), "target_value is 0"),
    "own metric without target": (params(metric=QUEUE), "metric queue has no target_value"),
    "own metric without query": (params(metric={"name": "queue"}), "is not complete"),
    "own metric with more": (params(metric={**QUEUE, "unit": "1"}), "is not complete"),
    "own metric with a name that is none": (params(metric={**QUEUE, "name": "Queue-1"}), "is not complete"),
    "own metric with a profile's name": (params(metric={**QUEUE, "name": "gpu"}), "that is the name of a profile"),
}


@pytest.mark.parametrize(("given", "seen"), REFUSED.values(), ids=REFUSED)
def test_refusals(given: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError) as caught:
        Autoscaler.from_params(given)
    assert caught.value.hop == "autoscaler spec"
    assert seen in caught.value.seen
    assert caught.value.fix


def test_a_key_needs_no_more_than_a_name() -> None:
    assert autoscaler_key({"name": "chat", "namespace": "ml"}) == ("ml", "chat")
    assert autoscaler_key({"target": {"name": "chat"}}) == ("default", "chat")
    with pytest.raises(HopError, match="neither a name nor a target"):
        autoscaler_key({"namespace": "ml"})


def test_an_error_says_hop_seen_and_fix() -> None:
    assert str(HopError("a -> b", seen="nothing", fix="look")) == "a -> b: nothing\n  fix: look"
