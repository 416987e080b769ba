"""Plots lines over time: panels with one axis of seconds, as an SVG for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, PANEL, GAP, BOTTOM = 960, 48, 20, 92, 140, 44, 32
COLOURS = ("#2a78d6", "#1baf7a", "#eda100", "#008300", "#7a5af5", "#e34948", "#e87ba4", "#eb6834")

CHARACTER = 7  # width of one, in units of the picture
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #52514e; }
.title { font-size: 16px; font-weight: 600; fill: #0b0b0b; }
.name { font-weight: 600; fill: #0b0b0b; }
.page { fill: #fcfcfb; }
.band { fill: #0b0b0b; opacity: .035; }
.grid { stroke: #e4e3df; }
.line { fill: none; stroke-width: 1.75; stroke-linejoin: round; }
.muted { stroke: #8a8985; stroke-dasharray: 4 3; }
.before { stroke: #7a5af5; stroke-dasharray: 1.5 3.5; stroke-width: 2.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #c3c2b7; } .title, .name { fill: #ffffff; }
  .page { fill: #1a1a19; } .band { fill: #ffffff; opacity: .06; } .grid { stroke: #383835; }
}
"""


@dataclass(frozen=True)
class Line:
    """A series in a panel. `points` are (second, value); a None breaks it. `style` is an SVG attribute.

    label: text in the key; a line without one is not listed.
    shift: units by which it is drawn lower, so that equal lines do not hide each other.
    """

    label: str
    points: list[tuple[float, float | None]]
    style: str
    stepped: bool = False
    shift: float = 0


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Line]
    ticks: Sequence[float]  # from 0 to the top of the scale


@dataclass(frozen=True)
class Band:
    """A named part of the time, from a second until the next band. `short` is for narrow ones."""

    begin: float
    label: str
    short: str = ""


def draw(name: str, headline: str, panels: Sequence[Panel], end: float, bands: Sequence[Band] = ()) -> str:
    """The SVG's text. name: of the picture, for screen readers. end: the last second."""
    height = TOP + len(panels) * PANEL + (len(panels) - 1) * GAP + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(name)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{LEFT}" y="28">{escape(headline)}</text>',
        *_bands(bands, end, height),
    ]
    for row, panel in enumerate(panels):
        parts += _draw(panel, TOP + row * (PANEL + GAP), end)
    parts += _seconds(end, height)
    return "\n".join([*parts, "</svg>", ""])


def ceiling(values: Iterable[float | None]) -> float:
    """The next round number above all values."""
    highest = max((value for value in values if value is not None), default=0) or 1
    unit = 10 ** math.floor(math.log10(highest))
    return next(step * unit for step in (1, 2, 2.5, 5, 10) if step * unit >= highest)


def whole(lines: Sequence[Line]) -> range:
    """Ticks for counts."""
    top = max(int(value or 0) for line in lines for _, value in line.points) + 1
    return range(0, top + 1, math.ceil(top / 10))


def _x(second: float, end: float) -> float:
    return round(LEFT + second / end * (WIDTH - LEFT - RIGHT), 1)


def _bands(bands: Sequence[Band], end: float, height: float) -> list[str]:
    parts = []
    for index, (band, stop) in enumerate(zip(bands, [*(band.begin for band in bands[1:]), end], strict=False)):
        left, right = _x(band.begin, end), _x(stop, end)
        if index % 2:
            tall = height - TOP - BOTTOM
            parts.append(f'<rect class="band" x="{left}" y="{TOP}" width="{right - left:.1f}" height="{tall}"/>')
        label = band.label
        if right - left < CHARACTER * len(label):
            label = band.short or label
        parts.append(f'<text x="{left}" y="{TOP - 38}">{escape(label)}</text>')
    return parts


def _draw(panel: Panel, top: float, end: float) -> list[str]:
    def y(value: float) -> float:
        return round(top + PANEL - min(value, panel.ticks[-1]) / panel.ticks[-1] * PANEL, 1)

    parts = [f'<text class="name" x="{LEFT}" y="{top - 10}">{escape(panel.title)}</text>']
    for tick in panel.ticks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick)}" y2="{y(tick)}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>')
    parts += _key(panel, top)
    for line in panel.lines:
        moved = f' transform="translate(0 {line.shift:g})"' if line.shift else ""
        parts.append(f'<path {line.style}{moved} d="{_path(line, y, end)}"/>')
    return parts


def _key(panel: Panel, top: float) -> list[str]:
    """From the right, and in a second row above where the title would be reached."""
    parts, x, y = [], WIDTH - RIGHT, top - 10
    for line in reversed([line for line in panel.lines if line.label]):
        if x - _width(line.label) < LEFT + _width(panel.title):
            x, y = WIDTH - RIGHT, y - 17
        parts.append(f'<text x="{x}" y="{y}" text-anchor="end">{escape(line.label)}</text>')
        parts.append(f'<path {line.style} d="M{x - _width(line.label) + 14} {y - 4}h16"/>')
        x -= _width(line.label)
    return parts


def _width(label: str) -> int:
    """Of a label of the key, with its line."""
    return CHARACTER * len(label) + 38


def _path(line: Line, y: Callable[[float], float], end: float) -> str:
    """SVG path data; a line that is stepped keeps its value until the next point."""
    words: list[str] = []
    for second, value in line.points:
        if value is None:
            words.append("")
        elif words and words[-1]:
            words.append(f"H{_x(second, end)}V{y(value)}" if line.stepped else f"L{_x(second, end)} {y(value)}")
        else:
            words.append(f"M{_x(second, end)} {y(value)}")
    return "".join(words)


def _seconds(end: float, height: float) -> list[str]:
    every = next(step for step in (5, 10, 15, 30, 60, 120, 300, 600, 3600) if end / step <= 14)
    marks = range(0, int(end) + 1, every)
    return [f'<text x="{_x(at, end)}" y="{height - BOTTOM + 18}" text-anchor="middle">{at} s</text>' for at in marks]
