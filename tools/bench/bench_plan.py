"""gpu_autoscaler_plan's arithmetic: a day of 500 autoscalers, each with today's setting and five others.

It needs no cluster. Seconds and memory of the replay alone, in as many processes as the module takes; beside them the
processor's seconds, which do not depend on what else runs.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from math import pi, sin
from pathlib import Path
from random import Random

TESTS = Path(__file__).parents[2] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "integration")]

from bench_report import Target, number, verdicts
from collection import ROOT, install
from rich.console import Console
from rich.table import Table

DAY_S, STEP_S = 86_400, 15
MB_PER_KIB = 1024 / 1e6


@dataclass(frozen=True)
class Bench:
    """settings: of each autoscaler. looks: of the controller, over all of them."""

    autoscalers: int
    settings: int
    looks: int
    wall_s: float
    processor_s: float
    rss_mb: float

    @property
    def us_a_look(self) -> float:
        return 1e6 * self.processor_s / self.looks


TARGETS = (Target("a day of 500 autoscalers", "s", 30, lambda bench: bench.wall_s * 500 / bench.autoscalers),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--autoscalers", type=int, default=500, help="(default: %(default)s)")
    parser.add_argument("--only-today", action="store_true", help="replay no setting but today's")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="folder (default: %(default)s)")
    arguments = parser.parse_args()
    install()
    bench = measure(arguments.autoscalers, only_today=arguments.only_today)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "plan.json").write_text(json.dumps(asdict(bench), indent=1) + "\n")
    console = Console(width=120)
    for table in (_figures(bench), verdicts(bench, TARGETS)):
        console.print(table)
    console.print(f"{arguments.out}/plan.json")


def measure(autoscalers: int, *, only_today: bool) -> Bench:
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.plan_autoscalers import plan_all

    found = subjects(autoscalers)
    changes = [{"target_value": found[0].today.metrics[0].target}] if only_today else []  # no change is left out
    started_s, before = time.perf_counter(), _processor_s()
    plans = plan_all(found, changes, 15)
    wall_s, processor_s = time.perf_counter() - started_s, _processor_s() - before
    settings = sum(len(plan["settings"]) for plan in plans)
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    looks = settings * DAY_S // STEP_S
    return Bench(autoscalers, settings // autoscalers, looks, wall_s, processor_s, max(peaks) * MB_PER_KIB)


def subjects(autoscalers: int) -> list:
    """A day each: more by day than by night, with noise that a sample sees, and a burst here and there."""
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.controller import Behavior
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replay import (
        PlannedMetric,
        Setting,
        Trace,
    )
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replay_plan import Subject
    from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaling_rules import (
        DEFAULT_SCALE_DOWN,
        default_scale_up,
    )

    random, metric = Random(1), PlannedMetric("gpu", "pods", 60, most=100)
    setting = Setting((metric,), 1, 16, Behavior(default_scale_up(60), DEFAULT_SCALE_DOWN), 60)
    made = []
    for count in range(autoscalers):
        base, steps = random.uniform(50, 500), DAY_S // STEP_S
        loads = [
            max(0.0, base * (1 + 0.8 * sin(2 * pi * step / steps)) * random.gauss(1, 0.1))
            * (3 if step % 997 < 20 else 1)
            for step in range(steps)
        ]
        identity = {"namespace": "ml", "name": f"plan-{count}", "metric": "gpu", "unit": "percent", "demand": False}
        made.append(Subject(identity, setting, Trace(0, STEP_S, {"gpu": loads}, [1.0] * steps), {"gpu": "%"}))
    return made


def _processor_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _figures(bench: Bench) -> Table:
    table = Table("autoscalers", "settings", "looks", "wall, s", "processor, s", "microseconds a look", "memory, MB")
    table.add_row(
        f"{bench.autoscalers:,}",
        str(bench.settings),
        f"{bench.looks:,}",
        *(number(value) for value in (bench.wall_s, bench.processor_s, bench.us_a_look)),
        number(bench.rss_mb, 0),
    )
    return table


if __name__ == "__main__":
    main()
