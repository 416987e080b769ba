"""The first screen of README.md: what it shows of the doctor and of the demo is what they print."""

from __future__ import annotations

import html
import re

import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.text import text_lines
from collection import ROOT
from readme import README, blocks
from replay import Replay

REPORT, TABLE = (block.splitlines() for block in re.findall(r"^```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
# As the lines are wrapped in a text without a terminal.
WIDTH = 98


def test_the_report_is_the_doctors() -> None:
    """Lines are left out, none is changed, and the order is the same."""
    lines = iter(
        text_lines(Replay("plain_prometheus", "an exporter that is not told to name pods").examine(), width=WIDTH)
    )
    times = re.compile(r"; [-\dT:+]+, [\d.]+ s$")
    printed = (times.sub("", line) for line in lines)
    assert [line for line in (times.sub("", line) for line in REPORT) if line not in printed] == []


def test_the_table_is_that_of_the_recorded_demo() -> None:
    picture = (ROOT / "docs" / "demo.svg").read_text()
    rows: dict[str, str] = {}
    for row, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>(.*?)</text>', picture):
        rows[row] = rows.get(row, "") + html.unescape(text).replace("\xa0", " ")
    assert [line for line in TABLE if not any(line in text for text in rows.values())] == []


def test_the_block_for_a_model_server_has_the_row_of_its_page() -> None:
    [block] = blocks("You have a model server", "sh")
    [row] = re.findall(r"\[\s*(\{.*\})\s*\]", block, re.DOTALL)
    page = (ROOT / "docs" / "vllm.md").read_text()
    [scale] = re.findall(r"```yaml\n# scale.yml\n(.*?)```", page, re.DOTALL)
    assert [yaml.safe_load(row)] == yaml.safe_load(scale)["gpu_autoscaling_autoscalers"]
