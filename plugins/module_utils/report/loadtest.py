# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A load test as lines for a terminal, as one HTML page that needs nothing else, and as JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ..errors import counted
from ..loadtest.shapes import LOAD
from ..loadtest.stage_results import SENT
from ..loadtest.verdict import Passed, judge, passed_stages
from .doctor_texts import at_minute, clean, name_of
from .elements import breakable, element
from .page import page
from .plot import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    VALUE_HEIGHT,
    WIDTH,
    Line,
    Panel,
    ceiling,
    draw_panel,
    replicas_panel,
    time_axis,
)
from .status_symbol import light

Run = Mapping[str, Any]

_SUITE = "gpu_loadtest"
_MARKS_S = (5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)


def loadtest_headline(run: Run) -> str:
    """The verdict in one line."""
    verdict = judge(run)
    problems, lost = verdict["problems"], _lost(verdict)
    if not problems:
        return clean(f"{name_of(run)}: the load test passed" + (f", {lost}" if lost else ""))
    return clean(f"{name_of(run)}: {problems[0]}" + (f", and {len(problems) - 1} more" if len(problems) > 1 else ""))


def loadtest_lines(run: Run, width: int = 80) -> list[str]:
    """run: see `judge` of loadtest/verdict.py; `namespace` and `name` besides. One string a line."""
    verdict = judge(run)
    lines = [loadtest_headline(run)]
    lines += [f"  {label:35} {value}" for label, value in _figures(verdict)]
    for problem in verdict["problems"]:
        lines += wrap(clean(f"! {problem}"), width, initial_indent="  ", subsequent_indent="    ")
    return lines


def stage_line(run: Run) -> str:
    """What happened in the last stage that has begun, while the test is under way."""
    return _stage_line([passed for passed in passed_stages(run) if passed.samples][-1])


def _stage_line(passed: Passed) -> str:
    if not passed.samples:
        return "not seen"
    first, last = passed.samples[0], passed.samples[-1]
    peak = max(sample["desired"] for sample in passed.samples)
    changed = next((sample for sample in passed.samples if sample["desired"] != first["desired"]), None)
    said = f"{counted(first['desired'], 'replica')} wanted throughout"
    if changed:
        after_s = changed["time_s"] - passed.began_s
        said = f"{first['desired']} to {last['desired']} replicas wanted, first after {after_s:.1f} s"
        said += f", {peak} at most" if peak > max(first["desired"], last["desired"]) else ""
    return clean(f"{passed.stage.name}: {said}; {last['ready']} ready at the end")


def _figures(verdict: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    budget_s = verdict["budget_s"]
    within = f" (worst case {budget_s:g} s)" if budget_s is not None else ""
    yield "first decision after the load rose", _seconds(verdict["reaction_s"]) + within
    yield "enough replicas ready", _seconds(verdict["ready_s"])
    needed = "?" if verdict["needed"] is None else verdict["needed"]
    yield "replicas before, needed, at most", f"{verdict['before']}, {needed}, {verdict['peak']}"
    yield "first step down after the load fell", _seconds(verdict["down_s"])
    is_held = verdict["minimum_s"] is None and verdict["rest"] > verdict["before"]
    yield "as few as before", "not so soon, by the HPA's rules" if is_held else _seconds(verdict["minimum_s"])
    if requests := verdict["requests"]:
        yield "requests", ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in requests.items())
    if lost := _lost(verdict):
        yield "while pods ended", lost
    for stage in verdict["stages"]:
        if stage["name"] == LOAD:
            yield from _times_under_load(stage, verdict["goals"])
    for row in verdict["settled_goals"]:
        yield f"{row['goal']}, second half of the load", goal_sentence(row["goal"], row["seen"], row["value"])


def _lost(verdict: Mapping[str, Any]) -> str:
    """Requests without an answer while pods ended; empty if no pod ended, or if the generator does not report them."""
    rows = [row for row in verdict["scale_downs"] if row["lost"] is not None]
    lost = sum(row["lost"] for row in rows)
    return f"{counted(lost, 'request')} lost in {counted(len(rows), 'scale-down')}" if rows else ""


def _times_under_load(stage: Mapping[str, Any], goals: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for label, times, goal in (
        ("latency under load, p50, p95, p99", stage["latency_ms"], goals.get("p95_ms")),
        ("time to first token", stage["ttft_ms"], goals.get("ttft_p95_ms")),
    ):
        if times:
            aim = f" (goal of p95: {_milliseconds(float(goal))})" if goal is not None else ""
            yield label, statistics(times) + aim


def goal_sentence(goal: str, seen: float, value: float) -> str:
    """What was seen of a goal, and by how much it misses."""
    unit = "%" if goal == "rejected_percent" else "ms"
    figures = f"{seen:,.4g} {unit}, goal {value:,.4g} {unit}: "
    if seen <= value:
        return figures + "met"
    return figures + (f"missed by {100 * (seen / value - 1):,.0f} %" if value else "missed")


def statistics(times: Mapping[str, float] | None) -> str:
    return ", ".join(map(_milliseconds, times.values())) if times else ""


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:g} s"


def loadtest_page(run: Run) -> str:
    """The same test gives the same page."""
    verdict = judge(run)
    state = "broken" if verdict["problems"] else "ok"
    return page(
        f"Load test - {name_of(run)}",
        element("header", element("div", light(state), element("h1", loadtest_headline(run)), class_="verdict")),
        element(
            "main",
            [element("p", problem, class_="broken") for problem in verdict["problems"][1:]],
            element("article", _plot(run, verdict), class_="card wide"),
            table("Result", ("Figure", "Value"), _figures(verdict)),
            _stages(run),
            _answers(verdict),
            _pods(run),
            _scale_downs(verdict),
            _events(run),
        ),
        element("footer", "gpu_loadtest of kubegpu.autoscale"),
    )


def table(name: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Element:
    """A table whose rows are lists on narrow screens."""
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", [element("th", title, scope="col") for title in titles])),
            element("tbody", [_row(titles, row) for row in rows]),
        ),
        class_="scroll list",
        role="region",
        aria_label=f"{name}, table",
        tabindex="0",
    )


def _row(titles: Sequence[str], cells: Sequence[str]) -> Element:
    shown = zip(titles, cells, strict=True)
    return element("tr", [element("td", breakable(cell), data_title=title) for title, cell in shown])


def _stages(run: Run) -> list[Element]:
    rows = [(passed.stage.sentence(), _stage_line(passed)) for passed in passed_stages(run)]
    return [element("h2", "Stages"), table("Stages", ("Load", "Replicas"), rows)]


def _answers(verdict: Mapping[str, Any]) -> list[Element]:
    stages = verdict["stages"]
    if not stages:
        return []
    titles = (
        "Stage",
        "Requests/s",
        "Ready replicas",
        "Latency p50, p95, p99",
        "Time to first token p50, p95, p99",
        "Served",
        "Rejected",
        "Refused in stream",
        "Failed",
        "Timed out",
        "Tokens",
    )
    rows = (
        (
            stage["name"],
            " to ".join(dict.fromkeys(f"{rate:g}" for rate in stage["load"])),
            "not seen" if stage["replicas"] is None else str(stage["replicas"]),
            statistics(stage["latency_ms"]) or "none served",
            statistics(stage["ttft_ms"]) or "not measured",
            *(f"{stage[outcome]:,}" for outcome in SENT),
            f"{stage['tokens']:,}" if stage["tokens"] else "not counted",
        )
        for stage in stages
    )
    return [element("h2", "What users got"), table("What users got", titles, rows)]


def _pods(run: Run) -> list[Element]:
    pods = {pod["name"]: pod for pod in run["pods"]}  # the last look at each
    if not pods:
        return []
    rows = (
        (pod["name"], at_minute(pod["made"]), _seconds(pod["scheduled_s"]), _seconds(pod["ready_s"]))
        for pod in pods.values()
    )
    return [element("h2", "New pods"), table("New pods", ("Pod", "Created", "Scheduled after", "Ready after"), rows)]


def _scale_downs(verdict: Mapping[str, Any]) -> list[Element]:
    rows = [
        (
            ", ".join(row["pods"]),
            _seconds(row["began_s"]),
            "not yet" if row["ended_s"] is None else _seconds(row["ended_s"]),
            "not reported" if row["lost"] is None else f"{row['lost']:,}",
        )
        for row in verdict["scale_downs"]
    ]
    titles = ("Pods", "Terminating at", "Gone at", "Requests lost")
    return [element("h2", "Scale-downs"), table("Scale-downs", titles, rows)] if rows else []


def _events(run: Run) -> list[Element]:
    # Two looks may tell of one event.
    told = dict.fromkeys(
        (at_minute(event["time"]), event["object"], event["reason"], event["message"]) for event in run["events"]
    )
    if not told:
        return []
    return [element("h2", "Events"), table("Events", ("Time", "Object", "Reason", "Message"), told)]


def _plot(run: Run, verdict: Mapping[str, Any]) -> Element:
    """The requests, and below them the replicas."""
    stages = passed_stages(run)
    samples = [sample for passed in stages for sample in passed.samples]
    times = [sample["time_s"] - run["began_s"] for sample in samples]
    rates = [passed.stage.rate(sample["time_s"] - passed.began_s) for passed in stages for sample in passed.samples]
    top = ceiling(max(rates)) if any(rates) else 0  # unknown for a custom generator
    ticks = [top * part / 4 for part in range(5)]
    asked = [Panel("requests/s", [Line("asked", "value", rates)], ticks, TOP, VALUE_HEIGHT)] if top else []
    lines = [
        Line("wanted", "desired", [sample["desired"] for sample in samples], stepped=True),
        Line("ready", "current", [sample["ready"] for sample in samples], stepped=True),
    ]
    if verdict["needed"] is not None:
        lines.insert(0, Line("needed", "target", [verdict["needed"]] * len(samples)))
    x = time_axis(times)
    words = f"Replicas: {verdict['before']} before, {verdict['peak']} at most."
    return element(
        "svg",
        element("title", f"{name_of(run)}: requests and replicas over time", id="loadtest-title"),
        element("desc", words, id="loadtest-words"),
        [draw_panel(panel, times, x) for panel in (*asked, replicas_panel(lines))],
        element("g", _marks(times, x), class_="times"),
        class_="plot",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby="loadtest-title loadtest-words",
    )


def _marks(times: Sequence[float], x: Any) -> list[Element]:
    every = next((step for step in _MARKS_S if times[-1] / step <= 6), _MARKS_S[-1])
    y = HEIGHT - BOTTOM + 18
    marks = [
        element("text", f"{at} s", x=x(at), y=y, text_anchor="start" if at == 0 else "middle")
        for at in range(0, int(times[-1]) + 1, every)
        if at >= times[0] or at == 0
    ]
    label = element(
        "text", "time from the first request", x=(LEFT + WIDTH - RIGHT) // 2, y=y + 16, text_anchor="middle"
    )
    return [*marks, label]


def loadtest_junit(run: Run) -> str:
    """A test case for each thing that is judged."""
    verdict = judge(run)
    root = Element("testsuites", name=_SUITE)
    suite = SubElement(root, "testsuite", name=_SUITE)
    case = SubElement(suite, "testcase", classname=_SUITE, name=name_of(run))
    if problems := verdict["problems"]:
        failure = SubElement(case, "failure", type="LoadTest", message=clean(counted(len(problems), "problem")))
        failure.text = clean("\n".join(problems))
    SubElement(case, "system-out").text = clean("\n".join(f"{label}: {value}" for label, value in _figures(verdict)))
    seconds = run["samples"][-1]["time_s"] - run["began_s"]
    case.set("time", f"{seconds:.3f}")
    for node in (root, suite):
        failures = str(int(bool(problems)))
        node.attrib |= {"tests": "1", "failures": failures, "errors": "0", "time": f"{seconds:.3f}"}
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'
