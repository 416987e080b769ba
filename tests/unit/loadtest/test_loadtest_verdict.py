from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.verdict import judge
from load_runs import FALLS_S, RISES_S, a_run, counted, of_stages


def problems(changes=None, **more):
    return judge(a_run(changes, **more))["problems"]


def test_figures_of_a_test_that_passed():
    assert judge(a_run()) == {
        "before": 1,
        "reaction_s": 7.0,
        "undecided_s": 6.0,
        "needed": 5,
        "enough": 5,
        "settled": 5,
        "ready_s": 30.0,
        "peak": 5,
        "down_s": 60.0,
        "minimum_s": 65.0,
        "rest": 1,
        "budget_s": 10.0,
        "requests": {
            "served": 12_000,
            "rejected": 35,
            "refused_in_stream": 0,
            "failed": 0,
            "timed_out": 0,
            "dropped": 0,
        },
        "stages": judge(a_run())["stages"],
        "scale_downs": [],
        "goals": {},
        "settled_goals": [],
        "reasons": {},
        "problems": [],
    }


def up_to(replicas: int, ratio: float | None, **more):
    changes = {0: (1, 1, 0.25), RISES_S + 7: (replicas, replicas, ratio), FALLS_S + 9: (1, 1, 0.1)}
    return problems(changes | more.pop("besides", {}), **more)


def test_an_hpa_that_does_nothing():
    assert problems({0: (1, 1, 0.9)}) == [
        "the HPA did not scale up under load: it wanted as many replicas as before: 1"
    ]


def test_a_decision_later_than_the_chain_explains():
    late = {0: (1, 1, 0.2), RISES_S + 13: (5, 5, 0.9), FALLS_S + 9: (1, 1, 0.1)}
    assert problems(late) == [
        "the HPA decided 13 s after the load rose, later than the worst case of 10 s for the periods of its chain"
    ]
    assert problems(late, budget_s=None) == []
    assert problems(late, budget_s=11.5) == []


def test_a_load_that_rises_slowly_is_no_moment_to_count_from():
    late = {0: (1, 1, 0.2), RISES_S + 100: (5, 5, 0.9), RISES_S + 240 + 9: (1, 1, 0.1)}
    assert problems(late, shape="ramp") == []


def test_a_spike_is_over_before_pods_start():
    """Seen on the lab: three of four replicas after 20 s."""
    short = {0: (1, 1, 0.2), RISES_S + 5: (3, 3, 1.3), FALLS_S + 16: (1, 1, 0.1)}
    assert problems(short, shape="spike") == []
    assert problems(short) == ["4 replicas carry the load, but fewer were ready while the load lasted"]
    late = {0: (1, 1, 0.2), RISES_S + 17: (2, 1, 0.9), FALLS_S + 16: (1, 1, 0.1)}
    assert [problem.partition(",")[0] for problem in problems(late, shape="spike")] == [
        "the HPA decided 17 s after the load rose"
    ]


def test_more_replicas_than_the_load_needs():
    assert up_to(6, 0.75) == ["the HPA wanted 6 replicas, and 5 carry the load"]
    assert up_to(11, 0.9, maximum=20) == []  # 9.9 in all: 10 carry it, and the HPA leaves 11 as they are
    assert up_to(12, 0.825, maximum=20) == ["the HPA wanted 12 replicas, and 10 carry the load"]


def test_what_the_hpa_tolerates_is_enough():
    """It leaves replicas as they are whose metric is a tenth above its target, and so they carry the load."""
    assert up_to(4, 1.08) == []
    assert up_to(4, 1.08, maximum=4) == []
    assert up_to(4, 1.12) == ["5 replicas carry the load, but fewer were ready while the load lasted"]


def test_a_tolerance_of_its_own():
    def tolerating(tolerance):
        return {"behavior": {way: {"tolerance": tolerance} for way in ("scaleUp", "scaleDown")}}

    assert up_to(4, 1.2, **tolerating("300m")) == []
    assert up_to(4, 1.08, **tolerating("50m")) == [
        "5 replicas carry the load, but fewer were ready while the load lasted"
    ]
    assert up_to(7, 0.71, **tolerating("300m")) == []
    assert up_to(8, 0.1, **tolerating("1")) == []  # it never goes down


def test_more_for_a_moment_only():
    over = {RISES_S + 20: (7, 7, 0.7), RISES_S + 25: (5, 5, 0.92)}
    assert up_to(5, 0.92, besides=over) == ["the HPA wanted 7 replicas, and 5 carry the load"]


def test_the_minimum_is_never_too_many():
    assert problems({0: (4, 4, 0.1), RISES_S + 5: (5, 5, 0.9), FALLS_S + 5: (4, 4, 0.1)}, minimum=4) == []
    assert problems({0: (4, 4, 0.1), RISES_S + 5: (5, 5, 0.5), FALLS_S + 5: (4, 4, 0.1)}, minimum=5) == []


def test_a_maximum_that_is_too_low():
    assert up_to(4, 1.4, maximum=4) == ["the load needs 6 replicas, and the HPA allows 4"]


def test_replicas_that_are_never_ready():
    never = {0: (1, 1, 0.2), RISES_S + 7: (5, 3, 1.6), FALLS_S + 9: (1, 1, 0.1)}
    assert problems(never) == [
        "at the end of the load 5 replicas were wanted and 3 ready, "
        "so the required number is unknown: use a longer load"
    ]


def test_values_of_pods_that_have_just_come_judge_nothing():
    """Seen on the lab with a hold of 30 s: six replicas carried what five do, by values from before they were there."""
    late = {0: (1, 1, 0.25), RISES_S + 7: (5, 1, 1.6), RISES_S + 113: (5, 5, 1.2), FALLS_S + 9: (1, 1, 0.1)}
    assert problems(late, budget_s=None) == ["6 replicas carry the load, but fewer were ready while the load lasted"]
    assert problems(late) == [
        "at the end of the load 5 replicas had been ready for 6 s, and values take 10 s to follow, "
        "so the required number is unknown: use a longer load"
    ]


def test_values_that_have_followed_judge():
    late = {0: (1, 1, 0.25), RISES_S + 7: (5, 1, 1.6), RISES_S + 95: (5, 5, 1.1), RISES_S + 105: (5, 5, 0.92)}
    assert problems(late | {FALLS_S + 9: (1, 1, 0.1)}) == []


def test_a_metric_without_a_value_judges_nothing():
    assert up_to(5, None) == [
        "the HPA had no value for its metrics at the end of the load, so replicas cannot be judged"
    ]


def test_replicas_that_stay():
    assert problems(STAYS) == ["the replicas had not come down to 1 when the test ended"]


ONE_IN_30_S = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}]}
STAYS = {0: (1, 1, 0.25), RISES_S + 7: (5, 5, 0.92)}


@pytest.mark.parametrize(
    ("scale_down", "after", "left"),
    [
        pytest.param(ONE_IN_30_S, {FALLS_S + 40: (4, 4, 0.1)}, None, id="as slowly as the rules say"),
        pytest.param(ONE_IN_30_S, {}, 4, id="more slowly"),
        pytest.param({"stabilizationWindowSeconds": 300}, {}, None, id="the test ends in the window"),
        pytest.param({"selectPolicy": "Disabled"}, {}, None, id="never"),
        pytest.param({"stabilizationWindowSeconds": 0}, {}, 1, id="at once"),
    ],
)
def test_replicas_come_down_as_the_hpa_s_own_rules_let_them(scale_down, after, left):
    told = [f"the replicas had not come down to {left} when the test ended"] if left else []
    assert problems(STAYS | after, behavior={"scaleDown": scale_down}) == told


def test_requests_that_failed_or_were_not_sent():
    seen = counted(served=10, rejected=3, failed=2, timed_out=4, dropped=1, reasons={"status 500": 2})
    assert problems(requests=seen) == [
        "2 requests failed, 10 were served: 2 x status 500",
        "4 requests had no complete answer within their timeout, 10 were served",
        "1 of 20 requests were not sent, because all users waited for answers: set more users or less load",
    ]


def test_a_metric_that_saturates_below_its_target():
    """The HPA leaves one pod, which rejects a third of the requests: its metric ends below the target."""
    full = of_stages(settled={"served": 60, "rejected": 30, "refused_in_stream": 0})
    [problem] = problems({0: (1, 1, 0.2), RISES_S + 2: (1, 1, 1.05)}, requests=full)
    assert problem.startswith("the pods have too much, and the metric does not show it: 33 % of the requests in the")
    assert "was 105 % of its target at most, so the HPA left 1 replicas" in problem
    few = of_stages(settled={"served": 95, "rejected": 5, "refused_in_stream": 0})
    assert problems({0: (1, 1, 0.2), RISES_S + 2: (1, 1, 1.05)}, requests=few) == [
        "the HPA did not scale up under load: it wanted as many replicas as before: 1"
    ]
    assert "too much" not in str(problems({0: (8, 8, 0.2), RISES_S + 2: (8, 8, 1.05)}, requests=full))
    assert "too much" not in str(problems({0: (1, 1, 0.2), RISES_S + 2: (1, 1, 1.2)}, requests=full))


def test_a_few_requests_that_were_not_sent():
    """Seen on a busy machine: 9 of 17,737."""
    assert problems(requests=counted(served=16_145, rejected=1_583, dropped=9)) == []


@pytest.mark.parametrize("requests", [{}, None])
def test_requests_that_nobody_counted(requests):
    assert problems(requests=requests) == []


def test_a_load_that_was_too_short_for_a_look():
    run = a_run(shape="ramp")
    before_s = sum(stage["seconds"] for stage in run["stages"] if stage["name"] in ("before", "rise"))
    held_s = next(stage["seconds"] for stage in run["stages"] if stage["name"] == "load")
    began_s = run["began_s"]
    run["samples"] = [
        sample for sample in run["samples"] if not before_s <= sample["time_s"] - began_s < before_s + held_s
    ]
    assert judge(run)["settled"] == 5
