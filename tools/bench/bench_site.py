"""What a run of site.yml costs on the lab that is up.

The first, the second, which finds all as it should be, and one that brings an autoscaler more.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).parents[2]
sys.path[:0] = [str(CHECKOUT / folder) for folder in (".", "tests", "tests/faults")]
SLOWEST = 10
# Prints all results as JSON, with the moments at which each task begins and ends.
CALLBACK = "ansible.posix.json"
ONE_MORE = "one-more"
AUTOSCALERS = "gpu_autoscaling_autoscalers"


@dataclass(frozen=True)
class SiteRun:
    """One run of a playbook.

    seconds:  wall clock.
    cpu_s:    processor seconds of ansible-playbook and of all that it starts, modules on the lab's servers included.
    tasks:    tasks that were begun; one that four hosts run is one.
    results:  results by what became of them; each that is skipped is a line of the output.
    includes: files and roles that were brought in while the run was under way.
    slowest:  the longest tasks: seconds, name.
    """

    seconds: float
    cpu_s: float
    tasks: int
    includes: int
    results: dict[str, int]
    slowest: list[tuple[float, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inventory", default="inventories/lab", help="(default: %(default)s)")
    parser.add_argument("--playbook", default="playbooks/site.yml", help="(default: %(default)s)")
    parser.add_argument("--runs", type=int, default=2, help="one after the other (default: %(default)s)")
    arguments = parser.parse_args()
    given = arguments.inventory, arguments.playbook
    runs = [measure(*given) for _ in range(arguments.runs)]
    with one_more(CHECKOUT / arguments.inventory) as variables:
        more = measure(*given, f"-e@{variables}")
    told = {"runs": [asdict(run) for run in runs], "one_more": asdict(more), "last_to_first": ratios(runs)}
    print(json.dumps(told, indent=1))


@contextmanager
def one_more(inventory: Path) -> Iterator[Path]:
    """A second workload, and the file of variables that has an autoscaler for it; both are gone afterwards."""
    from collection import install

    install()
    from faults import HPA, second_deployment
    from live_lab import WORKLOADS, Lab

    lab = Lab(inventory)
    listed = yaml.safe_load((inventory / "group_vars" / "all.yml").read_text())[AUTOSCALERS]
    added = {**listed[0], "name": ONE_MORE, "target": {"kind": "Deployment", "name": ONE_MORE}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, lab.beside(second_deployment(lab, ONE_MORE)):
        file.write(json.dumps({AUTOSCALERS: [*listed, added]}))
        file.flush()
        try:
            yield Path(file.name)
        finally:
            lab.delete(HPA, ONE_MORE, WORKLOADS)


def measure(inventory: str, playbook: str, *options: str) -> SiteRun:
    """options: what ansible-playbook takes besides."""
    began, cpu = time.monotonic(), _cpu_s()
    done = subprocess.run(
        [Path(sys.prefix) / "bin" / "ansible-playbook", "-i", inventory, playbook, *options],
        cwd=CHECKOUT,
        # A user has no templates that are compiled already.
        env=os.environ | {"ANSIBLE_STDOUT_CALLBACK": CALLBACK, "KUBEGPU_TEMPLATE_BYTECODE": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds, cpu_s = time.monotonic() - began, _cpu_s() - cpu
    if done.returncode:
        sys.exit(f"not measured: {playbook} ended with {done.returncode}: {done.stdout[-3000:]}")
    return summary(json.loads(done.stdout), seconds, cpu_s)


def summary(told: dict[str, Any], seconds: float, cpu_s: float) -> SiteRun:
    """told: what the callback prints."""
    tasks = [task for play in told["plays"] for task in play["tasks"] if task["hosts"]]
    results = [result for task in tasks for result in task["hosts"].values()]
    slowest = sorted(((_seconds(task["task"]), task["task"]["name"]) for task in tasks), reverse=True)
    return SiteRun(
        seconds=round(seconds, 1),
        cpu_s=round(cpu_s, 1),
        tasks=len(tasks),
        includes=sum(bool(result.get("include")) for result in results),
        results=dict(Counter(word for result in results for word in _words(result))),
        slowest=slowest[:SLOWEST],
    )


def ratios(runs: list[SiteRun]) -> dict[str, float]:
    first, last = runs[0], runs[-1]
    return {"seconds": round(last.seconds / first.seconds, 2), "cpu": round(last.cpu_s / first.cpu_s, 2)}


def _words(result: dict[str, Any]) -> Iterator[str]:
    """What became of a task on a host; of a loop, what became of each item."""
    items = result.get("results") or []
    for row in items if items and all(isinstance(item, dict) for item in items) else [result]:
        yield "skipped" if row.get("skipped") else "changed" if row.get("changed") else "ok"


def _seconds(task: dict[str, Any]) -> float:
    begin, end = (datetime.fromisoformat(task["duration"][key]) for key in ("start", "end"))
    return round((end - begin).total_seconds(), 1)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
