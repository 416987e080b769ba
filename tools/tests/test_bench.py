"""What tools/bench computes from what it measures."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from bench_cluster import count_requests
from bench_progress import Steps
from bench_report import Report, Target, exponent, plot, tables
from bench_runs import FIRST, LOOK, OURS, STEPS, THEIR_LOOP, UNCHANGED, Crowd, ImportTime, Run, TaskTime, steps_of
from rich.console import Console

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = BEGIN + timedelta(seconds=10)
HPAS = {"resource": "horizontalpodautoscalers"}


def event(verb: str, uri: str, of: dict[str, str] | None = None, *, at_s: float = 1) -> dict[str, Any]:
    at = (BEGIN + timedelta(seconds=at_s)).isoformat().replace("+00:00", "Z")
    return {"verb": verb, "requestURI": uri, "requestReceivedTimestamp": at, "objectRef": of}


def test_requests_are_counted_by_verb_and_kind() -> None:
    proxy = {"resource": "services", "subresource": "proxy"}
    events = [
        event("list", "/apis/autoscaling/v2/horizontalpodautoscalers?limit=500", HPAS),
        event("list", "/apis/autoscaling/v2/horizontalpodautoscalers?limit=500&continue=abc", HPAS),
        event("patch", "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/a?force=true", HPAS),
        event("patch", "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/b", HPAS),
        event("get", "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query", proxy),
        event("get", "/apis/apps/v1?timeout=32s"),
        event("delete", "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/a", HPAS, at_s=11),
        event("delete", "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/a", HPAS, at_s=-1),
    ]
    assert count_requests(iter(events), BEGIN, END) == {
        "list horizontalpodautoscalers": 1,
        "list, next page horizontalpodautoscalers": 1,
        "patch horizontalpodautoscalers": 2,
        "get services/proxy": 1,
        "get /apis/apps/v1": 1,
    }


@pytest.mark.parametrize("power", [0, 1, 2])
def test_the_power_of_growth(power: int) -> None:
    assert exponent([(size, 0.004 * size**power) for size in (100, 300, 1000, 3000)]) == pytest.approx(power)


def test_a_loop_is_as_long_as_it_has_items() -> None:
    assert TaskTime(THEIR_LOOP, FIRST, objects=20, of=1000, measured_s=10).seconds == 500


@pytest.mark.parametrize(("seen", "at_most", "at_least"), [(4.9, True, False), (5, True, True), (5.1, False, True)])
def test_a_target_is_a_bound(seen: float, at_most: bool, at_least: bool) -> None:
    bounds = [Target("what", "s", 5, lambda _report: None, most=most) for most in (True, False)]
    assert [bound.is_met(seen) for bound in bounds] == [at_most, at_least]


def test_each_step_says_what_becomes_of_each_autoscaler() -> None:
    for number in (1, 5):
        for options, expected in steps_of(number).values():
            assert len(options["autoscalers"]) == number
            assert sum(expected.values()) == number


REPORT = Report(
    machine={},
    runs=[Run(size, step, size / 100, 80, {"list nodes": 1}) for size in (100, 1000) for step in STEPS],
    tasks=[
        TaskTime(way, step, objects, 1000, seconds)
        for way, objects, seconds in ((OURS, 1000, 2), (THEIR_LOOP, 20, 10))
        for step in (FIRST, UNCHANGED)
    ],
    imports=ImportTime(theirs_s=0.2, own_s=0.1),
)


def test_a_report_without_comparison_shows_what_there_is() -> None:
    report = Report({}, [run for run in REPORT.runs if run.autoscalers == 100], [], REPORT.imports)
    ElementTree.fromstring(plot(report))
    assert [table.title for table in tables(report)] == ["Seconds of a run", "Requests of a run over 100", "Targets"]


def test_the_verdicts() -> None:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(tables(REPORT)[-1])
    verdicts = [line.split("│")[1:-1] for line in capture.get().splitlines() if "│" in line]
    assert [(what.strip(), seen.strip(), verdict.strip()) for what, _bound, seen, verdict in verdicts] == [
        ("first apply of 1,000", "10.00", "met"),
        ("unchanged run over 1,000", "10.00", "missed"),
        ("memory with 1,000", "80.00", "met"),
        ("steepest growth, power of the number", "1.00", "met"),
        ("unchanged, loop of k8s to ours", "250.00", "met"),
        ("import of our own code", "0.10", "met"),
    ]


def test_labels_of_the_plot_do_not_cover_each_other() -> None:
    texts = ElementTree.fromstring(plot(REPORT)).findall("{http://www.w3.org/2000/svg}text[@style]")
    heights = sorted(float(text.attrib["y"]) for text in texts)
    assert len(heights) == len(STEPS) + len(REPORT.tasks)
    assert min(below - above for above, below in pairwise(heights)) >= 15


def test_the_step_that_grows_most_counts() -> None:
    alone = [Run(1000, step, 2.0, 100.0, {}) for step in (UNCHANGED, LOOK)]
    crowd = Crowd(20_000, alone, [Run(1000, UNCHANGED, 2.2, 100.0, {}), Run(1000, LOOK, 3.0, 120.0, {})])
    assert crowd.ratio(lambda run: run.wall_s) == 1.5
    assert crowd.ratio(lambda run: run.rss_mb) == 1.2


@pytest.mark.parametrize(("terminal", "lines"), [(False, ["rounds: 1 of 2", "rounds: 2 of 2"]), (True, [])])
def test_where_there_is_no_terminal_each_step_is_a_line(terminal: bool, lines: list[str]) -> None:
    output = io.StringIO()
    # A bar that is never drawn: what is left on a terminal are lines that would scroll.
    progress = Steps(console=Console(file=output, force_terminal=terminal, width=40), disable=True)
    task = progress.add_task("rounds", total=2)
    progress.advance(task)
    progress.advance(task)
    assert [line.partition(" ")[2] for line in output.getvalue().splitlines()] == lines
