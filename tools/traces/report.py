"""results.json, the two tables, and the frontier as an SVG."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.sax.saxutils import escape

from lab.plot import COLOURS, STYLE
from traces.bench import ORACLE, STATIC, Run, at_goal, means
from traces.loads import Load
from traces.scalers import Way

GOAL = 0.99
# Of the plot: the share within the goal, and GPU-hours.
_LOWEST, _WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 0.95, 300, 210, 52, 90, 56


def write(folder: Path, runs: Sequence[Run], loads: Sequence[Load], ways: Sequence[Way], about: dict[str, Any]) -> None:
    (folder / "results.json").write_text(dumps(runs, about))
    (folder / "tables.md").write_text(page(runs, loads, ways))
    (folder / "frontier.svg").write_text(frontier(runs, loads, ways))


def dumps(runs: Sequence[Run], about: dict[str, Any]) -> str:
    """Columns, and one line a run, so that a change of the results can be read."""
    columns = [field.name for field in fields(Run)]
    lines = ",\n".join(json.dumps(list(asdict(run).values()), separators=(",", ":")) for run in runs)
    return f'{{"about": {json.dumps(about)},\n"columns": {json.dumps(columns)},\n"runs": [\n{lines}\n]}}\n'


def page(runs: Sequence[Run], loads: Sequence[Load], ways: Sequence[Way]) -> str:
    starts = sorted({run.start_s for run in runs if run.way != STATIC})
    parts = ["# GPU-hours at 99 % of requests within the goal", ""]
    for start_s in starts:
        some = [load for load in loads if of(runs, load.name, ORACLE, start_s)]
        parts += [f"Pods that start in {start_s:g} s:", "", *at_goal_table(runs, some, ways, start_s), ""]
    parts += ["# As shipped", ""]
    for start_s in starts:
        some = [load for load in loads if of(runs, load.name, ORACLE, start_s)]
        parts += [f"Pods that start in {start_s:g} s:", "", *shipped_table(runs, some, ways, start_s), ""]
    return "\n".join(parts)


def of(runs: Iterable[Run], load: str, way: str, start_s: float) -> list[Run]:
    """A static pool has no start."""
    return [run for run in runs if (run.load, run.way) == (load, way) and (run.way == STATIC or run.start_s == start_s)]


def at_goal_table(runs: Sequence[Run], loads: Sequence[Load], ways: Sequence[Way], start_s: float) -> list[str]:
    rows = [("smallest static pool in hindsight", [_smallest(of(runs, load.name, STATIC, 0)) for load in loads])]
    for name in (ORACLE, *(way.name for way in ways)):
        cells = []
        for load in loads:
            mine = of(runs, load.name, name, start_s)
            found, least = at_goal(mine, GOAL), min(means(mine).values(), key=lambda mean: mean[1])
            bound = "at most " if found and found[0] == least[1] else ""
            target = "" if found is None or name == ORACLE else f" ({found[1]:.2g})"
            cells.append("-" if found is None else f"{bound}{found[0]:.3f}{target}")
        rows.append((name, cells))
    return _table(["", *(load.name for load in loads)], rows)


def _smallest(runs: Sequence[Run]) -> str:
    """Of each draw the smallest pool with the goal, so that pools are of whole pods."""
    found = []
    for seed in {run.seed for run in runs}:
        good = [run.gpu_share for run in runs if run.seed == seed and run.within_goal >= GOAL]
        if not good:
            return "-"
        found.append(min(good))
    return f"{fmean(found):.3f}"


def shipped_table(runs: Sequence[Run], loads: Sequence[Load], ways: Sequence[Way], start_s: float) -> list[str]:
    rows = []
    for way in ways:
        cells = []
        for load in loads:
            mine = [run for run in of(runs, load.name, way.name, start_s) if run.target == way.shipped]
            within, gpu, changes = (
                fmean(getattr(run, name) for run in mine) for name in ("within_goal", "gpu_share", "changes")
            )
            cells.append(f"{100 * within:.1f} / {gpu:.2f} / {changes:.0f}")
        rows.append((f"{way.name}, {way.shipped:g}", cells))
    return _table(["", *(load.name for load in loads)], rows)


def _table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    lines = [head, ["---"] * len(head), *([name, *cells] for name, cells in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def frontier(runs: Sequence[Run], loads: Sequence[Load], ways: Sequence[Way]) -> str:
    """A panel for each load and start: GPU-hours to the right, the share within the goal upwards."""
    starts = [start_s for start_s in sorted({run.start_s for run in runs if run.way != STATIC}) if start_s >= 60]
    names = [STATIC, ORACLE, *(way.name for way in ways)]
    grey = {STATIC: "#8a8985", ORACLE: "#0b0b0b"}
    colours = grey | {way.name: COLOURS[number % len(COLOURS)] for number, way in enumerate(ways)}
    width = _LEFT + len(starts) * (_WIDTH + _GAP)
    height = _TOP + len(loads) * (_HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Requests within the goal against GPU-hours</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="title" x="{_LEFT}" y="28">Requests within their goal, percent, against GPU-hours</text>',
    ]
    for number, name in enumerate(names):
        x, y = _LEFT + number % 5 * 130, 50 + number // 5 * 18
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colours[name]}"/>')
        parts.append(f'<text x="{x + 10}" y="{y}">{escape(name)}</text>')
    for row, load in enumerate(loads):
        for column, start_s in enumerate(starts):
            x, y = _LEFT + column * (_WIDTH + _GAP), _TOP + 14 + row * (_HEIGHT + _GAP)
            parts += _panel(runs, load, start_s, names, colours, x, y)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    runs: Sequence[Run], load: Load, start_s: float, names: Sequence[str], colours: dict[str, str], x: float, y: float
) -> list[str]:
    parts = [f'<text class="name" x="{x}" y="{y - 6}">{escape(load.name)}, pods of {start_s:g} s</text>']
    lines = {
        name: sorted(means(of(runs, load.name, name, start_s)).values(), key=lambda mean: mean[1]) for name in names
    }
    most = max([1.2, *(gpu for line in lines.values() for _within, gpu in line if gpu < 1.6)])

    def place(within: float, gpu: float) -> str:
        up = (max(within, _LOWEST) - _LOWEST) / (1 - _LOWEST)
        return f"{x + _WIDTH * gpu / most:.1f},{y + _HEIGHT * (1 - up):.1f}"

    for percent in (95, 96, 97, 98, 99, 100):
        height = y + _HEIGHT * (100 - percent) / 5
        parts.append(f'<line class="grid" x1="{x}" x2="{x + _WIDTH}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text x="{x - 8}" y="{height + 4:.1f}" text-anchor="end">{percent}</text>')
    for tick in (0.25, 0.5, 0.75, 1.0):
        parts.append(
            f'<text x="{x + _WIDTH * tick / most:.1f}" y="{y + _HEIGHT + 16}" text-anchor="middle">{tick:g}</text>'
        )
    seen = {
        name: [(within, gpu) for within, gpu in line if within >= _LOWEST and gpu <= most]
        for name, line in lines.items()
    }
    if not any(seen.values()):
        parts.append(f'<text x="{x + 12}" y="{y + _HEIGHT / 2}">none reaches {_LOWEST:.0%}</text>')
    for name, shown in seen.items():
        if not shown:
            continue
        points = " ".join(place(within, gpu) for within, gpu in shown)
        parts.append(f'<polyline class="line" stroke="{colours[name]}" points="{points}"/>')
        parts += [
            '<circle cx="{}" cy="{}" r="2.5" fill="{}"/>'.format(*place(within, gpu).split(","), colours[name])
            for within, gpu in shown
        ]
    return parts
