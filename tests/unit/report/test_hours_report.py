from __future__ import annotations

import csv

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_hours_report import FilterModule
from collection import ROOT
from page import read

show = FilterModule().filters()["gpu_hours_report"]
SAMPLE = yaml.safe_load(
    (ROOT / "plugins" / "modules" / "gpu_hours_info.py").read_text().partition('RETURN = r"""')[2].partition('"""')[0]
)["result"]["sample"]
NOTHING = {
    "recorded_since": "2026-11-16T00:00:00Z",
    "weeks": [
        {**SAMPLE["weeks"][0], "workloads": [], "idle_share": None}
        | dict.fromkeys(("gpu_hours", "busy_hours", "idle_hours", "unknown_hours"), 0.0)
    ],
    "workloads": [],
}


def test_the_lines_have_what_was_held_and_what_was_not() -> None:
    text = "\n".join(show(SAMPLE))
    assert "Pods held 744.0 GPU hours, 58% of which were idle. 600.0 GPU hours were free." in text
    assert "recorded since 2026-11-16 00:00 UTC" in text
    assert "2026-11-16     168.0  1,344.0  600.0      744.0  310.5  430.5      3.0       58" in text
    assert "research/notebook" in text


def test_the_page_needs_nothing_else() -> None:
    text = show(SAMPLE, "html")
    page = read(text)
    over_all, weeks, of_the_week = page.all("tbody")
    assert [row.one("th").text for row in over_all.all("tr")] == ["ml/inference", "research/notebook", "free"]
    assert len(weeks.all("tr")) == 1
    assert len(of_the_week.all("tr")) == 2
    assert "http" not in text
    assert show(SAMPLE, "html") == text


def test_the_rows_add_up_to_what_was_offered() -> None:
    rows = list(csv.DictReader(show(SAMPLE, "csv").splitlines()))
    assert [(row["namespace"], row["workload"]) for row in rows] == [
        ("ml", "inference"),
        ("research", "notebook"),
        ("", "free"),
    ]
    assert sum(float(row["gpu_hours"]) for row in rows) == SAMPLE["weeks"][0]["offered_hours"]
    assert {row["week"] for row in rows} == {"2026-11-16"}


def test_where_no_pod_held_a_gpu() -> None:
    assert show(NOTHING)[0] == "No pod held a GPU. 600.0 GPU hours were free."
    assert len(read(show(NOTHING, "html")).all("tbody")) == 2
    assert len(show(NOTHING, "csv").splitlines()) == 2


def test_what_nobody_knows_is_no_part_of_the_share() -> None:
    week = {**SAMPLE["weeks"][0], "busy_hours": 100.0, "idle_hours": 100.0, "unknown_hours": 544.0, "idle_share": 0.5}
    assert "Pods held 744.0 GPU hours, 50% of which were idle." in show({**SAMPLE, "weeks": [week]})[0]


def test_where_nobody_said_what_the_gpus_did() -> None:
    week = {**SAMPLE["weeks"][0], "busy_hours": 0.0, "idle_hours": 0.0, "idle_share": None}
    assert "with unknown load" in show({**SAMPLE, "weeks": [week]})[0]


@pytest.mark.parametrize(
    ("value", "format_", "seen"),
    [(SAMPLE, "pdf", "pdf is not one of text, html, csv"), ({}, "text", "no result"), ("hours", "html", "no result")],
)
def test_what_cannot_be_shown_is_refused(value: object, format_: str, seen: str) -> None:
    with pytest.raises(AnsibleFilterError, match=seen):
        show(value, format_)
