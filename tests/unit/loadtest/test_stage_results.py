"""What users got under load, and their goals."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.verdict import judge
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.loadtest import (
    loadtest_headline,
    loadtest_lines,
    loadtest_page,
)
from load_runs import a_run, counted, ended, of_stages


def problems(goals: dict[str, Any], **under_load: Any) -> list[str]:
    return judge(a_run(requests=of_stages(**under_load), goals=goals))["problems"]


def test_each_stage_has_its_load_its_replicas_and_what_users_got() -> None:
    before, load, after = judge(a_run(requests=of_stages()))["stages"]
    assert load == {
        "name": "load",
        "load": [100.0, 100.0],
        "replicas": 5,
        "served": 900,
        "rejected": 60,
        "refused_in_stream": 40,
        "failed": 0,
        "timed_out": 0,
        "tokens": 28_800,
        "latency_ms": {"p50": 2195.8, "p95": 3194.2, "p99": 3629},
        "ttft_ms": {"p50": 830, "p95": 1310.4, "p99": 1400},
    }
    assert (before["name"], before["replicas"], before["latency_ms"]["p50"]) == ("before", 1, 410.0)
    assert (after["name"], after["ttft_ms"]) == ("after", None)


@pytest.mark.parametrize(
    ("goals", "found"),
    [
        ({}, []),
        ({"p95_ms": 3194.2, "ttft_p95_ms": 1310.4, "rejected_percent": 10}, []),
        ({"p95_ms": None}, []),
        ({"p95_ms": "3000"}, ["95th percentile of the latency under load: 3,194 ms, and the goal is 3,000 ms"]),
        (
            {"ttft_p95_ms": 500},
            ["95th percentile of the time to first token under load: 1,310 ms, and the goal is 500 ms"],
        ),
        # 60 rejected and 40 in a stream of status 200, of 1,000.
        ({"rejected_percent": 9.9}, ["rejected requests under load: 10 %, and the goal is 9.9 %"]),
        ({"rejected_percent": 0}, ["rejected requests under load: 10 %, and the goal is 0 %"]),
    ],
)
def test_a_goal_is_judged_while_the_load_is_held(goals: dict[str, Any], found: list[str]) -> None:
    assert problems(goals) == found


def test_a_goal_that_nothing_was_measured_for_is_not_met() -> None:
    none = {"served": 0, "rejected": 0, "refused_in_stream": 0, "latency_ms": None, "ttft_ms": None}
    assert problems({"p95_ms": 1, "ttft_p95_ms": 1, "rejected_percent": 1}, **none) == [
        f"the goal {name} cannot be judged: no such request was answered under load"
        for name in ("p95_ms", "ttft_p95_ms", "rejected_percent")
    ]


def test_dropped_requests_are_of_those_that_were_planned() -> None:
    """Requests refused in a stream were sent."""
    few = counted(served=900, refused_in_stream=90, dropped=10)
    assert judge(a_run(requests=few))["problems"] == []
    assert "11 of 1001 requests were not sent" in judge(a_run(requests=few | {"dropped": 11}))["problems"][0]


def test_the_second_half_of_the_load_shows_whether_the_target_holds_the_goal() -> None:
    """While replicas are added, users wait: the goal is missed, and the target may be right."""
    late = {"p50": 1900, "p95": 2400, "p99": 2900}
    run = a_run(
        requests=of_stages(settled={"latency_ms": late}), goals={"p95_ms": 2500, "ttft_p95_ms": 1000, "x": None}
    )
    assert judge(run)["settled_goals"] == [
        {"goal": "p95_ms", "seen": 2400, "value": 2500.0},
        {"goal": "ttft_p95_ms", "seen": 1310.4, "value": 1000.0},
    ]
    lines = loadtest_lines(run)
    assert "  p95_ms, second half of the load     2,400 ms, goal 2,500 ms: met" in lines
    assert "  ttft_p95_ms, second half of the load 1,310 ms, goal 1,000 ms: missed by 31 %" in lines
    assert judge(a_run(requests=of_stages(), goals={"p95_ms": 1}))["settled_goals"] == []


Loss = tuple[int, int, int]


def down(lost_at: list[Loss], *ends: dict[str, Any]) -> list[tuple[list[str], float | None, int | None]]:
    requests = counted(served=100, failed=sum(many for *_seconds, many in lost_at)) | {"lost_at": lost_at}
    rows = judge(a_run(requests=requests, ends=list(ends)))["scale_downs"]
    return [(row["pods"], row["ended_s"], row["lost"]) for row in rows]


def test_requests_that_failed_while_pods_ended_are_lost_in_that_scale_down() -> None:
    """Two pods that end together are one; the failures of second 100 are before the third, those of 160 after it."""
    lost_at = [(100, 100, 7), (121, 121, 2), (151, 151, 3), (160, 160, 5)]
    ends = [ended("a", 120.2, 125.0), ended("b", 120.7, 126.0), ended("c", 150.0, 154.5)]
    assert down(lost_at, *ends) == [(["a", "b"], 126.0, 2), (["c"], 154.5, 3)]


@pytest.mark.parametrize("names", [("chat-0", "chat-0"), ("chat-0", "chat-1")])
def test_a_request_that_hangs_is_lost_once_in_the_scale_down_that_it_was_sent_in(names: tuple[str, str]) -> None:
    """Its time is out long after its pod was gone, while the next pod ends, which may have the same name."""
    ends = [ended(names[0], 120, 125, uid="1"), ended(names[1], 150, 154, uid="2")]
    lost_at = [(100, 119, 2), (123, 153, 3), (151, 181, 4), (158, 188, 5), (60, 100, 6)]
    assert down(lost_at, *ends) == [([names[0]], 125.0, 5), ([names[1]], 154.0, 4)]


def test_a_pod_that_is_gone_between_two_watches_leaves_later_rows_alone() -> None:
    """The first look of the second watch does not see it. `a_run` has one each second."""
    ends = [ended("a", 120, None, seen_s=122.5), ended("b", 150, 154)]
    assert down([(121, 121, 1), (151, 151, 2)], *ends) == [(["a"], 123.0, 1), (["b"], 154.0, 2)]


def test_a_pod_that_ends_in_two_stages_is_one() -> None:
    """Each stage has a watch, and the second one sees it terminating from its begin on."""
    ends = [ended("a", 120, None, seen_s=125.2), ended("a", 125.5, 141)]
    assert down([(122, 122, 1), (140, 140, 4)], *ends) == [(["a"], 141.0, 5)]
    assert down([(122, 122, 1)], ended("a", 120, None), ended("b", 135, 150)) == [(["a", "b"], None, 1)]


def test_failures_are_looked_for_within_the_error_of_two_clocks() -> None:
    """The generator's begins up to a second and a look earlier."""
    assert down([(118, 118, 1), (128, 128, 1)], ended("a", 120, 127))[0][2] == 2
    assert down([(117, 117, 1), (129, 129, 1)], ended("a", 120, 127))[0][2] == 0


def test_lost_requests_are_in_the_report_and_fail_the_test() -> None:
    ends = [ended("chat-a", 160, 170), ended("chat-b", 240, None)]
    requests = counted(served=100, failed=3, reasons={"ConnectionResetError": 3}) | {
        "lost_at": [(161, 161, 2), (200, 200, 1)]
    }
    run = a_run(requests=requests, ends=ends)
    assert judge(run)["problems"] == [
        "2 requests were lost while chat-a ended",
        "3 requests failed, 100 were served: 3 x ConnectionResetError",
    ]
    assert loadtest_headline(run) == "ml/chat: 2 requests were lost while chat-a ended, and 1 more"
    assert "  while pods ended                    2 requests lost in 2 scale-downs" in loadtest_lines(run)
    page = re.sub(r'<wbr>| data-title="[^"]*"', "", loadtest_page(run))
    assert "<td>chat-a</td><td>160 s</td><td>170 s</td><td>2</td>" in page
    assert "<td>chat-b</td><td>240 s</td><td>not yet</td><td>0</td>" in page


def test_the_last_line_of_a_test_that_passed_has_its_scale_downs() -> None:
    requests = counted(served=100) | {"lost_at": []}
    run = a_run(requests=requests, ends=[ended("chat-a", 160, 170)])
    assert loadtest_headline(run) == "ml/chat: the load test passed, 0 requests lost in 1 scale-down"
    unknown = a_run(requests={}, ends=[ended("chat-a", 160, 170)])
    assert loadtest_headline(unknown) == "ml/chat: the load test passed"
    assert ">not reported</td>" in loadtest_page(unknown)
