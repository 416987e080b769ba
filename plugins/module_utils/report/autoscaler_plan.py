# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Renders plans of gpu_autoscaler_plan as lines for a terminal, and as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any
from xml.etree.ElementTree import Element

from ..kube.objects import clock
from .doctor_texts import clean, name_of, number, symbol
from .elements import element, figures_table
from .page import page
from .plot import (
    HEIGHT,
    TOP,
    VALUE_HEIGHT,
    WIDTH,
    Line,
    Panel,
    ceiling,
    draw_panel,
    draw_times,
    replicas_panel,
    time_axis,
)

Plan = Mapping[str, Any]

_COLUMNS = ("Setting", "GPU-minutes", "Overload, min", "Turns", "Peak")


def plan_lines(result: Mapping[str, Any], width: int = 80) -> list[str]:
    """result: of the module. Returns one string per line; table rows may exceed `width`."""
    lines: list[str] = []
    for plan in result["plans"]:
        lines += [*_plan_lines(plan, width), ""]
    for left_out in result["not_planned"]:
        lines += _wrapped(f"{name_of(left_out)}: not planned: {left_out['reason']}", width)
    return lines[:-1] if lines and not lines[-1] else lines


def _plan_lines(plan: Plan, width: int) -> Iterator[str]:
    yield from _wrapped(f"{name_of(plan)}: {plan['sentence']}", width)
    rows = [_COLUMNS, *(_row(plan, setting) for setting in plan["settings"])]
    first = max(len(row[0]) for row in rows)
    for name, *figures in rows:
        columns = (f"{figure:>{len(title)}}" for figure, title in zip(figures, _COLUMNS[1:], strict=True))
        yield "  ".join((f"  {name:{first}}", *columns))
    for decision in plan["decisions"]:
        yield from _wrapped(f"- {_decision(decision)}", width, "  ")
    for note in plan["notes"]:
        yield from _wrapped(f"! {note}", width, "  ")


def _row(plan: Plan, setting: Mapping[str, Any]) -> tuple[str, ...]:
    mark = " *" if setting["name"] == plan["recommended"] else ""
    return (
        clean(setting["name"]) + mark,
        f"{setting['gpu_minutes']:,.0f}",
        f"{setting['overload_minutes']:,.4g}",
        str(setting["direction_changes"]),
        str(setting["peak"]),
    )


def _decision(decision: Mapping[str, Any]) -> str:
    return f"{clock(decision['time_s'])} {decision['before']} to {decision['after']}: {decision['sentence']}"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return wrap(
        clean(text),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def plan_page(result: Mapping[str, Any]) -> str:
    """Equal plans result in equal pages."""
    plans = result["plans"]
    changes = sum(plan["recommended"] not in (None, plan["settings"][0]["name"]) for plan in plans)
    title = f"{changes} of {len(plans)} autoscalers would do better with another setting"
    return page(
        "Plan - GPU autoscaling",
        element("header", element("h1", title)),
        element("main", [_section(plan, index) for index, plan in enumerate(plans)], _left_out(result)),
        element("footer", "gpu_autoscaler_plan of kubegpu.autoscale"),
    )


def _section(plan: Plan, index: int) -> Element:
    heading = f"plan-{index}-title"
    return element(
        "section",
        element("h2", name_of(plan), id=heading),
        element("p", plan["sentence"]),
        _table(plan),
        element("div", element("article", plan_plot(plan, index), class_="card"), class_="cards plots"),
        [
            element("h3", "Decisions"),
            element("ol", [element("li", _decision(decision)) for decision in plan["decisions"]]),
        ]
        if plan["decisions"]
        else None,
        [element("p", note, class_="quiet") for note in plan["notes"]],
        aria_labelledby=heading,
    )


def _left_out(result: Mapping[str, Any]) -> Element | None:
    rows = [element("li", f"{name_of(autoscaler)}: {autoscaler['reason']}") for autoscaler in result["not_planned"]]
    return element("section", element("h2", "Not planned"), element("ul", rows)) if rows else None


def _table(plan: Plan) -> Element:
    caption = "Each setting on the same load; * is recommended. Turns: how often the replicas changed their direction."
    rows = (_row(plan, setting) for setting in plan["settings"])
    return figures_table(caption, _COLUMNS, rows, label=f"Settings of {name_of(plan)}")


def plan_plot(plan: Plan, index: int) -> Element:
    """The load, and below it the replicas: of the current setting, and of the recommended one."""
    history, today = plan["history"], plan["settings"][0]
    times, unit = history["times"], symbol(plan["unit"])
    best = next((setting for setting in plan["settings"] if setting["name"] == plan["recommended"]), today)
    top = ceiling(max([load for load in history["load"] if load is not None], default=1))
    title = f"load of all pods, {unit}" if unit else "load of all pods"
    ticks = [top * part / 4 for part in range(5)]
    load = Panel(title, [Line("load", "value", history["load"])], ticks, TOP, VALUE_HEIGHT)
    shown = [today] if best is today else [best, today]
    lines = [
        Line(clean(setting["name"]), "current" if setting is today else "desired", setting["replicas"], stepped=True)
        for setting in shown
    ]
    x, ids = time_axis(times), (f"plan-plot-{index}-title", f"plan-plot-{index}-words")
    words = f"Load: up to {number(top)} {unit}. " + " ".join(
        f"Replicas, {clean(setting['name'])}: {min(setting['replicas'])} to {max(setting['replicas'])}."
        for setting in shown
    )
    return element(
        "svg",
        element("title", f"{name_of(plan)}: load and replicas over time", id=ids[0]),
        element("desc", words, id=ids[1]),
        [draw_panel(panel, times, x) for panel in (load, replicas_panel(lines))],
        element("g", draw_times(times, x), class_="times"),
        class_="plot",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=" ".join(ids),
    )
