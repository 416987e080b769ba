"""The results as JSON, tables and plots: `python -m scaling_bench.report FOLDER` simulates and writes them again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median

from lab.plot import COLOURS, Line, Panel, ceiling, draw, whole
from scaling_bench.configurations import MAXIMUM, MINIMUM, TARGET_PERCENT, Configuration, read_configurations
from scaling_bench.evaluation import Outcome, Seen, spread
from scaling_bench.goals import goals
from scaling_bench.replay import replayed
from scaling_bench.rounds import Hops, Result
from scaling_bench.shapes import SHAPES, times
from scaling_bench.simulation import KNATIVE, simulate_all, simulated_rounds

Kind = tuple[str, int, int]
# Of each simulated round.
PHASES = 5


MEASURED, SIMULATED = "measured", "simulated"


def write(
    folder: Path,
    results: Mapping[str, Sequence[Result]],
    configurations: Mapping[str, Configuration],
) -> None:
    """results.md, and of what was measured and what was simulated a JSON, and a plot of each kind of round."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text(page(results, configurations))
    for how, some in results.items():
        (folder / f"{how}.json").write_text(dumps(some))
        for kind in kinds(some):
            (folder / f"{file_name(kind, how)}.svg").write_text(picture(kind, how, some, configurations))


def read(folder: Path) -> dict[str, list[Result]]:
    """What write() wrote."""
    files = {how: folder / f"{how}.json" for how in (MEASURED, SIMULATED)}
    return {how: loads(file.read_text()) for how, file in files.items() if file.exists()}


def dumps(results: Iterable[Result]) -> str:
    """Without the counters of each second, which are most of it. A line a result."""
    rows = []
    for result in results:
        row = asdict(result)
        row["seen"] = {key: [_rounded(point) for point in row["seen"][key]] for key in ("desired", "ready")}
        rows.append(json.dumps(row))
    return "[\n" + ",\n".join(rows) + "\n]\n"


def loads(text: str) -> list[Result]:
    found = []
    for row in json.loads(text):
        seen = Seen(
            SHAPES[row["shape"]], row["looks_s"], **{key: [tuple(p) for p in row["seen"][key]] for key in row["seen"]}
        )
        told = {**row, "seen": seen, "outcome": Outcome(**row["outcome"]), "hops": Hops(**row["hops"])}
        found.append(Result(**told))
    return found


def _rounded(point: Sequence[float]) -> list[float]:
    return [round(value, 2) for value in point]


def kinds(results: Iterable[Result]) -> list[Kind]:
    return list(dict.fromkeys(result.kind for result in results))


def file_name(kind: Kind, how: str = MEASURED) -> str:
    shape, sync_s, pod_start_s = kind
    start = f"-start-{pod_start_s}s" if pod_start_s else ""
    return f"{how}-{shape.replace(' ', '-')}-{sync_s}s{start}"


def heading(kind: Kind) -> str:
    shape, sync_s, pod_start_s = kind
    return f"{shape}, HPA period {sync_s} s, pod start {pod_start_s} s"


# ---- tables


def page(results: Mapping[str, Sequence[Result]], configurations: Mapping[str, Configuration]) -> str:
    """Goals by what was measured, then a part for each kind of round."""
    parts = ["## Goals", "", _goal_table(results.get(MEASURED, []))]
    for how, some in results.items():
        for kind in kinds(some):
            mine = [result for result in some if result.kind == kind]
            number = max(sum(result.configuration == name for result in mine) for name in configurations)
            parts += [
                f"## {how.capitalize()}: {heading(kind)}",
                "",
                f"{number} of each, looked at for {mine[0].looks_s:.0f} s. Ideal at the peak: {mine[0].outcome.ideal}.",
                "",
                _outcome_table(mine, configurations, is_measured=how == MEASURED),
            ]
            if how == MEASURED:
                parts += [_hop_table(mine, configurations)]
            parts += [f"![ready replicas]({file_name(kind, how)}.svg)", ""]
    return "\n".join(parts)


def _goal_table(results: Sequence[Result]) -> str:
    met = {True: "yes", False: "**no**", None: "not measured"}
    rows = [
        [goal.words, f"{goal.limit:g}", "" if goal.measured is None else f"{goal.measured:.2f}", met[goal.is_met]]
        for goal in goals(results)
    ]
    return _table(["goal", "at most", "measured", "met"], rows)


def _outcome_table(results: Sequence[Result], configurations: Mapping[str, Configuration], *, is_measured: bool) -> str:
    head = ["", "reaction, s: min, median, p95, max", "enough ready, s: min, median, p95, max", "rejected, %"]
    head += ["latency of served requests, ms: p50, p95, p99", "peak", "wasted, GPU-min", "missing, GPU-min", "turns"]
    rows = []
    for name, configuration in configurations.items():
        mine = [result for result in results if result.configuration == name]
        if not mine:
            continue
        outcomes = [result.outcome for result in mine]
        looks_s = mine[0].looks_s
        offered = sum(outcome.offered for outcome in outcomes)
        peaks = sorted({outcome.peak for outcome in outcomes})
        rows.append(
            [
                f"{name}: {configuration.title}",
                _spread([outcome.reaction_s for outcome in outcomes], looks_s),
                _spread([outcome.capacity_s for outcome in outcomes], looks_s),
                f"{100 * sum(outcome.rejected for outcome in outcomes) / offered:.1f}" if offered else "",
                _latency(mine) if is_measured else "not simulated",
                f"{peaks[0]}" if len(peaks) == 1 else f"{peaks[0]} to {peaks[-1]}",
                f"{fmean(outcome.wasted for outcome in outcomes):.2f}",
                f"{fmean(outcome.overloaded for outcome in outcomes):.2f}",
                f"{fmean(outcome.turns for outcome in outcomes):g}",
            ]
        )
    return _table(head, rows)


def _latency(results: Sequence[Result]) -> str:
    """Medians over the workloads. Where it was not recorded, it follows from the ready pods."""
    found = [result.outcome.latency_ms or replayed(result.seen, result.lane)[0] for result in results]
    known = [values for values in found if values]
    return ", ".join(f"{median(values):g}" for values in zip(*known, strict=True)) if known else "not recorded"


def _hop_table(results: Sequence[Result], configurations: Mapping[str, Configuration]) -> str:
    """Medians."""
    hops: list[tuple[str, Callable[[Result], float | None]]] = [
        ("scraped", lambda result: result.hops.scraped),
        ("recorded", lambda result: result.hops.recorded),
        ("decided", lambda result: result.hops.decided),
        ("one pod more ready", lambda result: result.hops.ready),
        ("enough wanted", lambda result: result.outcome.wanted_s),
        ("enough ready", lambda result: result.outcome.capacity_s),
    ]
    rows = []
    for name in configurations:
        mine = [result for result in results if result.configuration == name]
        if mine:
            medians = [spread([of(result) for result in mine], mine[0].looks_s).median for _title, of in hops]
            rows.append([name, *("" if median is None else f"{median:g}" for median in medians)])
    return _table(["median seconds until", *(title for title, _of in hops)], rows)


def _spread(values: Sequence[float | None], looks_s: float) -> str:
    found = spread(values, looks_s)
    shown = (found.minimum, found.median, found.p95, found.maximum)
    return ", ".join("never" if value is None else f"{value:g}" for value in shown)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


# ---- plots


def picture(kind: Kind, how: str, results: Sequence[Result], configurations: Mapping[str, Configuration]) -> str:
    """The load, and of each configuration the ready pods in the workload whose time to capacity is the median."""
    shape, mine = SHAPES[kind[0]], [result for result in results if result.kind == kind]
    before_s = 10
    end = mine[0].looks_s + before_s
    grid = [(second + before_s, shape.at(second)) for second in times(-before_s, end - before_s, 0.5)]
    load = Line("GPU-seconds a second", list(grid), 'class="line" stroke="#8a8985"')
    ideal = [
        (second + before_s, shape.ideal(second, TARGET_PERCENT, (MINIMUM, MAXIMUM)))
        for second in times(-before_s, end - before_s, 0.5)
    ]
    lines = [Line("ideal", list(ideal), 'class="line muted"', stepped=True)]
    for index, name in enumerate(configurations):
        runs = [result for result in mine if result.configuration == name]
        if runs:
            ordered = sorted(runs, key=lambda result: result.outcome.capacity_s or result.looks_s + 1)
            label = f"{name}: {configurations[name].title}"
            lines.append(_ready(ordered[len(ordered) // 2], label, COLOURS[index], before_s, end, 1.5 * index - 4))
    top = ceiling(value for _second, value in load.points)
    panels = [
        Panel("load", [load], [top * quarter / 4 for quarter in range(5)]),
        Panel("ready replicas", lines, whole(lines)),
    ]
    return draw(heading(kind), f"{how}: {heading(kind)}; ready replicas, each the median run", panels, end)


def _ready(result: Result, label: str, colour: str, before_s: float, end: float, shift: float) -> Line:
    points: list[tuple[float, float | None]] = [(0.0, 1.0)]
    points += [(second + before_s, count) for second, count in result.seen.ready if second > 0]
    points.append((end, points[-1][1]))
    return Line(label, points, f'class="line" stroke="{colour}"', stepped=True, shift=shift)


def main() -> None:
    folder = Path(sys.argv[1])
    results = read(folder) | {SIMULATED: simulate_all(simulated_rounds(), read_configurations(), PHASES, seed=1)}
    write(folder, results, read_configurations() | {KNATIVE.name: KNATIVE})


if __name__ == "__main__":
    main()
