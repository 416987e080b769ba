# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plots the last minutes of an autoscaler as SVG: its metric with the target, and its replicas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from .doctor_texts import last, name_of, number, symbol, with_unit
from .elements import element

# Size of the picture. Narrow, so that its text is readable on a phone.
WIDTH, LEFT, RIGHT, TOP, GAP, BOTTOM = 440, 46, 12, 30, 44, 40
VALUE_HEIGHT, REPLICAS_HEIGHT = 120, 80
HEIGHT = TOP + VALUE_HEIGHT + GAP + REPLICAS_HEIGHT + BOTTOM
_CHARACTER = 7.2
_TITLE_LENGTH = 28
_STEPS = (1, 2, 2.5, 5, 10)
_TIME_STEPS_S = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)

Values = Sequence[float | None]


@dataclass(frozen=True)
class Line:
    """A series. kind: its CSS class. stepped: it keeps its value until the next sample."""

    label: str
    kind: str
    values: Values
    stepped: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes. ticks: from 0 to the top of the scale."""

    title: str
    lines: Sequence[Line]
    ticks: Sequence[float]
    top: int
    height: int

    def y(self, value: float) -> float:
        share = max(0.0, min(value / self.ticks[-1], 1.0))
        return round(self.top + self.height * (1 - share), 1)


def plot(autoscaler: Mapping[str, Any], index: int) -> Element:
    """index: makes the IDs of the picture unique in the page."""
    history = autoscaler["history"]
    times = history["times"]

    x = time_axis(times)
    panels = [_value_panel(autoscaler), _replicas_panel(history)]
    title, words = f"plot-{index}-title", f"plot-{index}-words"
    return element(
        "svg",
        element("title", f"{name_of(autoscaler)}: {autoscaler['metric']} and replicas over time", id=title),
        element("desc", in_words(autoscaler), id=words),
        *[draw_panel(panel, times, x) for panel in panels],
        element("g", draw_times(times, x), class_="times"),
        class_="plot",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_labelledby=f"{title} {words}",
    )


def time_axis(times: Sequence[float]) -> Callable[[float], float]:
    """The x coordinate of a time."""

    def x(time: float) -> float:
        share = (time - times[0]) / ((times[-1] - times[0]) or 1)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    return x


def in_words(autoscaler: Mapping[str, Any]) -> str:
    """Description of the plot for screen readers."""
    history, unit = autoscaler["history"], autoscaler["unit"]
    target = with_unit(autoscaler["target_value"], unit)
    value = f"{autoscaler['metric']}: {_range(history['value'], unit)}, target {target}. "
    return f"{value}Replicas: {_range(history['replicas'], '')}; desired: {_range(history['desired'], '')}."


def _range(values: Values, unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "no samples"
    return f"{number(min(known))} to {with_unit(max(known), unit)}, at last {with_unit(last(values), unit)}"


def _value_panel(autoscaler: Mapping[str, Any]) -> Panel:
    history, target, unit = autoscaler["history"], autoscaler["target_value"], symbol(autoscaler["unit"])
    lines = [Line("value", "value", history["value"])]
    if target is not None:
        lines.insert(0, Line(f"target {number(target)}", "target", [target] * len(history["times"])))
    highest = max([value for line in lines for value in line.values if value is not None], default=1)
    top = 100.0 if unit == "%" and highest <= 100 else ceiling(highest)
    title = f"{autoscaler['metric']}, {unit}" if unit else autoscaler["metric"]
    return Panel(title, lines, [top * quarter / 4 for quarter in range(5)], TOP, VALUE_HEIGHT)


def _replicas_panel(history: Mapping[str, Any]) -> Panel:
    lines = [
        Line("desired", "desired", history["desired"], stepped=True),
        Line("current", "current", history["replicas"], stepped=True),
    ]
    return replicas_panel(lines)


def replicas_panel(lines: Sequence[Line]) -> Panel:
    """Only whole numbers on the scale."""
    highest = int(max([value for line in lines for value in line.values if value is not None], default=1))
    step = max(1, math.ceil(ceiling(highest + 1) / 4))
    ticks = [float(tick) for tick in range(0, highest + 1 + step, step)]
    return Panel("replicas", lines, ticks, TOP + VALUE_HEIGHT + GAP, REPLICAS_HEIGHT)


def ceiling(highest: float) -> float:
    """The next round number."""
    if highest <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(highest))
    return next(step * unit for step in _STEPS if step * unit >= highest)


def draw_panel(panel: Panel, times: Sequence[float], x: Callable[[float], float]) -> Element:
    right = WIDTH - RIGHT
    grid = [
        part
        for tick in panel.ticks
        for part in (
            element("line", class_="grid", x1=LEFT, x2=right, y1=panel.y(tick), y2=panel.y(tick)),
            element("text", f"{tick:g}", x=LEFT - 6, y=panel.y(tick) + 4, text_anchor="end"),
        )
    ]
    lines = [
        element("path", class_=f"line {line.kind}", d=path([x(time) for time in times], line, panel.y))
        for line in panel.lines
    ]
    name = element("text", _shortened(panel.title), class_="name", x=LEFT, y=panel.top - 12)
    return element("g", name, _legend(panel), grid, lines)


def _shortened(title: str) -> str:
    """Truncated before the legend begins; the description has the full text."""
    return title if len(title) <= _TITLE_LENGTH else f"{title[: _TITLE_LENGTH - 1]}…"


def _legend(panel: Panel) -> list[Element]:
    """From the right: a sample of each line, then its label."""
    parts, right = [], float(WIDTH - RIGHT)
    for line in panel.lines:
        y = panel.top - 12
        parts.append(element("text", line.label, x=round(right, 1), y=y, text_anchor="end"))
        right -= _CHARACTER * len(line.label) + 6
        parts.append(element("path", class_=f"line {line.kind} sample", d=f"M{right - 20:.1f} {y - 4}h20"))
        right -= 32
    return parts


def path(xs: Sequence[float], line: Line, y: Callable[[float], float]) -> str:
    """Path data with one M, L or V for each sample. A gap ends a stroke; a sample alone becomes a dot."""
    words: list[str] = []
    around = [None, *line.values, None]
    for at, before, value, after in zip(xs, around, line.values, around[2:], strict=False):
        if value is None:
            continue
        if before is not None:
            words.append(f"H{at}V{y(value)}" if line.stepped else f"L{at} {y(value)}")
        else:
            words.append(f"M{at} {y(value)}" if after is not None else f"M{at - 1.5:.1f} {y(value)}h3")
    return "".join(words)


def draw_times(times: Sequence[float], x: Callable[[float], float]) -> list[Element]:
    """Minutes before the last sample; a plot of seconds has seconds."""
    end, span = times[-1], times[-1] - times[0]
    every = next((step for step in _TIME_STEPS_S if span / step <= 6), _TIME_STEPS_S[-1])
    y = HEIGHT - BOTTOM + 18
    marks = [
        element("text", _ago(ago), x=x(end - ago), y=y, text_anchor="end" if ago == 0 else "middle")
        for ago in range(0, int(span) + 1, every)
    ]
    label = element("text", "time before the report", x=(LEFT + WIDTH - RIGHT) // 2, y=y + 16, text_anchor="middle")
    return [*marks, label]


def _ago(seconds: int) -> str:
    if seconds == 0:
        return "now"
    if seconds % 3600 == 0 and seconds > 3600:
        return f"−{seconds // 3600} h"  # noqa: RUF001
    return f"−{seconds / 60:g} min" if seconds % 30 == 0 else f"−{seconds} s"  # noqa: RUF001
