"""The demo as one picture: requests, utilisation by pod and replicas over time, as an SVG for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from lab.load.earlier import Earlier
from lab.load.scenario import Autoscaler, Recording, Sample, Step

WIDTH, LEFT, RIGHT, TOP, PANEL, GAP, BOTTOM = 960, 48, 20, 92, 140, 44, 32
HEIGHT = TOP + 3 * PANEL + 2 * GAP + BOTTOM
PODS = ("#2a78d6", "#1baf7a", "#eda100", "#008300", "#7a5af5", "#e34948", "#e87ba4", "#eb6834")

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
@media (prefers-color-scheme: dark) {
  text { fill: #c3c2b7; } .title, .name { fill: #ffffff; }
  .page { fill: #1a1a19; } .band { fill: #ffffff; opacity: .06; } .grid { stroke: #383835; }
}
"""


@dataclass(frozen=True)
class Line:
    """A series in a panel. `points` are (second, value); a None breaks it. `style` is an SVG attribute."""

    label: str
    points: list[tuple[float, float | None]]
    style: str
    stepped: bool = False


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Line]
    ticks: Sequence[float]  # from 0 to the top of the scale


def timeline(recording: Recording, plan: Sequence[Step], autoscaler: Autoscaler, before: Earlier | None = None) -> str:
    """The SVG's text. before: whose ready replicas are shown beside, from its step on."""
    end = max(recording.samples[-1].at_s, 1.0)
    panels = [_requests(recording), _utilisation(recording, autoscaler), _replicas(recording, plan, before)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>Load step on {escape(autoscaler.deployment)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="28">{escape(_headline(plan, autoscaler))}</text>',
        *_bands(recording, plan, end),
    ]
    for row, panel in enumerate(panels):
        parts += _draw(panel, TOP + row * (PANEL + GAP), end)
    parts += _seconds(end)
    return "\n".join([*parts, "</svg>", ""])


def _headline(plan: Sequence[Step], autoscaler: Autoscaler) -> str:
    _, up, _ = plan
    load = f"{up.gpus:g} GPUs of load at a target of {autoscaler.target_percent:g} %"
    return f"{autoscaler.deployment}: {load} need {up.replicas} replicas"


def _requests(recording: Recording) -> Panel:
    def series(value: Callable[[Sample], float]) -> list[tuple[float, float | None]]:
        return [(sample.at_s, value(sample)) for sample in recording.samples]

    lines = [
        Line("asked", series(lambda s: s.asked_per_s), 'class="line muted"', stepped=True),
        Line("served", series(lambda s: s.served_per_s), 'class="line" stroke="#2a78d6"'),
        Line("rejected", series(lambda s: s.rejected_per_s + s.failed_per_s), 'class="line" stroke="#e34948"'),
    ]
    top = _ceiling(value for line in lines for _, value in line.points)
    return Panel("requests/s", lines, [top * quarter / 4 for quarter in range(5)])


def _utilisation(recording: Recording, autoscaler: Autoscaler) -> Panel:
    first_seen = dict.fromkeys(pod for sample in recording.samples for pod in sample.utilisation)
    end = recording.samples[-1].at_s
    pods = [
        Line(
            pod[-5:],
            [(sample.at_s, sample.utilisation.get(pod)) for sample in recording.samples],
            f'class="line" stroke="{PODS[index % len(PODS)]}"',
        )
        for index, pod in enumerate(first_seen)
    ]
    target = Line("target", [(0, autoscaler.target_percent), (end, autoscaler.target_percent)], 'class="line muted"')
    return Panel("GPU utilisation by pod, %", [target, *pods], range(0, 101, 25))


def _replicas(recording: Recording, plan: Sequence[Step], before: Earlier | None) -> Panel:
    ideal: list[tuple[float, float | None]] = []
    for step in plan:
        if step.name in recording.begins:
            ideal.append((recording.begins[step.name], step.replicas))
    ideal.append((recording.samples[-1].at_s, ideal[-1][1]))
    lines = [
        Line("ideal", ideal, 'class="line muted"', stepped=True),
        Line("wanted", [(s.at_s, s.desired) for s in recording.samples], 'class="line" stroke="#eda100"', stepped=True),
        Line("ready", [(s.at_s, s.ready) for s in recording.samples], 'class="line" stroke="#1baf7a"', stepped=True),
    ]
    if before:
        moved = _moved(before.recording, recording, plan)
        lines.append(Line("ready before", moved, 'class="line muted"', stepped=True))
    top = max(int(value or 0) for line in lines for _, value in line.points) + 1
    return Panel("replicas", lines, range(0, top + 1, math.ceil(top / 10)))


def _moved(before: Recording, recording: Recording, plan: Sequence[Step]) -> list[tuple[float, float | None]]:
    """The ready replicas of another demo's step, as if it had begun when this one's did."""
    up, end = plan[1].name, recording.samples[-1].at_s
    shift = recording.begins[up] - before.begins[up]
    return [(sample.at_s + shift, sample.ready) for sample in before.of(up) if sample.at_s + shift <= end]


def _ceiling(values: Iterable[float | None]) -> float:
    """The next round number above all values."""
    highest = max((value for value in values if value is not None), default=0) or 1
    unit = 10 ** math.floor(math.log10(highest))
    return next(step * unit for step in (1, 2, 2.5, 5, 10) if step * unit >= highest)


def _x(second: float, end: float) -> float:
    return round(LEFT + second / end * (WIDTH - LEFT - RIGHT), 1)


def _bands(recording: Recording, plan: Sequence[Step], end: float) -> list[str]:
    begins = [(step, recording.begins[step.name]) for step in plan if step.name in recording.begins]
    ends = [begin for _, begin in begins[1:]] + [end]
    parts = []
    for index, ((step, begin), stop) in enumerate(zip(begins, ends, strict=True)):
        left, right = _x(begin, end), _x(stop, end)
        if index % 2:
            height = HEIGHT - TOP - BOTTOM
            parts.append(f'<rect class="band" x="{left}" y="{TOP}" width="{right - left:.1f}" height="{height}"/>')
        label = f"{step.name}: {step.gpus:g} GPUs"
        if right - left < CHARACTER * len(label):
            label = f"{step.gpus:g} GPUs"  # a step too short for its name
        parts.append(f'<text x="{left}" y="{TOP - 38}">{escape(label)}</text>')
    return parts


def _draw(panel: Panel, top: float, end: float) -> list[str]:
    def y(value: float) -> float:
        return round(top + PANEL - min(value, panel.ticks[-1]) / panel.ticks[-1] * PANEL, 1)

    parts = [f'<text class="name" x="{LEFT}" y="{top - 10}">{escape(panel.title)}</text>']
    for tick in panel.ticks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick)}" y2="{y(tick)}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>')
    key = WIDTH - RIGHT
    for line in reversed(panel.lines):
        parts.append(f'<text x="{key}" y="{top - 10}" text-anchor="end">{escape(line.label)}</text>')
        key -= 7 * len(line.label) + 6
        parts.append(f'<path {line.style} d="M{key - 18} {top - 14}h16"/>')
        key -= 32
    parts += [f'<path {line.style} d="{_path(line, y, end)}"/>' for line in panel.lines]
    return parts


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


def _seconds(end: float) -> list[str]:
    every = next(step for step in (5, 10, 15, 30, 60, 120, 300, 600, 3600) if end / step <= 14)
    marks = range(0, int(end) + 1, every)
    return [f'<text x="{_x(at, end)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{at} s</text>' for at in marks]
