"""How long gpu_autoscaler takes for many autoscalers, on a real API server and beside kubernetes.core.k8s."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "integration")]

from bench_cluster import start_cluster
from bench_progress import Steps
from bench_report import Report, plot, tables
from bench_runs import Failed, compare, measure_crowd, measure_import, measure_size
from collection import ROOT, install
from rich.console import Console

IMPORT_ROUNDS = 5
WIDTH = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=_numbers, default=[100, 300, 1000, 3000], help="autoscalers, as 100,300")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (default: %(default)s)")
    parser.add_argument(
        "--compare",
        type=int,
        default=1000,
        help="autoscalers beside kubernetes.core, 0 for none (default: %(default)s)",
    )
    parser.add_argument("--loop", type=int, default=20, help="items of the k8s loop (default: %(default)s)")
    parser.add_argument("--others", type=int, default=20_000, help="pods of others, 0 for none (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="folder (default: %(default)s)")
    arguments = parser.parse_args()
    console = Console(width=WIDTH)
    install()
    try:
        report = measure(arguments, console)
    except Failed as failure:
        sys.exit(f"not measured: {failure}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "modules.json").write_text(json.dumps(asdict(report), indent=1) + "\n")
    (arguments.out / "modules.svg").write_text(plot(report))
    for table in tables(report):
        console.print(table)
    console.print(f"{arguments.out}/modules.json and modules.svg")


def measure(arguments: argparse.Namespace, console: Console) -> Report:
    imports = measure_import(IMPORT_ROUNDS)
    with start_cluster() as cluster, Steps(console=console) as progress:
        runs = [run for size in arguments.sizes for run in measure_size(cluster, size, arguments.rounds, progress)]
        tasks = []
        if arguments.compare:
            loop = min(arguments.loop, arguments.compare)
            tasks = compare(cluster, arguments.compare, loop, arguments.rounds, progress)
        size = arguments.compare or max(arguments.sizes)
        crowd = None
        if arguments.others:
            crowd = measure_crowd(cluster, size, arguments.others, arguments.rounds, progress)
        return Report(_machine(cluster.version), runs, tasks, imports, crowd)


def _machine(kubernetes: str) -> dict[str, Any]:
    return {
        "processors": os.cpu_count(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "kubernetes": kubernetes,
        **{f"{name} (Python)": version(name) for name in ("ansible-core", "kubernetes", "urllib3")},
    }


def _numbers(text: str) -> list[int]:
    return sorted(map(int, text.split(",")))


if __name__ == "__main__":
    main()
