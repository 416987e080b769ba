from __future__ import annotations

from dataclasses import replace
from math import nan, sin

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recommendation import recommend
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replay import (
    PlannedMetric,
    Replay,
    Setting,
    Trace,
    replay,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replay_plan import (
    TODAY,
    Subject,
    candidates,
    overload_of,
    plan,
)

GPU = PlannedMetric("gpu", "pods", 60, most=100)
SETTING = Setting((GPU,), 1, 8)


def replayed(minutes: float, overload: float) -> Replay:
    return Replay(((0, 1),), 1, 15, minutes, overload, 0, 0, 1)


def subject(loads: list[float], **given: object) -> Subject:
    identity = {"namespace": "ml", "name": "chat", "metric": "gpu", "unit": "percent", "demand": False}
    return Subject(identity, SETTING, Trace(0, 15, {"gpu": loads}, **given), {"gpu": "%"})  # type: ignore[arg-type]


def test_the_fewest_gpu_minutes_within_the_bound() -> None:
    replays = {TODAY: replayed(100, 30), "target 50": replayed(120, 12), "target 40": replayed(150, 3)}
    found = recommend(replays, today=TODAY, gpus_per_replica=2, bound_minutes=15)
    assert found.name == "target 50"
    assert found.sentence == (
        "take target 50: 12 minutes of overload and 240 GPU-minutes, within 15 minutes; "
        "today has 30 minutes of overload and 200 GPU-minutes"
    )


def test_a_draw_leaves_all_as_it_is() -> None:
    replays = {"minimum 1": replayed(100, 3), TODAY: replayed(100, 3), "target 40": replayed(99, 16)}
    found = recommend(replays, today=TODAY, gpus_per_replica=1, bound_minutes=15)
    assert found.name == TODAY
    assert found.sentence.endswith("the fewest of 2 settings within 15 minutes, which 1 exceed")


def test_nothing_keeps_the_bound() -> None:
    replays = {TODAY: replayed(100, 30), "target 50": replayed(120, 20)}
    found = recommend(replays, today=TODAY, gpus_per_replica=1, bound_minutes=15)
    assert found.name is None
    assert "target 50 has the least: 20 minutes of overload" in found.sentence


def test_the_settings_that_are_tried_where_none_are_given() -> None:
    assert [*candidates(SETTING, [])] == [TODAY, "target 40", "target 50", "target 70", "target 80", "minimum 2"]
    queue = Setting((PlannedMetric("queue", "pods", 4),), 2, 2)
    assert [*candidates(queue, [])] == [TODAY, "target 2", "target 3", "target 5", "target 6"]


def test_settings_of_ones_own() -> None:
    rules = {"policies": [{"type": "Pods", "value": 8, "period_seconds": 15}], "tolerance": None}
    found = candidates(SETTING, [{"target_value": 50.0, "min_replicas": 9}, {"name": "fast", "scale_up": rules}])
    both, fast = found["target 50, minimum 9"], found["fast"]
    assert (both.metrics[0].target, both.minimum, both.maximum) == (50, 9, 9)
    assert fast.behavior.scale_up.policies[0].value == 8
    assert fast.behavior.scale_down == SETTING.behavior.scale_down
    assert candidates(replace(SETTING, minimum=4), [{"max_replicas": 2}])["maximum 2"].minimum == 2


def test_settings_of_one_name_are_numbered() -> None:
    paces = [{"scale_up": {"policies": [{"type": "Pods", "value": pods, "period_seconds": 15}]}} for pods in (1, 2, 8)]
    found = candidates(SETTING, [*paces, {"name": "own", "max_replicas": 3}, {"name": "own", "max_replicas": 4}])
    assert [*found] == [TODAY, "other scale_up", "other scale_up (2)", "other scale_up (3)", "own", "own (2)"]
    assert [setting.behavior.scale_up.policies[0].value for setting in found.values()][1:4] == [1, 2, 8]


def test_a_target_is_that_of_the_demand_too() -> None:
    """The larger proposal wins: a target of the first metric alone would change nothing above today's."""
    sustained = PlannedMetric("sustained", "pods", 60, most=100)
    demand = PlannedMetric("demand", "total", 60, shares_target=True)
    today = Setting((sustained, PlannedMetric("queue", "pods", 4), demand), 1, 8)
    found = candidates(today, [{"target_value": 70}])["target 70"]
    assert [metric.target for metric in found.metrics] == [70, 4, 70]
    loads = [270.0] * 100
    trace = Trace(0, 15, {"sustained": loads, "queue": [0.0] * 100, "demand": loads})
    assert replay(trace, found).replica_minutes < replay(trace, today).replica_minutes


def test_from_when_on_pods_are_overloaded() -> None:
    assert (overload_of(GPU, None), overload_of(GPU, 80)) == (90, 80)
    assert overload_of(PlannedMetric("queue", "pods", 4), None) == 6


def test_a_plan_in_full() -> None:
    loads = [200 + 150 * sin(step / 200) for step in range(5760)]
    found = plan(subject(loads, replicas=[3.0] * 5760), [], 15)
    today, *others = found["settings"]
    by_name = {setting["name"]: setting for setting in others}
    assert by_name["target 40"]["gpu_minutes"] > today["gpu_minutes"] > by_name["target 80"]["gpu_minutes"]
    assert len(found["history"]["times"]) == len(today["replicas"]) == 120
    assert found["recommended"] in by_name
    assert found["decisions"] == []


def test_what_the_numbers_leave_out_is_said() -> None:
    notes = plan(subject([nan] * 8 + [100.0] * 4, replicas=[1.0] * 12), [], 15)["notes"]
    assert notes == [
        "2 minutes have no sample of gpu; nothing is decided there",
        "all pods were full for 1 minutes: the load may have been higher than what is recorded",
    ]


@pytest.mark.parametrize("loads", [[], [nan]])
def test_without_a_sample(loads: list[float]) -> None:
    assert plan(subject(loads), [], 15)["settings"][0]["peak"] == 1
