from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaling_rules import (
    dead_time_s,
    default_scale_down,
    default_scale_up,
)


@pytest.mark.parametrize(
    ("pod_start_s", "lag_s", "expected"),
    [(0, 5, 15), (10, 5, 15), (10.1, 5, 30), (50, 5, 60), (100, 62, 180), (4000, 60, 1800)],
)
def test_a_dead_time_is_rounded_up_to_a_step(pod_start_s: float, lag_s: float, expected: int) -> None:
    assert dead_time_s(pod_start_s, lag_s) == expected


@pytest.mark.parametrize(("dead_time", "up", "down", "window"), [(15, 15, 60, 300), (180, 180, 180, 360)])
def test_rules_follow_from_the_dead_time(dead_time: int, up: int, down: int, window: int) -> None:
    assert {policy.period_seconds for policy in default_scale_up(dead_time).policies} == {up}
    assert default_scale_up(dead_time).stabilization_window_seconds == 0
    assert {policy.period_seconds for policy in default_scale_down(dead_time).policies} == {down}
    assert default_scale_down(dead_time).stabilization_window_seconds == window


@pytest.mark.parametrize("dead_time", [15, 600, 1800])
def test_rules_stay_within_what_the_api_takes(dead_time: int) -> None:
    for rules in (default_scale_up(dead_time), default_scale_down(dead_time)):
        assert 0 <= rules.stabilization_window_seconds <= 3600
        assert all(0 < policy.period_seconds <= 1800 for policy in rules.policies)
