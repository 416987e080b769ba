from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import ACTIVITIES, PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaling_rules import (
    DEFAULT_SCALE_DOWN,
    dead_time_s,
    default_scale_up,
    scale_up_to,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler


@pytest.mark.parametrize(
    ("pod_start_s", "lag_s", "expected"),
    [(0, 5, 15), (10, 5, 15), (10.1, 5, 30), (50, 5, 60), (100, 62, 180), (4000, 60, 1800)],
)
def test_a_dead_time_is_rounded_up_to_a_step(pod_start_s: float, lag_s: float, expected: int) -> None:
    assert dead_time_s(pod_start_s, lag_s) == expected


@pytest.mark.parametrize("dead_time", [15, 180, 600, 1800])
def test_a_step_up_takes_a_dead_time(dead_time: int) -> None:
    rules = default_scale_up(dead_time)
    assert {policy.period_seconds for policy in rules.policies} == {dead_time}
    assert rules.stabilization_window_seconds == 0


ACTIVITY, OTHER = sorted(ACTIVITIES), sorted(set(PROFILES) - set(ACTIVITIES))
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


@pytest.mark.parametrize(
    ("options", "is_at_once"),
    [
        *(({"metric": metric}, True) for metric in ACTIVITY),
        *(({"metric": metric}, False) for metric in OTHER),
        ({"metric": "gpu", "extra_metrics": [CPU]}, False),
        ({"metric": {"name": "own", "query": "own"}}, False),
        ({"metric": "gpu", "demand": {"offered": "o", "served": "s"}}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("dead_time", [15, 600])
def test_only_what_full_pods_prove_is_scaled_to_at_once(options: Any, is_at_once: bool, dead_time: int) -> None:
    autoscaler = Autoscaler.from_params(
        {"target": {"name": "chat"}, "max_replicas": 8, "dead_time_seconds": dead_time, "target_value": 60, **options}
    )
    expected = scale_up_to(8) if is_at_once else default_scale_up(dead_time)
    assert (autoscaler.scale_up, autoscaler.scale_down) == (expected, DEFAULT_SCALE_DOWN)
