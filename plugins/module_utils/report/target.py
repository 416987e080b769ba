# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A search for a target value as lines for a terminal, and as one HTML page with its curve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log2
from textwrap import wrap
from typing import Any
from xml.etree.ElementTree import Element

from ..loadtest.target_search import TIMES, judge_search
from .doctor_texts import clean, name_of
from .elements import element
from .loadtest import goal_sentence, statistics, table
from .page import page
from .plot import (
    BOTTOM,
    GAP,
    HEIGHT,
    LEFT,
    REPLICAS_HEIGHT,
    RIGHT,
    TOP,
    VALUE_HEIGHT,
    WIDTH,
    Line,
    Panel,
    ceiling,
    draw_panel,
    time_axis,
)
from .status_symbol import light

Run = Mapping[str, Any]

_LIMITS = {
    "goal": "more users miss the goal",
    "knee": "more users add no throughput",
    "rejections": "the pod does not serve the requests of more users",
}


def target_headline(run: Run) -> str:
    """The proposal in one line."""
    verdict = judge_search(run)
    if verdict["problems"]:
        none = "" if _proposed(verdict) else "no target was found: "
        return clean(f"{name_of(run)}: {none}{verdict['problems'][0]}")
    proposed = ", ".join(f"{row['metric']} {row['value']:g}" for row in _proposed(verdict))
    goal = verdict["goal"]
    return clean(f"{name_of(run)}: {goal} of {verdict['goals'][goal]:g} is held at a target of {proposed}")


def target_lines(run: Run, width: int = 80) -> list[str]:
    """run: see `judge_search` of loadtest/target_search.py; `namespace` and `name` besides. One string a line."""
    verdict = judge_search(run)
    lines = [target_headline(run)]
    lines += [f"  {label:35} {value}" for label, value in _figures(verdict)]
    for text in (*verdict["problems"], *(note for row in verdict["metrics"] for note in _notes(row))):
        lines += wrap(clean(f"! {text}"), width, initial_indent="  ", subsequent_indent="    ")
    return [*lines, *_options(verdict)]


def target_page(run: Run) -> str:
    """The same search gives the same page."""
    verdict = judge_search(run)
    notes = [note for row in verdict["metrics"] for note in _notes(row)]
    state = "broken" if verdict["problems"] else "warning" if notes else "ok"
    options = "\n".join(_options(verdict))
    return page(
        f"Target - {name_of(run)}",
        element("header", element("div", light(state), element("h1", target_headline(run)), class_="verdict")),
        element(
            "main",
            [element("p", problem, class_="broken") for problem in verdict["problems"][1:]],
            [element("p", note, class_="warning") for note in notes],
            element("article", _plot(run, verdict), class_="card wide") if verdict["metrics"] else None,
            table("Proposal", ("Figure", "Value"), _figures(verdict)),
            element("pre", options) if options else None,
            element("h2", "Users of one pod"),
            _levels(verdict),
        ),
        element("footer", "gpu_loadtest of kubegpu.autoscale"),
    )


def _figures(verdict: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for row in verdict["metrics"]:
        proposed = "none" if row["value"] is None else f"{row['value']:g} (now {row['present']:g})"
        yield f"target value of {row['metric']}", proposed
        yield "from the noise of the percentiles", f"{row['lowest']:g} to {row['highest']:g}"
        yield "highest value of one pod", f"{row['top']:.4g}"
    if verdict["metrics"]:
        row = verdict["metrics"][0]
        yield "users of one pod", f"{row['users']}: {_LIMITS[row['limited_by']]}"
        yield "knee of the throughput", f"{row['knee']} users"
    if confirmed := verdict["confirmation"]:
        for goal in confirmed["goals"]:
            sentence = goal_sentence(goal["goal"], goal["seen"], goal["value"])
            yield f"second run, {confirmed['level']['users']} users, {goal['goal']}", sentence
        for metric, value in confirmed["level"]["metrics"].items():
            yield f"second run, {metric}", f"{value:.4g}"


def _notes(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['metric']}: {note}" for note in row["notes"]]


def _options(verdict: Mapping[str, Any]) -> list[str]:
    """To be pasted into an entry of gpu_autoscaling_autoscalers."""
    return [f"target_value: {row['value']:g} # of {row['metric']}" for row in _proposed(verdict)]


def _proposed(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [row for row in verdict["metrics"] if row["value"] is not None]


def _levels(verdict: Mapping[str, Any]) -> Element:
    fitted = dict(zip(sorted(level["users"] for level in verdict["levels"]), _fitted(verdict), strict=False))
    titles = (
        "Users",
        "Served/s",
        "Tokens/s",
        *(row["metric"] for row in verdict["metrics"]),
        "Latency p50, p95, p99",
        "Time to first token p50, p95, p99",
        "p95, monotone",
        "p95, 95 % interval",
        "Served",
        "Not served",
    )
    rows = (
        (
            str(level["users"]),
            f"{level['per_second']:.4g}",
            f"{level['tokens_per_second']:.4g}" if level["tokens_per_second"] else "not counted",
            *(_value(level, row["metric"]) for row in verdict["metrics"]),
            statistics(level["latency_ms"]) or "none served",
            statistics(level["ttft_ms"]) or "not measured",
            *fitted.get(level["users"], ("unknown", "unknown")),
            f"{level['served']:,}",
            f"{level['rejected'] + level['refused_in_stream'] + level['failed'] + level['timed_out']:,}",
        )
        for level in sorted(verdict["levels"], key=lambda level: int(level["users"]))
    )
    return table("Users of one pod", titles, rows)


def _value(level: Mapping[str, Any], metric: str) -> str:
    return f"{level['metrics'][metric]:.4g}" if metric in level["metrics"] else "unknown"


def _fitted(verdict: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of each level the p95 of the fit, and the interval of the one that was measured."""
    for row in verdict["metrics"][:1]:
        for fitted_ms, (low_ms, high_ms) in zip(row["fitted_ms"], row["between_ms"], strict=True):
            yield f"{fitted_ms:,.0f} ms", f"{low_ms:,.0f} to {high_ms:,.0f} ms"


def _plot(run: Run, verdict: Mapping[str, Any]) -> Element:
    """The time that the goal is about over the number of users, and below it the metric."""
    row, goal = verdict["metrics"][0], verdict["goals"][verdict["goal"]]
    # Those that are in the fit: of more users no request was served.
    levels = sorted(verdict["levels"], key=lambda level: int(level["users"]))[: len(row["fitted"])]
    users = [int(level["users"]) for level in levels]
    seen = [level[TIMES[verdict["goal"]]]["p95"] for level in levels]
    metric = [level["metrics"][row["metric"]] for level in levels]
    # A level far beyond the goal would flatten all others.
    top = ceiling(min(max(seen), 4 * goal))
    steps = [log2(number) for number in users]
    x = time_axis(steps)
    times = Panel(
        "p95, ms",
        [
            Line("goal", "target", [goal] * len(users)),
            Line("measured", "desired", [min(value, top) for value in seen]),
            Line("monotone", "value", [min(value, top) for value in row["fitted_ms"]]),
        ],
        [top * quarter / 4 for quarter in range(5)],
        TOP,
        VALUE_HEIGHT,
    )
    most = ceiling(max(metric) or 1)
    lines = [Line(row["metric"], "current", metric)]
    if row["value"] is not None:
        lines.insert(0, Line("proposed target", "target", [row["value"]] * len(users)))
    below = Panel("metric", lines, [most * half / 2 for half in range(3)], TOP + VALUE_HEIGHT + GAP, REPLICAS_HEIGHT)
    fitted = row["fitted_ms"][users.index(row["users"])]
    about = "time to first token" if verdict["goal"] == "ttft_p95_ms" else "latency"
    words = f"{row['users']} users of one pod: p95 of the {about} {fitted:.0f} ms, goal {goal:g} ms."
    return element(
        "svg",
        element("title", f"{name_of(run)}: time and metric over the number of users", id="target-title"),
        element("desc", words, id="target-words"),
        [draw_panel(panel, steps, x) for panel in (times, below)],
        element("g", _marks(users, x), class_="times"),
        class_="plot",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby="target-title target-words",
    )


def _marks(users: Sequence[int], x: Callable[[float], float]) -> list[Element]:
    """Doublings, and the last: numbers between them would overlap."""
    y = HEIGHT - BOTTOM + 18
    named = [number for number in users if number & (number - 1) == 0 or number == users[-1]]
    named = [number for number in named if number == users[-1] or x(log2(users[-1])) - x(log2(number)) > 24]
    marks = [element("text", str(number), x=x(log2(number)), y=y, text_anchor="middle") for number in named]
    label = element("text", "users of one pod", x=(LEFT + WIDTH - RIGHT) // 2, y=y + 16, text_anchor="middle")
    return [*marks, label]
