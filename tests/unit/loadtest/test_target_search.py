"""A search for a target as the role records it: what is proposed, and what is said beside."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_target_report import gpu_target_report
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.target_search import judge_search
from load_runs import BEGAN_S
from target_sweep import SWEEP, a_search, named


def test_the_target_of_the_recorded_sweep() -> None:
    verdict = judge_search(a_search())
    [row] = verdict["metrics"]
    assert (verdict["problems"], row["metric"], row["value"], row["users"]) == ([], "llm_in_flight", 12, 16)
    assert verdict["levels"][6]["metrics"] == {"llm_in_flight": 14.12}
    assert gpu_target_report(a_search(), "users") == 16
    assert gpu_target_report(a_search(), "headline") == (
        "ml/chat: ttft_p95_ms of 500 is held at a target of llm_in_flight 12"
    )


def test_the_goal_of_the_first_token_comes_before_that_of_the_last() -> None:
    assert judge_search(a_search(goals={"p95_ms": 1, "ttft_p95_ms": "500"}))["metrics"][0]["value"] == 12
    assert judge_search(a_search(goals={"p95_ms": 2300}))["metrics"][0]["value"] == 9


def test_a_target_that_one_pod_never_shows_is_named() -> None:
    """31 users at most were in flight: above 30 and its tolerance no HPA adds a pod."""
    [note] = judge_search(a_search())["metrics"][0]["notes"]
    assert note.startswith("the present target of 30 cannot be reached: one pod never showed more than 31")
    assert judge_search(a_search(targets={"llm_in_flight": 28}))["metrics"][0]["notes"] == []


def test_noise_and_a_metric_that_says_too_little_are_named() -> None:
    assert "noise decides" in str(judge_search(a_search(goals={"p95_ms": 2300}))["metrics"][0]["notes"])
    flat = a_search()
    for look in flat["looks"]:
        look["pod_values"]["gpu"] = 99 if look["time_s"] >= BEGAN_S + 100 else 20 * (look["time_s"] - BEGAN_S) / 30
    flat["targets"]["gpu"] = 60
    rows = judge_search(flat)["metrics"]
    assert [(row["metric"], row["value"]) for row in rows] == [("llm_in_flight", 12), ("gpu", 90)]
    assert rows[1]["notes"] == [
        "from 6 users on the metric is nearly the same as at 16, so it cannot hold a goal between them: requests in "
        "flight can"
    ]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        pytest.param({"goals": {}}, "no goal is given", id="no goal"),
        pytest.param({"goals": {"ttft_p95_ms": 10}}, "one user has a ttft_p95_ms above 10 already", id="one user"),
        pytest.param({"looks": []}, "at 1 users the pod had no value of llm_in_flight", id="no metric"),
        pytest.param(
            {"looks": [{**look, "pod_values": {"llm_in_flight": 0}} for look in a_search()["looks"]]},
            "llm_in_flight: it stayed at zero",
            id="another metric",
        ),
        pytest.param({"levels": a_search()["levels"][:1]}, "two are needed", id="one level"),
        pytest.param(
            {"levels": [{**level, "ttft_ms": None} for level in a_search()["levels"]]},
            "at 1 users no answer was a stream",
            id="no stream",
        ),
        pytest.param(
            {"levels": [{**level, "rejected": 50} for level in a_search()["levels"]]},
            "the pod rejects requests of one user",
            id="full",
        ),
    ],
)
def test_why_no_target_is_proposed(more: dict[str, Any], problem: str) -> None:
    run = a_search(**more)
    assert problem in gpu_target_report(run, "verdict")["problems"][0]
    assert gpu_target_report(run, "users") == 0
    assert "no target was found" in gpu_target_report(run)[0]
    assert problem in gpu_target_report(run, "html")


def test_a_metric_without_a_target_is_no_problem_beside_one_that_has_one() -> None:
    """The queue of vLLM, of `llm`: nothing waits at 16 users, which the goal is held by, and requests do at 20."""
    run = a_search()
    for look in run["looks"]:
        look["pod_values"]["llm_requests_waiting"] = 0 if look["time_s"] < BEGAN_S + 210 else 12
    queue = {"llm_requests_waiting": 5}
    late = "it is still zero at 16 users, the most that hold the goal, so it scales too late to hold it"
    verdict = judge_search(run | {"targets": queue | run["targets"]})
    assert [(row["metric"], row["value"]) for row in verdict["metrics"]] == [
        ("llm_requests_waiting", None), ("llm_in_flight", 12),
    ]  # fmt: skip
    assert (verdict["problems"], verdict["metrics"][0]["notes"]) == ([], [late])
    lines = gpu_target_report(run | {"targets": queue | run["targets"]})
    assert lines[0] == "ml/chat: ttft_p95_ms of 500 is held at a target of llm_in_flight 12"
    assert lines[-1] == "target_value: 12 # of llm_in_flight"
    alone = judge_search(run | {"targets": queue})
    assert (alone["problems"], alone["metrics"][0]["notes"]) == ([f"llm_requests_waiting: {late}"], [])


def test_more_users_than_the_server_answers_end_the_search() -> None:
    """All requests of 20 users and more time out, as those for long answers do."""
    run = a_search()
    for level in run["levels"][7:]:
        level |= {"served": 0, "timed_out": 20, "per_second": 0.0, "latency_ms": None, "ttft_ms": None}
    run["looks"] = [look for look in run["looks"] if look["time_s"] < BEGAN_S + 30 * 8]
    verdict = judge_search(run)
    [row] = verdict["metrics"]
    assert (verdict["problems"], row["value"], row["users"]) == ([], 12, 16)
    assert (row["limited_by"], row["is_past_last"], len(verdict["levels"])) == ("rejections", False, len(SWEEP))
    assert "  users of one pod                    16: the pod does not serve the requests of more users" in (
        gpu_target_report(run)
    )
    page = gpu_target_report(run, "html")
    assert page.count("none served") == 3
    for level in run["levels"]:
        level["served"] = 0
    assert judge_search(run)["problems"] == ["at 1 users no request was served"]


def test_a_second_run_confirms_it_or_says_by_how_much_it_misses() -> None:
    first = a_search()
    again = {"levels": [first["levels"][6]], "looks": first["looks"], "began_s": BEGAN_S}
    held = judge_search(a_search(confirmation=again))["confirmation"]
    assert (held["holds"], held["level"]["metrics"]) == (True, {"llm_in_flight": 14.12})
    missed = again | {"levels": [{**first["levels"][6], "ttft_ms": named((70, 620, 700))}]}
    lines = gpu_target_report(a_search(confirmation=missed))
    assert "  second run, 16 users, ttft_p95_ms   620 ms, goal 500 ms: missed by 24 %" in lines
    assert lines[0].startswith("ml/chat: the second run missed ttft_p95_ms by 24 %, so the proposal does not")


def test_lines_that_can_be_pasted() -> None:
    assert gpu_target_report(a_search())[-1] == "target_value: 12 # of llm_in_flight"


def test_the_page_has_the_curve_and_each_level() -> None:
    page = gpu_target_report(a_search(name="<chat>"), "html")
    assert "&lt;chat&gt;" in page
    assert page == gpu_target_report(a_search(name="<chat>"), "html")
    tree = ElementTree.fromstring(page[page.index('<svg class="plot"') : page.rindex("</svg>") + 6])
    words = ["".join(text.itertext()) for text in tree.iter("text")]
    assert {"users of one pod", "measured", "monotone", "goal", "proposed target", "llm_in_flight"} <= set(words)
    assert {"1", "2", "4", "8", "16", "32"} <= set(words)
    assert page.count("<tr>") == 1 + len(SWEEP) + 1 + 5  # both tables with their heads


def test_what_is_no_search_is_named() -> None:
    with pytest.raises(AnsibleFilterError, match="no search of gpu_loadtest"):
        gpu_target_report({})
    with pytest.raises(AnsibleFilterError, match="pdf is not one of"):
        gpu_target_report(a_search(), "pdf")
