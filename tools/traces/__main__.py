"""Plays recorded traffic against ways to scale, on paper, and writes results.json, tables and frontier.svg."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from traces.bench import STARTS_S, SYNC_S, Run, plays
from traces.loads import BadTrace, Load, own_load, read_loads
from traces.report import write
from traces.scalers import Way, read_ways

# Loads of at most this length are also played with pods that start in the shortest time.
SHORT_HOURS = 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m traces", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/traces"), help="folder (default: %(default)s)")
    parser.add_argument("--trace", type=Path, help="your own load: CSV with seconds,requests_per_second")
    parser.add_argument("--service-seconds", type=float, default=0.2, help="GPU time of its requests (default: 0.2)")
    parser.add_argument("--goal-seconds", type=float, help="within which they are answered (default: five times that)")
    parser.add_argument("--loads", help="comma-separated names of loads.yml (default: all)")
    parser.add_argument("--ways", help="semicolon-separated names of ways.yml (default: those that are shipped)")
    parser.add_argument("--tried", action="store_true", help="play the variants as well")
    parser.add_argument(
        "--choices",
        type=int,
        default=1,
        help="pods drawn for a request, which the least busy gets (default: 1, random)",
    )
    parser.add_argument("--seeds", type=int, default=3, help="draws of each load (default: 3)")
    parser.add_argument("--sync", type=float, default=SYNC_S, help="period of the HPAs in seconds (default: 15)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a processor)")
    arguments = parser.parse_args()
    for option in ("service_seconds", "goal_seconds", "choices", "seeds", "sync", "jobs"):
        if (given := getattr(arguments, option)) is not None and given <= 0:
            parser.error(f"--{option.replace('_', '-')} is {given:g}; it must be above 0")
    return arguments


def _chosen(known: dict[str, Load] | dict[str, Way], given: str, separator: str) -> list[str]:
    names = [name.strip() for name in given.split(separator)]
    if unknown := [name for name in names if name not in known]:
        raise BadTrace(f"unknown: {', '.join(unknown)}. Use some of {', '.join(known)}.")
    return names


def main() -> None:
    arguments = _arguments()
    loads, ways = read_loads(), read_ways()
    try:
        if arguments.trace:
            own = own_load(arguments.trace, arguments.service_seconds, arguments.goal_seconds)
            loads = {own.name: own}
        elif arguments.loads:
            loads = {name: loads[name] for name in _chosen(loads, arguments.loads, ",")}
        shipped = [name for name, way in ways.items() if arguments.tried or not way.is_tried]
        ways = {name: ways[name] for name in (_chosen(ways, arguments.ways, ";") if arguments.ways else shipped)}
    except BadTrace as bad:
        sys.exit(f"traces: {bad} Nothing was played.")
    loads = {
        name: replace(load, service=replace(load.service, choices=arguments.choices)) for name, load in loads.items()
    }
    began, rows = time.monotonic(), []
    # A day takes as long as all hours, so days are first.
    tasks = sorted(itertools.product(loads.values(), range(1, arguments.seeds + 1)), key=lambda task: -task[0].hours)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        parts = [
            pool.submit(plays, load, list(ways.values()), seed, [start_s], arguments.sync)
            for load, seed in tasks
            for start_s in STARTS_S
            if start_s > min(STARTS_S) or load.hours <= SHORT_HOURS
        ]
        for done, part in enumerate(as_completed(parts), 1):
            rows += part.result()
            print(f"{done} of {len(parts)}, {time.monotonic() - began:.0f} s", flush=True)
    # A pool of one size does not depend on the start of a pod, and is played with each.
    runs = sorted({Run(**row) for row in rows}, key=lambda run: (run.load, run.way, run.start_s, run.target, run.seed))
    arguments.out.mkdir(parents=True, exist_ok=True)
    about = {
        "sync_s": arguments.sync,
        "choices": arguments.choices,
        "seeds": arguments.seeds,
        "seconds": round(time.monotonic() - began),
    }
    write(arguments.out, runs, list(loads.values()), list(ways.values()), about)
    print(f"{arguments.out}: results.json, tables.md and frontier.svg")


if __name__ == "__main__":
    main()
