"""What the generator is told: stages, and the parts in which requests are counted."""

from __future__ import annotations

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.request_schedule import (
    load_plan,
    longest_s,
    sweep_plan,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.shapes import stages_of

PLAN: dict[str, Any] = {"url": "http://chat", "timeout_s": "3", "most_users": "50"}


def test_requests_are_counted_by_stage_and_in_the_second_half_of_the_load() -> None:
    stages = stages_of("ramp", low=2, high=40, settle_s=30, rise_s=10, hold_s=60, fall_s=90)
    assert [(part["begins_s"], part["ends_s"]) for part in load_plan(PLAN, stages)["parts"]] == [
        *((0, 30), (30, 40), (40, 100), (100, 190)),
        (70, 100),
    ]


def test_numbers_may_be_text_and_goals_may_be_left_out() -> None:
    plan = sweep_plan(PLAN, {"p95_ms": "70", "ttft_p95_ms": None, "rejected_percent": 5}, settle_s=4, level_s=20)
    assert (plan["timeout_s"], plan["most_users"]) == (3.0, 50)
    assert plan["sweep"]["goals"] == {"p95_ms": 70.0, "rejected_percent": 5.0}
    assert longest_s(plan["sweep"]) == 14 * 64
    assert longest_s(plan["sweep"] | {"users": [4]}) == 64
