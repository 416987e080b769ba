"""An hour of recorded traffic on a lab cluster, a to f at once, beside the same hour on paper.

Each workload of the cluster gets the same requests as on paper, each at the same second. What the paper draws besides
is drawn several times: the phases of the intervals, and the pod that a request goes to.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from scaling_bench.balancer import STEPS_OF_COST
from scaling_bench.bench import Bench, add_options, told
from scaling_bench.cluster import NotReached
from scaling_bench.configurations import LEAST_START_S, MAXIMUM, TARGET_PERCENT, read_configurations
from scaling_bench.evaluation import Counts, count_at, direction_changes

from lab.plot import COLOURS, Line, Panel, draw
from traces.bench import ORACLE, STATIC, SYNC_S, Played, Run
from traces.loads import PLANNED_PERCENT, Load, read_loads
from traces.scalers import read_ways

DRAWS = 10
# A count is each second's. Of the requests so many may lie in the seconds at both ends.
LATE_S, LATE_SHARE = 5.0, 0.01
# Of the time before, in GPU-seconds a second: with few requests a cost is learned late.
LOW_GPUS = 0.5
MEASURED, PAPER = "measured", "on paper"


@dataclass(frozen=True)
class Seen:
    """What a workload of the cluster did, in seconds of the load.

    desired:  replicas that its Deployment was told to have. ready: its ready pods.
    requests: second, offered, served, rejected. latencies: second, and served requests by their latency, in the
              balancer's steps. Both are counters.
    """

    desired: Counts
    ready: Counts
    requests: Sequence[Sequence[float]]
    latencies: Sequence[Sequence[float]]


def pod_start_s(seen: Sequence[Seen]) -> float:
    """Median of the seconds from a decision for more replicas until as many are ready, or the least of the lab."""
    found = []
    for one in seen:
        recorded_s = one.ready[0][0]  # pods of earlier decisions are ready from the first row on
        for (_before, fewer), (at, more) in pairwise(row for row in one.desired if row[0] >= recorded_s):
            ready = next((second for second, count in one.ready if second >= at and count >= more), None)
            lower = next((second for second, count in one.desired if second > at and count < more), None)
            if more > fewer and ready is not None and (lower is None or ready <= lower):
                found.append(ready - at)
    return round(median(found), 1) if found else LEAST_START_S


def faults(played: Played, way: str, seen: Seen) -> list[str]:
    """Why this is not a run of the load: a thread of the bench or of the balancer has ended, or it was late."""
    until_s, found = played.load.seconds, []
    rows = [row for row in seen.requests if 0 <= row[0] <= until_s]
    if not rows or rows[0][0] > LATE_S or rows[-1][0] < until_s - LATE_S:
        return [f"{way}: the balancer counted nothing at the beginning or the end of the load"]
    offered, given = rows[-1][1] - rows[0][1], len(played.arrivals)
    if abs(offered - given) > max(LATE_SHARE * given, 10):
        found.append(f"{way}: {offered:.0f} requests came of {given} that were given")
    if not seen.desired or not seen.ready:
        found.append(f"{way}: no replicas were seen")
    elif seen.desired[-1][1] != seen.ready[-1][1] and seen.desired[-1][0] < until_s - 60:
        found.append(
            f"{way}: {seen.desired[-1][1]} replicas are wanted at the end, and {seen.ready[-1][1]} pods are ready"
        )
    return found


def measured(played: Played, way: str, seen: Seen, start_s: float) -> Run:
    """As a run on paper has it: pods cost GPU time from the decision on, also while they start."""
    until_s, service = played.load.seconds, played.load.service
    goal_steps = round(service.goal_s / service.service_s * STEPS_OF_COST)
    counts = [count_at(seen.desired, 0), *(count for at, count in seen.desired if 0 < at <= until_s)]
    times = [0.0, *(at for at, _count in seen.desired if 0 < at <= until_s), until_s]
    gpu_s = sum(count * (end - begin) for count, (begin, end) in zip(counts, pairwise(times), strict=True))
    begin, end = ([row for row in seen.requests if row[0] <= second][-1] for second in (0, until_s))
    first, last = ([row for row in seen.latencies if row[0] <= second][-1] for second in (0, until_s))
    offered, good = end[1] - begin[1], sum(last[1 : 1 + goal_steps]) - sum(first[1 : 1 + goal_steps])
    return Run(
        played.load.name,
        way,
        TARGET_PERCENT,
        start_s,
        0,
        within_goal=round(good / offered, 6),
        gpu_share=round(gpu_s / (played.planned * until_s), 5),
        changes=round(sum(abs(later - earlier) for earlier, later in pairwise(counts)) / played.load.hours, 2),
        turns=round(direction_changes(counts) / played.load.hours, 2),
        rejected=round((end[3] - begin[3]) / offered, 6),
        requests=int(offered),
        peak=int(max(counts)),
    )


def on_paper(played: Played, names: Sequence[str], start_s: float) -> list[Run]:
    """The same requests with each way, and pools that know them."""
    draws = [replace(played, seed=played.seed + draw) for draw in range(DRAWS)]
    ways = [read_ways()[name] for name in names]
    return [
        *played.static(),
        *(run for run in played.oracle(start_s) if run.target == TARGET_PERCENT),
        *(draw.of_way(way, TARGET_PERCENT, start_s, SYNC_S) for way in ways for draw in draws),
    ]


def table(real: Sequence[Run], paper: Sequence[Run]) -> str:
    """Both side by side, and the range of what was drawn on paper."""
    figures = [
        ("within the goal, %", "within_goal", 100, 1),
        ("GPU-hours", "gpu_share", 1, 2),
        ("pods added and removed an hour", "changes", 1, 0),
    ]
    head = ["", *(f"{title}, {how}" for title, *_figure in figures for how in (MEASURED, PAPER))]
    rows = [head, ["---"] * len(head)]
    for run in real:
        drawn, cells = [one for one in paper if one.way == run.way], []
        for _title, name, factor, digits in figures:
            values = [factor * getattr(one, name) for one in drawn]
            low, middle, high = (f"{value:.{digits}f}" for value in (min(values), fmean(values), max(values)))
            cells += [f"{factor * getattr(run, name):.{digits}f}", f"{middle} ({low} to {high})"]
        rows.append([run.way, *cells])
    for name, words in ((STATIC, "a pool of {:g}"), (ORACLE, "oracle at {:g} %")):
        for one in (run for run in paper if run.way == name):
            cells = ["", f"{100 * one.within_goal:.1f}", "", f"{one.gpu_share:.2f}", "", f"{one.changes:.0f}"]
            rows.append([words.format(one.target), *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def words(load: Load) -> str:
    return load.title + (f", each request {load.copies} times" if load.copies > 1 else "")


def picture(played: Played, seen: dict[str, Seen]) -> str:
    """Of each way the replicas that it held, over those that the load needs in each ten seconds."""
    span_s, end = 10, played.load.seconds
    needed = played.load.gpus(played.arrivals, span_s) * 100 / PLANNED_PERCENT
    load: list[tuple[float, float | None]] = [(span_s * row, float(value)) for row, value in enumerate(needed)]
    panels = []
    for number, (way, one) in enumerate(seen.items()):
        held: list[tuple[float, float | None]] = [(0.0, count_at(one.desired, 0))]
        held += [(at, count) for at, count in one.desired if 0 < at <= end]
        held.append((end, held[-1][1]))
        lines = [
            Line("needed at 60 %", [(at, min(value or 0, played.maximum)) for at, value in load], 'class="line muted"'),
            Line("replicas", held, f'class="line" stroke="{COLOURS[number]}"', stepped=True),
        ]
        panels.append(Panel(way, lines, range(0, played.maximum + 1, max(played.maximum // 4, 1))))
    return draw("measured hour", f"Replicas on the cluster: {words(played.load)}", panels, end)


def write(folder: Path, played: Played, seen: dict[str, Seen], start_s: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    real = [measured(played, way, one, start_s) for way, one in seen.items()]
    paper = on_paper(played, list(seen), start_s)
    about = {
        "load": words(played.load),
        "seed": played.seed,
        "requests": len(played.arrivals),
        "planned_pods": played.planned,
        "sync_s": SYNC_S,
        "pod_start_s": start_s,
    }
    rows = {MEASURED: [asdict(run) for run in real], PAPER: [asdict(run) for run in paper]}
    desired = {way: [[round(at, 2), count] for at, count in one.desired] for way, one in seen.items()}
    (folder / "hour.json").write_text(json.dumps({"about": about, **rows, "desired": desired}, indent=1) + "\n")
    (folder / "hour.md").write_text(table(real, paper))
    (folder / "hour.svg").write_text(picture(played, seen))


def arguments_of_command() -> argparse.Namespace:
    loads, ways = read_loads(), "".join(read_configurations())
    parser = argparse.ArgumentParser(prog="python -m traces.measured", description=__doc__)
    add_options(parser)
    parser.add_argument("--load", choices=loads, default="code-hour", help="of loads.yml (default: %(default)s)")
    parser.add_argument("--copies", type=int, default=2, help="of requests that are recorded (default: %(default)s)")
    parser.add_argument("--scale", type=float, help="of the rate of the other loads (default: that of loads.yml)")
    parser.add_argument("--ways", default=ways, help="letters of a to f (default: %(default)s)")
    parser.add_argument("--maximum", type=int, default=MAXIMUM, help="replicas of each way (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="of the load (default: all)")
    arguments = parser.parse_args()
    load = loads[arguments.load]
    given = {"minutes": arguments.minutes, "scale": arguments.scale, "copies": arguments.copies}
    for name, value in ({"maximum": arguments.maximum} | given).items():
        if value is not None and value <= 0:
            parser.error(f"--{name} is {value:g}; it must be above 0")
    if arguments.minutes is not None and not 2 <= arguments.minutes <= 60 * load.hours:
        parser.error(f"--minutes is {arguments.minutes:g}; {load.name} has 2 to {60 * load.hours:.0f}")
    if not arguments.ways or set(arguments.ways) - set(ways):
        parser.error(f"--ways is {arguments.ways!r}; use letters of {ways}")
    return arguments


def main() -> None:
    arguments = arguments_of_command()
    arguments.lanes = 1
    load: Load = replace(read_loads()[arguments.load], copies=arguments.copies)
    load = replace(load, scale=arguments.scale or load.scale, hours=(arguments.minutes or 60 * load.hours) / 60)
    played = replace(Played.of(load, arguments.seed), maximum=arguments.maximum)
    with told(arguments.kubeconfig):
        bench = Bench(
            arguments,
            ways=arguments.ways,
            maximum=arguments.maximum,
            cost_ms=1000 * load.service.service_s,
            low_gpus=LOW_GPUS,
        )
        bench.set_up()
        begin, record = bench.play_requests(list(played.arrivals), load.seconds, played.first_gpus(), SYNC_S)
        seen = {}
        for workload in bench.workloads:
            rows = {name: [[row[0] - begin, *row[1:]] for row in some] for name, some in record[workload.name].items()}
            desired = [(at - begin, count) for at, count in bench.cluster.desired(workload.name)]
            ready = [(row[0], row[1]) for row in rows["ready"]]
            seen[workload.configuration.name] = Seen(desired, ready, rows["counts"], rows["latencies"])
        if found := [fault for way, one in seen.items() for fault in faults(played, way, one)]:
            raise NotReached("\n".join(f"bench -> load: {fault}" for fault in found))
        write(arguments.out, played, seen, pod_start_s(list(seen.values())))
        bench.say(f"{arguments.out / 'hour.md'}")


if __name__ == "__main__":
    main()
