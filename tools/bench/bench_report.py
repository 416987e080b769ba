"""What was measured, as tables and as a picture; and how it stands to the targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape

from bench_runs import FIRST, OURS, STEPS, THEIR_LIST, THEIR_LOOP, UNCHANGED, Crowd, ImportTime, Run, TaskTime
from rich.table import Table

SIZE = 1000  # of the targets


@dataclass(frozen=True)
class Report:
    machine: dict[str, Any]
    runs: list[Run]
    tasks: list[TaskTime]
    imports: ImportTime
    crowd: Crowd | None = None

    @property
    def sizes(self) -> list[int]:
        return sorted({run.autoscalers for run in self.runs})

    def run(self, step: str, size: int) -> Run | None:
        return next((run for run in self.runs if (run.step, run.autoscalers) == (step, size)), None)

    def wall_s(self, step: str, size: int) -> float | None:
        run = self.run(step, size)
        return run and run.wall_s

    def task_s(self, way: str, step: str) -> float | None:
        return next((task.seconds for task in self.tasks if (task.way, task.step) == (way, step)), None)

    def times_slower(self, way: str, step: str) -> float | None:
        """How many times as long as ours another way takes."""
        ours, theirs = self.task_s(OURS, step), self.task_s(way, step)
        return theirs / ours if ours and theirs else None

    def growth(self, step: str) -> float | None:
        """The exponent of the power of the number of autoscalers that the wall time grows with."""
        points = [(run.autoscalers, run.wall_s) for run in self.runs if run.step == step]
        return exponent(points) if len(points) > 1 else None

    def most_growth(self) -> float | None:
        return max((growth for step in STEPS if (growth := self.growth(step)) is not None), default=None)

    def most_memory(self, size: int) -> float | None:
        return max((run.rss_mb for run in self.runs if run.autoscalers == size), default=None)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the straight line that fits the points best where both axes are logarithmic."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _y in logs)


@dataclass(frozen=True)
class Target:
    """A bound on what was measured; `most` or least. `seen` takes it from the bench's report."""

    what: str
    unit: str
    bound: float
    seen: Callable[[Any], float | None]
    most: bool = True

    def is_met(self, seen: float) -> bool:
        return seen <= self.bound if self.most else seen >= self.bound


TARGETS = (
    Target(f"first apply of {SIZE:,}", "s", 15, lambda report: report.wall_s(FIRST, SIZE)),
    Target(f"unchanged run over {SIZE:,}", "s", 3, lambda report: report.wall_s(UNCHANGED, SIZE)),
    Target(f"memory with {SIZE:,}", "MB", 105, lambda report: report.most_memory(SIZE)),
    Target("steepest growth, power of the number", "", 1.1, Report.most_growth),
    Target("unchanged, one k8s task to ours", "times", 6, lambda r: r.times_slower(THEIR_LIST, UNCHANGED), most=False),
    Target("unchanged, loop of k8s to ours", "times", 50, lambda r: r.times_slower(THEIR_LOOP, UNCHANGED), most=False),
    Target(
        "time beside others' pods, to alone", "times", 1.3, lambda r: r.crowd and r.crowd.ratio(lambda run: run.wall_s)
    ),
    Target(
        "memory beside others' pods, to alone",
        "times",
        1.3,
        lambda r: r.crowd and r.crowd.ratio(lambda run: run.rss_mb),
    ),
    Target("import of our own code", "s", 0.2, lambda report: report.imports.own_s),
)


def tables(report: Report) -> list[Table]:
    shown = [_walls(report), _requests(report), *([_crowd(report.crowd)] if report.crowd else [])]
    return [*shown, *([_comparison(report)] if report.tasks else []), verdicts(report, TARGETS)]


def _walls(report: Report) -> Table:
    table = Table("autoscalers", *(f"{size:,}" for size in report.sizes), "power", "ms each", title="Seconds of a run")
    for step in STEPS:
        walls = [number(report.wall_s(step, size)) for size in report.sizes]
        table.add_row(step, *walls, number(report.growth(step)), number(_marginal_ms(report, step)))
    table.add_row("memory, MB", *(number(report.most_memory(size), 0) for size in report.sizes), "", "")
    return table


def _marginal_ms(report: Report, step: str) -> float | None:
    """What one more autoscaler costs, between the two largest sizes."""
    for small, large in list(pairwise(report.sizes))[-1:]:
        return 1000 * (report.wall_s(step, large) - report.wall_s(step, small)) / (large - small)
    return None


def _requests(report: Report) -> Table:
    size = report.sizes[-1]
    runs = [report.run(step, size) for step in STEPS]
    table = Table("", *STEPS, title=f"Requests of a run over {size:,}")
    for title in sorted({title for run in runs for title in run.requests}):
        table.add_row(title, *(str(run.requests.get(title, "")) for run in runs))
    return table


def _crowd(crowd: Crowd) -> Table:
    size = crowd.alone[0].autoscalers
    table = Table(
        "", "alone, s", "beside, s", "alone, MB", "beside, MB", title=f"{size:,} beside {crowd.others:,} pods"
    )
    for alone, beside in zip(crowd.alone, crowd.crowded, strict=True):
        figures = [number(alone.wall_s), number(beside.wall_s), number(alone.rss_mb, 0), number(beside.rss_mb, 0)]
        table.add_row(alone.step, *figures)
    return table


def _comparison(report: Report) -> Table:
    table = Table("ansible-playbook", *(title for step in (FIRST, UNCHANGED) for title in (f"{step}, s", "to ours")))
    for way in dict.fromkeys(task.way for task in report.tasks):
        task = next(task for task in report.tasks if task.way == way)
        note = f", {task.objects} extrapolated" if task.objects < task.of else ""
        cells = [
            cell
            for step in (FIRST, UNCHANGED)
            for cell in (number(report.task_s(way, step)), f"{number(report.times_slower(way, step), 1)} x")
        ]
        table.add_row(f"{way}{note}", *cells)
    table.title = f"The task over {report.tasks[0].of:,} HPAs"
    return table


def verdicts(report: object, targets: Sequence[Target]) -> Table:
    table = Table("target", "bound", "seen", "", title="Targets")
    for target in targets:
        seen = target.seen(report)
        if seen is not None:
            bound = f"{'at most' if target.most else 'at least'} {target.bound:g} {target.unit}"
            table.add_row(target.what, bound, number(seen), "met" if target.is_met(seen) else "[red]missed")
    return table


def number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 520, 64, 250, 60, 48
COLOURS = ("#2a78d6", "#1baf7a", "#eda100", "#7a5af5", "#e34948", "#e87ba4", "#eb6834", "#8a8985")
LINE_HEIGHT = 15  # of a label, in units of the picture
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #52514e; }
.title { font-size: 16px; font-weight: 600; fill: #0b0b0b; }
.page { fill: #fcfcfb; }
.grid { stroke: #e4e3df; }
.line { fill: none; stroke-width: 1.75; }
@media (prefers-color-scheme: dark) {
  text { fill: #c3c2b7; } .title { fill: #ffffff; }
  .page { fill: #1a1a19; } .grid { stroke: #383835; }
}
"""


def plot(report: Report) -> str:
    """An SVG: seconds over the number of autoscalers, both logarithmic, so that linear growth is a diagonal."""
    lines = {step: [(size, report.wall_s(step, size)) for size in report.sizes] for step in STEPS}
    lines |= {f"{task.way}, {task.step}": [(task.of, task.seconds)] for task in report.tasks}
    return draw("Seconds of a run over the number of autoscalers", lines)


def draw(title: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """An SVG of seconds over a size, by name; names that agree up to the first comma have one colour."""
    colours = dict(zip(dict.fromkeys(name.partition(",")[0] for name in lines), COLOURS, strict=False))
    every = [point for points in lines.values() for point in points]
    x = _scale([x for x, _y in every], LEFT, WIDTH - RIGHT)
    y = _scale([y for _x, y in every], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="28">{escape(title)}</text>',
        *_axes(x, y),
    ]
    labels = _spread({name: y.at(points[-1][1]) for name, points in lines.items()})
    for name, points in lines.items():
        colour = colours[name.partition(",")[0]]
        places = [(round(x.at(a), 1), round(y.at(b), 1)) for a, b in points]
        path = "M" + "L".join(f"{a} {b}" for a, b in places)
        parts.append(f'<path class="line" stroke="{colour}" d="{path}"/>')
        parts += [f'<circle cx="{a}" cy="{b}" r="3" fill="{colour}"/>' for a, b in places]
        label_x = WIDTH - RIGHT + 12
        parts.append(f'<text x="{label_x}" y="{labels[name] + 4:.1f}" style="fill:{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis from `low` to `high`, drawn from `begin` to `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    @property
    def ticks(self) -> Iterable[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        every = (step * 10.0**decade for decade in decades for step in (1, 3))
        return [tick for tick in every if self.low <= tick <= self.high]


def _scale(values: Sequence[float], begin: float, end: float) -> Scale:
    return Scale(min(values) / 1.3, max(values) * 1.3, begin, end)


def _axes(x: Scale, y: Scale) -> list[str]:
    parts = []
    for tick in y.ticks:
        at = round(y.at(tick), 1)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{tick:g} s</text>')
    for tick in x.ticks:
        at = round(x.at(tick), 1)
        parts.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{tick:,g}</text>')
    return parts


def _spread(wanted: dict[str, float]) -> dict[str, float]:
    """Heights at which labels do not cover each other, from the top down, close to where they belong."""
    placed: dict[str, float] = {}
    above = -math.inf
    for name, height in sorted(wanted.items(), key=lambda item: item[1]):
        placed[name] = above = max(height, above + LINE_HEIGHT)
    return placed
