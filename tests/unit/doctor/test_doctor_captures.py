"""Clusters that others have made, from what their API server and Prometheus answer to the report."""

from __future__ import annotations

import pytest
from replay import CAPTURES, CASES, Replay


@pytest.mark.parametrize("name", CAPTURES)
def test_a_healthy_cluster_of_others_has_no_finding(name: str) -> None:
    live = Replay(name)
    report = live.examine()
    assert [(each["id"], each["seen"]) for each in report["findings"]] == []
    assert {hop["id"]: hop["status"] for hop in report["hops"] if hop["status"] != "ok"} == dict.fromkeys(
        live.capture["unknown"], "unknown"
    )
    assert [each["check"] for each in report["not_checked"]] == live.capture["not_checked"]
    assert [each["verified"] for each in report["autoscalers"]] == [True]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_what_changes_in_it_is_found_and_nothing_else(name: str, case: str) -> None:
    live = Replay(name, case)
    report = live.examine()
    found = [{key: each[key] for key in ("id", "object", "seen")} for each in report["findings"]]
    assert found == live.capture["cases"][case]["findings"]


@pytest.mark.parametrize(("name", "case"), [*((name, "") for name in CAPTURES), *CASES])
def test_each_captured_answer_is_asked_for(name: str, case: str) -> None:
    """What nobody asks for any more is no part of the capture, and a query that has changed is captured anew."""
    live = Replay(name, case)
    live.examine()
    expected = live.capture["cases"][case].get("unasked", []) if case else []
    assert live.unasked == set(expected)
