# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Renders the GPU hours of gpu_hours_info as lines for a terminal, an HTML page, and CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any
from xml.etree.ElementTree import Element

from .elements import element, figures_table
from .page import page
from .words import clean, name_of

Hours = Mapping[str, Any]

FREE = "free"
_COLUMNS = {"GPU hours": "gpu_hours", "Busy": "busy_hours", "Idle": "idle_hours", "Unknown": "unknown_hours"}
_OF_WEEKS = {"Recorded": "recorded_hours", "Offered": "offered_hours", "Free": "free_hours"}
_SHARE = "Idle, %"
_HEAD = ("Workload", *_COLUMNS, _SHARE)
_IN_A_ROW = ("gpu_hours", "busy_hours", "idle_hours", "unknown_hours", "idle_share")


def hours_lines(result: Hours) -> list[str]:
    """result: of the module. Returns one string per line."""
    lines = [headline(result), f"recorded since {_minute(result['recorded_since'])}", ""]
    lines += _aligned([("Week of", *_OF_WEEKS, *_COLUMNS, _SHARE), *map(_of_week, result["weeks"])])
    if result["workloads"]:
        lines += ["", *_aligned([_HEAD, *map(_of_workload, result["workloads"])])]
    return lines


def headline(result: Hours) -> str:
    """Idle part of the held GPU hours, and free hours."""
    held, free, busy, idle = (_over(result, name) for name in ("gpu_hours", "free_hours", "busy_hours", "idle_hours"))
    left = f"{_hours(free)} GPU hours were free"
    if not held:
        return f"No pod held a GPU. {left}."
    known = busy + idle
    share = f"{idle / known:.0%} of which were idle" if known else "with unknown load"
    return f"Pods held {_hours(held)} GPU hours, {share}. {left}."


def _over(result: Hours, name: str) -> float:
    return float(sum(week[name] for week in result["weeks"]))


def _hours(hours: float) -> str:
    return f"{hours:,.1f}"


def _share(row: Hours) -> str:
    return "" if row["idle_share"] is None else f"{100 * row['idle_share']:.0f}"


def _day(time: str) -> str:
    return clean(time[:10])


def _minute(time: str) -> str:
    return f"{_day(time)} {clean(time[11:16])} UTC"


def _of_week(week: Hours) -> tuple[str, ...]:
    names = (*_OF_WEEKS.values(), *_COLUMNS.values())
    return (_day(week["start"]), *(_hours(week[name]) for name in names), _share(week))


def _of_workload(row: Hours) -> tuple[str, ...]:
    name = name_of({"namespace": row["namespace"], "name": row["workload"]})
    return (name, *(_hours(row[column]) for column in _COLUMNS.values()), _share(row))


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *figures in rows:
        columns = (f"{figure:>{width}}" for figure, width in zip(figures, widths[1:], strict=True))
        yield "  ".join((f"{name:{widths[0]}}", *columns)).rstrip()


def hours_page(result: Hours) -> str:
    """Equal hours result in equal pages."""
    weeks = result["weeks"]
    since = _minute(result["recorded_since"])
    span = f"{_day(weeks[0]['start'])} to {_minute(weeks[-1]['end'])}, recorded since {since}"
    of_weeks = figures_table(_WORDS_OF_WEEKS, _HEAD_OF_WEEKS, map(_of_week, weeks))
    return page(
        "GPU hours",
        element("header", element("h1", headline(result)), element("p", span, class_="quiet")),
        element(
            "main",
            _section("Workloads", [figures_table(_WORDS_OF_HOURS, _HEAD, _workloads(result))]),
            _section("Weeks", [of_weeks, *map(_week, weeks)]),
        ),
        element("footer", "gpu_hours_info of kubegpu.autoscale"),
    )


_HEAD_OF_WEEKS = ("Week of", *_OF_WEEKS, *_COLUMNS, _SHARE)
_WORDS_OF_HOURS = "Over all weeks. Unknown: no exporter reported the load of the GPUs. Idle, %: of busy and idle hours."
_WORDS_OF_WEEKS = "A week begins on Monday, 0:00 UTC. Recorded: hours of the week of which there are data."


def _workloads(result: Hours) -> Iterator[tuple[str, ...]]:
    yield from map(_of_workload, result["workloads"])
    free = _hours(_over(result, "free_hours"))
    yield FREE, free, "", free, "", "100"


def _section(title: str, parts: Sequence[Element | None]) -> Element:
    heading = title.lower()
    return element("section", element("h2", title, id=heading), parts, aria_labelledby=heading)


def _week(week: Hours) -> Element | None:
    if not week["workloads"]:
        return None
    day = _day(week["start"])
    table = figures_table(f"Week of {day}.", _HEAD, map(_of_workload, week["workloads"]))
    return element("details", element("summary", f"Workloads, week of {day}"), table)


def hours_csv(result: Hours) -> str:
    """A row per week and workload, and one for free hours. They add up to the offered hours."""
    file = StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("week", "namespace", "workload", *_IN_A_ROW))
    for week in result["weeks"]:
        day = _day(week["start"])
        for row in week["workloads"]:
            rows.writerow((day, clean(row["namespace"]), clean(row["workload"]), *(row[name] for name in _IN_A_ROW)))
        rows.writerow((day, "", FREE, week["free_hours"], 0.0, week["free_hours"], 0.0, 1.0))
    return file.getvalue()
