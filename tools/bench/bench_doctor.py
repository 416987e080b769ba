"""How long gpu_doctor takes for 1,000 GPU nodes and 500 autoscalers, on a real API server with a real Prometheus."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "integration")]

from bench_cluster import Cluster, autoscalers, start_cluster
from bench_progress import Steps
from bench_report import Target, number, verdicts
from bench_runs import Failed, run_module
from collection import ROOT, install
from doctor_cluster import HISTORY_S, STEP_S, DoctorCluster, Size, wait_for_values, write_past
from rich.console import Console
from rich.table import Table

WIDTH = 120
VALUES_S = 180
# The second and later pages of a list grow with the objects.
PAGES = "list, next page"


@dataclass(frozen=True)
class Look:
    """The doctor at one size: medians of its rounds, the memory their highest.

    wall_s:   of the module's process. inside_s: as it says itself, without the start of Python.
    requests: by verb and kind.
    page_mb, page_s: the report as a page, and the seconds to write it.
    """

    size: Size
    wall_s: float
    inside_s: float
    rss_mb: float
    requests: dict[str, int]
    page_mb: float
    page_s: float

    @property
    def asked(self) -> int:
        """Requests without the further pages of lists."""
        return sum(count for title, count in self.requests.items() if not title.startswith(PAGES))


@dataclass(frozen=True)
class Bench:
    looks: list[Look]

    @property
    def largest(self) -> Look:
        return self.looks[-1]

    @property
    def more_requests(self) -> int:
        return self.largest.asked - self.looks[0].asked


TARGETS = (
    Target("wall time", "s", 30, lambda bench: bench.largest.wall_s),
    Target("requests more than of the smallest, pages aside", "", 0, lambda bench: bench.more_requests),
    Target("memory", "MB", 300, lambda bench: bench.largest.rss_mb),
    Target("report.html", "MB", 5, lambda bench: bench.largest.page_mb),
    Target("writing it", "s", 5, lambda bench: bench.largest.page_s),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=_sizes, default="100x50,1000x500", help="nodes x autoscalers, smallest first")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="folder (default: %(default)s)")
    arguments = parser.parse_args()
    console = Console(width=WIDTH)
    install()
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        bench = measure(arguments, console)
    except Failed as failure:
        sys.exit(f"not measured: {failure}")
    (arguments.out / "doctor.json").write_text(json.dumps(asdict(bench), indent=1) + "\n")
    for table in (_looks(bench), _requests(bench), verdicts(bench, TARGETS)):
        console.print(table)
    console.print(f"{arguments.out}/doctor.json, doctor-report.json and doctor-report.html")


def measure(arguments: argparse.Namespace, console: Console) -> Bench:
    largest, promtool = arguments.sizes[-1], Path(os.environ["KUBEGPU_BIN"]) / "promtool"
    past = partial(write_past, size=largest, promtool=promtool)
    with start_cluster(interval_s=STEP_S, prepare=past) as cluster, Steps(console=console) as progress:
        doctor = DoctorCluster(cluster)
        doctor.start()
        task = progress.add_task("looks", total=len(arguments.sizes) * (arguments.rounds + 1))
        looks = []
        for size in arguments.sizes:
            doctor.grow(size, partial(_autoscale, cluster))
            wait_for_values(cluster, size, VALUES_S)
            progress.advance(task)
            rounds = []
            for _ in range(arguments.rounds):
                rounds.append(_look(cluster, size, arguments.out))
                progress.advance(task)
            looks.append(_middle(rounds))
        return Bench(looks)


def _autoscale(cluster: Cluster, count: int) -> None:
    options = {"autoscalers": autoscalers(count), "prometheus": {"evaluation_interval": STEP_S}, "verify": False}
    done = run_module(cluster, "gpu_autoscaler", options).result
    if done.get("failed"):
        raise Failed(f"{count} autoscalers: {done.get('msg')}")


def _look(cluster: Cluster, size: Size, out: Path) -> Look:
    """Raises Failed if it does not see a healthy cluster of that size: it has looked at something else then."""
    done = run_module(cluster, "gpu_doctor", {"history": HISTORY_S})
    report = done.result.get("result")
    if not report or done.result.get("failed"):
        raise Failed(f"{size}: {done.result.get('msg')}")
    seen = Size(report["cluster"]["gpu_nodes"], sum(autoscaler["verified"] for autoscaler in report["autoscalers"]))
    if report["findings"] or seen != size:
        raise Failed(f"{size}: {seen} verified, {json.dumps(report['findings'], indent=1)}")
    page, page_s = _page(report)
    (out / "doctor-report.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / "doctor-report.html").write_text(page)
    return Look(size, done.wall_s, report["duration_s"], done.rss_mb, done.requests, len(page.encode()) / 1e6, page_s)


def _page(report: dict[str, Any]) -> tuple[str, float]:
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.html import html

    started = time.perf_counter()
    return html(report), time.perf_counter() - started


def _middle(looks: list[Look]) -> Look:
    return replace(
        looks[0],
        wall_s=median(look.wall_s for look in looks),
        inside_s=median(look.inside_s for look in looks),
        rss_mb=max(look.rss_mb for look in looks),
        page_s=median(look.page_s for look in looks),
    )


def _looks(bench: Bench) -> Table:
    table = Table("", *(str(look.size) for look in bench.looks), title="One look of gpu_doctor")
    for title, of in (
        ("wall, s", lambda look: look.wall_s),
        ("of it in the module, s", lambda look: look.inside_s),
        ("memory, MB", lambda look: look.rss_mb),
        ("requests, pages aside", lambda look: look.asked),
        ("report.html, MB", lambda look: look.page_mb),
        ("writing it, s", lambda look: look.page_s),
    ):
        table.add_row(title, *(number(of(look)) for look in bench.looks))
    return table


def _requests(bench: Bench) -> Table:
    table = Table("", *(str(look.size) for look in bench.looks), title="Requests of a look")
    for title in sorted({title for look in bench.looks for title in look.requests}):
        table.add_row(title, *(str(look.requests.get(title, "")) for look in bench.looks))
    return table


def _sizes(text: str) -> list[Size]:
    """`100x50,1000x500` -> nodes and autoscalers."""
    return sorted((Size(*map(int, pair.split("x"))) for pair in text.split(",")), key=lambda size: size.nodes)


if __name__ == "__main__":
    main()
