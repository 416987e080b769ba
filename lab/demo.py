"""`make demo`: says what it will do, runs its steps as targets of the Makefile, and says how long each took.

The Makefile runs it with the machine's Python, before .venv exists, so it only uses the standard library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# Of the last run, by target: build is ignored by git.
SECONDS = Path("build") / "demo" / "seconds.json"
LOG = Path("build") / "ansible.log"  # of ansible.cfg


@dataclass(frozen=True)
class Step:
    """A target of the Makefile."""

    target: str
    title: str
    does: str


FIRST = (
    Step("lab-up", "lab servers", "containers with simulated or real GPUs; the first time it compiles Kubernetes"),
    Step("demo-site", "site", "driver, container runtime, kubeadm, device plugin, exporter, Prometheus, HPA, proof"),
    Step("demo-load", "load step", "0.15 to 2.75 GPUs of requests"),
)
SECOND = {
    "": Step("demo-demand", "with a demand", "down, then the same step with a demand and a table of both"),
    "keda": Step(
        "demo-adapter", "other backend", "prometheus-adapter under load, then the same step and a table of both"
    ),
}


def first_screen(steps: tuple[Step, ...], measured: dict[str, float]) -> list[str]:
    """measured: seconds of the last run, by target."""
    rows = [
        f"  {number}  {step.title:14} {last(step, measured):>6}  {step.does}" for number, step in enumerate(steps, 1)
    ]
    took = f"The last run took {clock(sum(measured.values()))}, by step as above." if measured else ""
    first = "The first run takes some 13 minutes on two cores, because it compiles the lab's programs."
    return [
        "make demo: from bare lab servers to a workload that scales on its GPUs, on this machine",
        "",
        *rows,
        "",
        took or first,
        f"Ansible prints a line for each play and each change. The whole output is in {LOG}",
    ]


def last(step: Step, measured: dict[str, float]) -> str:
    return clock(measured[step.target]) if step.target in measured else ""


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def run(steps: tuple[Step, ...]) -> dict[str, float]:
    """Seconds of each step. Ends the program with the status of the first step that fails."""
    measured = {}
    for number, step in enumerate(steps, 1):
        place = f"[{number}/{len(steps)}] {step.title}"
        print(f"\n{place}: {step.does}", flush=True)
        began = time.monotonic()
        status = subprocess.run([os.environ.get("MAKE", "make"), "--no-print-directory", step.target]).returncode
        measured[step.target] = round(time.monotonic() - began, 1)
        if status:
            print(f"{place}: failed after {clock(measured[step.target])}. Log: {LOG}. Next: make {step.target}")
            sys.exit(status)
        print(f"{place}: {clock(measured[step.target])}", flush=True)
    return measured


def main() -> None:
    steps = (*FIRST, SECOND[sys.argv[1] if sys.argv[1:] == ["keda"] else ""])
    known = {step.target for step in steps}
    earlier = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
    print("\n".join(first_screen(steps, earlier if earlier.keys() == known else {})), flush=True)
    measured = run(steps)
    SECONDS.parent.mkdir(parents=True, exist_ok=True)
    SECONDS.write_text(json.dumps(measured))
    took = ", ".join(f"{step.title} {clock(measured[step.target])}" for step in steps)
    print(f"\nmake demo took {clock(sum(measured.values()))}: {took}")
    print("The lab still runs. kubeconfig: inventories/lab/.kubegpu/kubeconfig. `make lab-down` removes the lab")


if __name__ == "__main__":
    main()
