from __future__ import annotations

from math import sin
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_autoscaler_plan_report import FilterModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.explanation import RecordedDecisions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replay import PlannedMetric, Setting, Trace
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replay_plan import Subject, plan
from collection import ROOT
from page import read

show = FilterModule().filters()["gpu_autoscaler_plan_report"]
SAMPLE = yaml.safe_load(
    (ROOT / "plugins" / "modules" / "gpu_autoscaler_plan.py")
    .read_text()
    .partition('RETURN = r"""')[2]
    .partition('"""')[0]
)["result"]["sample"]


def result() -> dict[str, Any]:
    loads = [200 + 150 * sin(step / 200) for step in range(5760)]
    recent = RecordedDecisions(Trace(0, 5, {"gpu": [186.0] * 2}, [2.0, 4.0]), {"gpu": [2.0] * 2}, {"gpu": "%"})
    subject = Subject(
        {"namespace": "ml", "name": "<chat>", "metric": "gpu", "unit": "percent", "demand": False},
        Setting((PlannedMetric("gpu", "pods", 60, most=100),), 1, 8),
        Trace(0, 15, {"gpu": loads}, [3.0] * 5760),
        {"gpu": "%"},
        recent=recent,
    )
    left_out = {"namespace": "ml", "name": "cpu", "reason": "nothing is recorded"}
    return {"plans": [plan(subject, [], 60)], "not_planned": [left_out]}


RESULT = result()


def test_the_lines_have_the_advice_the_table_and_the_decisions() -> None:
    text = "\n".join(show(RESULT))
    assert "ml/<chat>: " in text
    assert "GPU-minutes  Overload, min  Turns  Peak" in text
    assert "  target 40" in text
    assert "- 1970-01-01 00:00:05Z 2 to 4: wanted 4: 2 pods at 93 % against 60 %" in text
    assert "ml/cpu: not planned: nothing is recorded" in text


def test_one_setting_is_marked_and_columns_are_aligned() -> None:
    rows = [line for line in show(RESULT) if line.startswith(("  today", "  target", "  minimum"))]
    assert len(rows) == 6
    assert sum(" * " in row for row in rows) == 1
    assert len({len(row) for row in rows}) == 1


def test_the_page_needs_nothing_else() -> None:
    text = show(RESULT, "html")
    page = read(text)
    assert len(page.all("svg")) == 1
    assert len(page.one("tbody").all("tr")) == 6
    assert "ml/<chat>" in [heading.text for heading in page.all("h2")]
    assert "http" not in text
    assert show(RESULT, "html") == text


def test_the_documented_sample_can_be_shown() -> None:
    assert show(SAMPLE)
    assert show(SAMPLE, "html")


def test_where_nothing_was_recorded() -> None:
    assert show({"plans": [], "not_planned": []}) == []
    assert "0 of 0" in show({"plans": [], "not_planned": []}, "html")


@pytest.mark.parametrize(
    ("value", "format_", "seen"),
    [(RESULT, "pdf", "pdf is not one of text"), ({}, "text", "no result"), ("planned", "html", "no result")],
)
def test_what_cannot_be_shown_is_refused(value: object, format_: str, seen: str) -> None:
    with pytest.raises(AnsibleFilterError, match=seen):
        show(value, format_)
