from __future__ import annotations

from math import nan
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.controller import Behavior
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.explanation import (
    RecordedDecisions,
    explain,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replay import PlannedMetric, Setting, Trace
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaling_rules import (
    ScalingPolicy,
    ScalingRules,
)

GPU = PlannedMetric("gpu", "pods", 60, most=100)
ONE_IN_15_S = ScalingRules(0, (ScalingPolicy("Pods", 1, 15),), "Max")
FREE = ScalingRules(0, (ScalingPolicy("Pods", 100, 1),), "Max")


def decisions(
    loads: list[float],
    speaking: list[float],
    replicas: list[float],
    *,
    up: ScalingRules = FREE,
    down: ScalingRules = FREE,
    metric: PlannedMetric = GPU,
) -> list[dict[str, Any]]:
    trace = Trace(1000, 5, {metric.name: loads}, replicas)
    recorded = RecordedDecisions(trace, {metric.name: speaking}, {metric.name: "%"})
    return list(explain(recorded, Setting((metric,), 1, 8, Behavior(up, down))))


def sentence(*args: Any, **kwargs: Any) -> str:
    (only,) = decisions(*args, **kwargs)
    return only["sentence"]


def test_the_sentence_of_a_decision_that_a_policy_limits() -> None:
    (found,) = decisions([186, 186, 186], [2, 2, 2], [2, 2, 3], up=ONE_IN_15_S)
    assert found == {
        "time_s": 1010,
        "before": 2,
        "after": 3,
        "sentence": "wanted 4: 2 pods at 93 % against 60 %, limited to 3 by 1 pod in 15 s",
        "agrees": True,
    }


def test_pods_that_are_not_counted_yet() -> None:
    assert sentence([200, 200], [2, 2], [3, 4]) == "wanted 4: 2 pods at 100 % against 60 %, 1 not counted yet"


def test_the_window_holds() -> None:
    """Down to two would do, but three were asked for within the window."""
    down = ScalingRules(60, FREE.policies, "Max")
    found = sentence([170] * 3 + [90] * 4, [4] * 7, [4] * 6 + [3], down=down)
    assert found == "wanted 2: 4 pods at 22.5 % against 60 %, held at 3, the highest of the last 60 s"


def test_without_a_behavior_the_window_adds() -> None:
    trace = Trace(0, 5, {"demand": [600, 120]}, [1, 4])
    setting = Setting((PlannedMetric("demand", "total", 60),), 1, 12, Behavior.of_hpa({}))
    (found,) = explain(RecordedDecisions(trace, {}, {}), setting)
    assert found["sentence"] == (
        "wanted 2: 120 in all against 60 a pod, held at 10, the highest of the last 300 s, "
        "limited to 4 by the stock pace, twice the pods or four"
    )


def test_what_a_metric_without_a_value_forbids_is_not_remembered() -> None:
    """The window has passed when it has one again."""
    down, queue = ScalingRules(60, FREE.policies, "Max"), PlannedMetric("queue", "pods", 5)
    loads = {"gpu": [180.0] * 2 + [60.0] * 26, "queue": [0.0] * 2 + [nan] * 24 + [0.0] * 2}
    speaking = {name: [3.0] * 28 for name in loads}
    recorded = RecordedDecisions(Trace(0, 5, loads, [3.0] * 27 + [1.0]), speaking, {})
    (found,) = explain(recorded, Setting((GPU, queue), 1, 8, Behavior(FREE, down)))
    assert (found["agrees"], found["sentence"]) == (True, "wanted 1: 3 pods at 20 against 60")


def test_a_metric_without_a_value_forbids_fewer() -> None:
    loads = {"gpu": [60.0] * 2, "queue": [nan] * 2}
    recorded = RecordedDecisions(Trace(0, 5, loads, [3.0, 2.0]), {name: [3.0] * 2 for name in loads}, {})
    (found,) = explain(recorded, Setting((GPU, PlannedMetric("queue", "pods", 5)), 1, 8, Behavior(FREE, FREE)))
    assert found["sentence"].startswith(
        "wanted nothing: 3 pods at 20 against 60, and a metric without a value forbids fewer; the HPA set 2"
    )


def test_the_maximum() -> None:
    found = sentence([700, 700], [7, 7], [7, 8])
    assert found == "wanted 12: 7 pods at 100 % against 60 %, limited to 8 by the maximum"


def test_two_policies_and_none() -> None:
    both = ScalingRules(0, (ScalingPolicy("Pods", 1, 15), ScalingPolicy("Percent", 20, 15)), "Max")
    assert "limited to 3 by the larger of 1 pod in 15 s and 20 % in 15 s" in sentence(
        [200, 200], [2, 2], [2, 3], up=both
    )


def test_a_change_that_the_values_do_not_explain() -> None:
    (found,) = decisions([60, 60], [1, 1], [1, 5])
    assert not found["agrees"]
    assert found["sentence"].startswith("wanted 1: 1 pod at 60 % against 60 %; the HPA set 5")


def test_a_total() -> None:
    demand = PlannedMetric("demand", "total", 60)
    assert sentence([50, 270], [], [1, 5], metric=demand) == "wanted 5: 270 % in all against 60 % a pod"


def test_a_decision_that_is_shown_late() -> None:
    """kube-state-metrics shows it 20 s after the load that it was made on has gone."""
    found = sentence([120, 60, 60, 60, 60], [1] * 5, [1, 1, 1, 1, 2])
    assert found == "wanted 2: 1 pod at 120 % against 60 %"


def test_a_sum_of_which_nobody_knows_how_many_it_is_of() -> None:
    """Two replicas of Prometheus behind one Service: one of them has just begun."""
    assert sentence([50, 120], [1, nan], [1, 2]).startswith("wanted nothing: no metric had a value")


def test_gaps_are_no_decisions() -> None:
    assert decisions([60, nan, 60], [1, nan, 1], [1, nan, 1]) == []
    assert decisions([nan, nan], [nan, nan], [1, 2])[0]["sentence"].startswith("wanted nothing: no metric had a value")
