"""Shows progress while artifacts are built: each step with its elapsed and expected time."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from doit.reporter import ConsoleReporter
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from lab.artifacts import CACHE, Artifact

SECONDS = CACHE / "seconds.json"
LAST_LINES = 25
# Without a terminal, running steps print a line at this interval, in seconds.
HEARTBEAT_S = 60
# Messages of Go, apt and pip about servers that did not answer.
UNREACHABLE = re.compile(
    r"dial tcp|i/o timeout|TLS handshake|no such host|connection (refused|reset|timed out)|50[234] |unable to connect|"
    r"could not (resolve|connect)|temporary failure|failed to fetch|max retries exceeded",
    re.IGNORECASE,
)


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def doing(log: Path) -> str:
    """Progress of a step by its log: `go build -v` writes a line per package, and one per download."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    packages = sum(" " not in line for line in lines)
    downloads = sum(line.startswith("go: downloading") for line in lines)
    if packages:
        return f"{packages} packages compiled"
    return f"{downloads} modules downloaded" if downloads else ""


class Doing(ProgressColumn):
    """The same beside the bar."""

    max_refresh = 1.0

    def render(self, task: Task) -> Text:
        return Text(doing(task.fields["log"]))


def next_steps(lines: Iterable[str]) -> list[str]:
    """The next step after a failure, from the end of its log: one sentence about network problems."""
    if not any(UNREACHABLE.search(line) for line in lines):
        return []
    return [
        "the network: a source did not answer; what is built stays, so run it again, "
        "or name another by LAB_DEBIAN_MIRROR, GOPROXY or PIP_INDEX_URL"
    ]


class BuildReporter(ConsoleReporter):  # type: ignore[misc] # doit has no types
    """A doit reporter. `artifacts` by name must be set on a subclass: doit makes the instance."""

    desc = "elapsed and expected time of each artifact"
    artifacts: dict[str, Artifact]

    def __init__(self, outstream: Any, options: dict[str, Any]) -> None:
        super().__init__(outstream, options)
        self.console = Console(file=outstream)
        bar = (
            TextColumn("  {task.description:28}"),
            BarColumn(30),
            TimeElapsedColumn(),
            TextColumn("of about {task.fields[expected]}"),
            Doing(),
        )
        self.live = Progress(*bar, console=self.console, transient=True)
        self.measured: dict[str, float] = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
        self.running: dict[str, tuple[float, TaskID]] = {}
        self.done = 0
        self.ended = threading.Event()

    def initialize(self, tasks: Any, selected_tasks: Any) -> None:
        if self.console.is_terminal:
            self.live.start()
        else:
            threading.Thread(target=self.beat, daemon=True).start()

    def beat(self) -> None:
        while not self.ended.wait(HEARTBEAT_S):
            for line in self.still_running():
                self.console.print(line, highlight=False, markup=False)

    def still_running(self) -> list[str]:
        lines = []
        for task, (started, _) in list(self.running.items()):
            name = task.partition(":")[2]
            so_far = doing(self.artifacts[name].log)
            lines.append(f"  still building {name} after {clock(time.monotonic() - started)}{so_far and ', '}{so_far}")
        return lines

    def execute_task(self, task: Any) -> None:
        if not task.actions:
            return
        expected = self.expected(task)
        log = self.artifacts[self.name(task)].log
        shown = self.live.add_task(self.name(task), total=None, expected=clock(expected), log=log)
        self.running[task.name] = (time.monotonic(), shown)
        if not self.console.is_terminal:
            self.console.print(f"  building {self.name(task)}, about {clock(expected)}", highlight=False)

    def add_success(self, task: Any) -> None:
        if not task.actions:
            return
        seconds = self.finish(task)
        self.done += 1
        self.measured[self.name(task)] = round(seconds, 1)
        SECONDS.write_text(json.dumps(self.measured, indent=1))
        self.console.print(
            f"  [{self.done}/{len(self.artifacts)}] {self.name(task)} built in {clock(seconds)}",
            highlight=False,
            markup=False,
        )

    def add_failure(self, task: Any, fail: Any) -> None:
        if task.name not in self.running:
            return  # not run, because a dependency failed
        seconds = self.finish(task)
        log = self.artifacts[self.name(task)].log
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.exists() else []
        reason = str(fail.get_msg()).strip().splitlines()[-1:]
        report = [
            f"{self.name(task)} failed after {clock(seconds)}: {''.join(reason)}",
            *(f"    {line}" for line in lines),
            f"  the whole log: {log}",
            *(f"  {step}" for step in next_steps(lines)),
        ]
        self.console.print("\n".join(report), highlight=False, markup=False)

    def complete_run(self) -> None:
        self.ended.set()
        self.live.stop()

    def finish(self, task: Any) -> float:
        started, shown = self.running.pop(task.name)
        self.live.remove_task(shown)
        return time.monotonic() - started

    def expected(self, task: Any) -> float:
        return self.measured.get(self.name(task), self.artifacts[self.name(task)].expected)

    @staticmethod
    def name(task: Any) -> str:
        return task.name.partition(":")[2]
