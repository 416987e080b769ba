from __future__ import annotations

from math import inf, nan

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.controller import Behavior
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replay import (
    Form,
    PlannedMetric,
    Replay,
    Setting,
    Trace,
    _proposer,
    direction_changes,
    replay,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import (
    Tolerance,
    desired_replicas,
    desired_replicas_by_total,
    desired_replicas_by_value,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaling_rules import (
    ScalingPolicy,
    ScalingRules,
)
from hypothesis import given
from hypothesis import strategies as st

GPU = PlannedMetric("gpu", "pods", 60, most=100)
FREE = ScalingRules(0, (ScalingPolicy("Pods", 1000, 1),), "Max")
UNLIMITED = Behavior(FREE, FREE)


def run(loads: list[float], metric: PlannedMetric = GPU, **given: object) -> Replay:
    setting = {"metrics": (metric,), "minimum": 1, "maximum": 8, "behavior": UNLIMITED, "pod_start_s": 30, **given}
    return replay(Trace(0, 15, {metric.name: loads}), Setting(**setting))  # type: ignore[arg-type]


def test_a_load_of_two_gpus_at_60_percent_takes_four_pods() -> None:
    """One full pod asks for two, which ask for four as soon as the second is there. ceil(200 / 60) is four."""
    found = run([50.0] * 2 + [200.0] * 10)
    assert found.changes == ((0, 1), (3, 2), (5, 4))


def test_the_metric_ends_at_100_percent_and_the_load_does_not() -> None:
    assert run([800.0], PlannedMetric("gpu", "pods", 60, most=100)).changes[-1] == (1, 2)
    assert run([800.0], PlannedMetric("gpu", "pods", 60)).changes[-1] == (1, 8)


def test_a_pod_that_starts_is_no_capacity() -> None:
    """Overloaded at 0, 15, 30 and 45 s: the pod that is wanted at 15 s is ready 30 s later."""
    found = run([50.0] + [110.0] * 5, maximum=2)
    assert (found.changes, found.overload_minutes) == (((0, 1), (2, 2)), 0.5)
    assert run([50.0] + [110.0] * 5, maximum=2, pod_start_s=0).overload_minutes == 0.25


def test_pods_that_start_are_given_up_first() -> None:
    """Down from two that start and one that works: the one that works is still there."""
    found = run([170.0, 20.0, 99.0], PlannedMetric("gpu", "pods", 60), pod_start_s=300)
    assert found.changes == ((0, 1), (1, 3), (2, 1), (3, 2))


def test_minutes() -> None:
    found = run([60.0] * 8 + [nan] * 4)
    assert (found.replica_minutes, found.overload_minutes, found.unknown_minutes, found.peak) == (3, 0, 1, 1)


@pytest.mark.parametrize("form", ["pods", "average", "total"])
@pytest.mark.parametrize("load", [inf, -inf])
def test_what_is_no_number_is_no_sample(form: Form, load: float) -> None:
    found = run([50.0, load, 50.0], PlannedMetric("queue", form, 60))
    assert (found.changes, found.unknown_minutes, found.overload_minutes) == (((0, 1),), 0.25, 0)


def test_a_gap_leaves_the_count_alone() -> None:
    assert run([120.0] * 3 + [nan] * 5 + [120.0] * 3, pod_start_s=0).changes == ((0, 1), (1, 2))


def test_a_metric_without_a_value_forbids_fewer() -> None:
    metrics = (GPU, PlannedMetric("queue", "pods", 5))
    trace = Trace(0, 15, {"gpu": [10.0] * 4, "queue": [nan, nan, 0.0, 0.0]}, replicas=[3])
    found = replay(trace, Setting(metrics, 1, 8, UNLIMITED, 0))
    assert found.changes == ((0, 3), (3, 1))


def test_what_a_metric_without_a_value_forbids_is_not_remembered() -> None:
    """Down at once when it has one again: the controller gave up before its window, which has passed meanwhile."""
    metrics, down = (GPU, PlannedMetric("queue", "pods", 5)), ScalingRules(300, FREE.policies, "Max")
    trace = Trace(0, 15, {"gpu": [180.0] * 10 + [60.0] * 90, "queue": [0.0] * 10 + [nan] * 40 + [0.0] * 50}, [3])
    assert replay(trace, Setting(metrics, 1, 8, Behavior(FREE, down), 0)).changes == ((0, 3), (51, 1))


@pytest.mark.parametrize("later", [150.0, 400.0], ids=["less", "what there is"])
def test_without_a_behavior_an_older_recommendation_still_adds_pods(later: float) -> None:
    found = run([1000.0] + [later] * 3, PlannedMetric("total", "total", 100), maximum=20, behavior=Behavior.of_hpa({}))
    assert found.changes == ((0, 1), (1, 4), (2, 8), (3, 10))


def test_a_total_wakes_what_may_be_at_zero_and_puts_it_to_sleep() -> None:
    load = [0.0, 0.0, 250.0, 250.0, 0.0, 0.0]
    found = run(load, PlannedMetric("queue", "total", 60), minimum=0)
    assert found.changes[0] == (0, 0)
    assert (found.peak, found.changes[-1][1]) == (5, 0)


def test_it_begins_with_what_there_was() -> None:
    trace = Trace(0, 15, {"gpu": [60.0]}, replicas=[nan, 12])
    assert replay(trace, Setting((GPU,), 1, 8, UNLIMITED)).changes[0] == (0, 8)


@pytest.mark.parametrize(
    ("counts", "changes"), [([1, 2, 3], 0), ([1, 2, 1], 1), ([3, 1, 2, 1], 2), ([1, 1], 0), ([], 0)]
)
def test_direction_changes(counts: list[int], changes: int) -> None:
    assert direction_changes(counts) == changes


def test_replicas_at_some_steps() -> None:
    assert run([50.0] * 2 + [200.0] * 10).at([0, 2, 3, 5, 11]) == [1, 1, 2, 4, 4]


loads = st.lists(st.floats(0, 2000, allow_nan=False) | st.just(nan), min_size=1, max_size=60)
forms = st.sampled_from(["pods", "average", "total"])
rules = st.builds(
    ScalingRules,
    st.sampled_from([0, 60, 300]),
    st.just((ScalingPolicy("Pods", 2, 30), ScalingPolicy("Percent", 50, 30))),
    st.sampled_from(["Max", "Min", "Disabled"]),
)
settings = st.builds(
    Setting,
    st.tuples(st.builds(PlannedMetric, st.just("gpu"), forms, st.floats(1, 100), st.sampled_from([None, 100]))),
    st.integers(1, 3),
    st.integers(3, 12),
    st.builds(Behavior, rules, rules),
    st.sampled_from([0, 30, 90, 300]),
)


@given(loads, settings)
def test_never_outside_the_bounds(loads: list[float], setting: Setting) -> None:
    found = replay(Trace(0, 15, {"gpu": loads}), setting)
    assert all(setting.minimum <= count <= setting.maximum for _step, count in found.changes)
    assert found.peak <= setting.maximum


@given(st.floats(0, 2000), settings)
def test_a_constant_load_turns_no_direction(load: float, setting: Setting) -> None:
    """From as few pods as may be; each step waits for the pods of the one before, as computed policies do."""
    policies = (ScalingPolicy("Pods", 2, 30 + int(setting.pod_start_s)),)
    up = ScalingRules(0, policies, "Max")
    calm = Setting(setting.metrics, setting.minimum, setting.maximum, Behavior(up, FREE), setting.pod_start_s)
    assert replay(Trace(0, 15, {"gpu": [load] * 200}), calm).direction_changes == 0


@given(loads, settings)
def test_minutes_add_up(loads: list[float], setting: Setting) -> None:
    found = replay(Trace(0, 15, {"gpu": loads}), setting)
    assert found.replica_minutes == pytest.approx(sum(found.at(range(len(loads)))) / 4)
    assert found.overload_minutes + found.unknown_minutes <= len(loads) / 4


@given(
    forms,
    st.floats(0.5, 200),
    st.floats(0, 3000),
    st.integers(1, 12),
    st.integers(0, 6),
    st.builds(Tolerance, st.sampled_from([0, 0.1, 0.7]), st.sampled_from([0, 0.1, 0.7])),
)
def test_the_short_way_says_what_the_arithmetic_says(
    form: str, target: float, load: float, ready: int, starting: int, tolerance: Tolerance
) -> None:
    replicas = ready + starting
    found = _proposer(PlannedMetric("gpu", form, target), [load], tolerance)(0, replicas, ready)  # type: ignore[arg-type]
    if form == "total":
        assert found == desired_replicas_by_total(load, target, status_replicas=replicas, tolerance=tolerance)
    elif form == "average":
        assert found == desired_replicas_by_value(
            load / ready, target, current=replicas, ready=ready, tolerance=tolerance
        )
    else:
        usage = [load / ready] * ready
        assert found == desired_replicas(usage, target, current=replicas, unready=starting, tolerance=tolerance)
