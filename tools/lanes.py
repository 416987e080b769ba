"""`make test`: runs its steps in three parallel lanes, because each waits for others half of its time.

A free lane takes the next step. Each step prints a line with its processor time, without the lab's servers; each
has a log in build/test. The others continue if a step fails. The end of its log, the failures and a verdict are
printed last, because CI may keep only the end of the output.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LOGS = Path("build/test")
# Targets in their order: those that wait longest first, so that the lanes end at about the same time. One lane runs
# what is in one row: the servers of a lab use half a core for as long as they exist, also while their lane waits for
# its turn, so there is one lab at a time. A fourth lane made all of it slower.
STEPS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("molecule", "SCENARIO=default"), ("molecule", "SCENARIO=nodes")),
    (("integration",),),
    (("WITHOUT=roles", "unit"),),
    (("unit", "ARGS=tests/roles"),),  # a third of what unit would take: by itself, the last lane is not alone
    (("gates",),),
    (("lint-lab",),),
    (("lint",),),
)
# Of each lane. The kernel gives them 1024, 335 and 110 parts. The first makes a cluster and then mostly waits, so it is
# to be made soon.
NICENESS = (0, 5, 10)
# What the group of all steps weighs. The one of the labs' servers weighs 1024: an HPA on a lab that starves asks for
# one replica too many.
SHARES = 512
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")  # of cgroup v1; a newer one has no such folder
OWN_GROUPS = Path("/proc/self/cgroup")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
BORDER = re.compile(r"^ *│ ?", re.MULTILINE)  # drawn by molecule around the output of its steps, in a separate color
COUNTS = re.compile(r"^=* ?(\d+ (?:passed|failed).*?)(?: in [\d.:]+s?.*)?$", re.MULTILINE)
# Ansible names the task above what failed, and writes the result below it, indented.
DECIDES = re.compile(
    r"^(?P<task>(?:TASK|RUNNING HANDLER) \[.*?\])[ *]*$"
    r"|^(?P<decides>(?:fatal|failed): .*(?:\n {2,}.*){0,12}|(?:FAILED(?! - RETRYING)|ERROR|E  |CRITICAL).*)",
    re.MULTILINE,
)
DECIDING, WIDTH, LAST = 40, 300, 60  # lines of each that are shown, and characters of a line that decides


@dataclass(frozen=True)
class Ended:
    """A finished step."""

    name: str
    passed: bool
    log: Path

    def text(self) -> str:
        return BORDER.sub("", COLOURS.sub("", self.log.read_text(errors="replace")))

    def counts(self) -> str:
        """The summaries of pytest, one per run."""
        return ", ".join(COUNTS.findall(self.text()))

    def evidence(self) -> str:
        """The log's last lines, then the failures."""
        return "\n".join([*self.text().splitlines()[-LAST:], f"--- what decided, of {self.log}", *self.decided()])

    def decided(self) -> list[str]:
        """Failed tests and errors; for Ansible the failed task with its result."""
        lines, task = [], ""
        for found in DECIDES.finditer(self.text()):
            if found["task"]:
                task = found["task"]
                continue
            if task and found["decides"].startswith(("fatal:", "failed:")):
                lines.append(task)
                task = ""
            lines += found["decides"].splitlines()
        return [line[:WIDTH] for line in lines[-DECIDING:]]


class Steps:
    """Runs steps, and ends running ones when it is ended."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def lane(self, nicer: int, rows: Iterator[Sequence[tuple[str, ...]]]) -> list[Ended]:
        """Run the next steps until none are left."""
        return [self._run(step, nicer) for row in rows for step in row if not self._stopped]

    def stop(self, *_: object) -> None:
        self._stopped = True
        for process in self._running:
            os.killpg(process.pid, signal.SIGTERM)

    def _run(self, step: tuple[str, ...], nicer: int) -> Ended:
        name = Path(step[-1].rpartition("=")[2]).name
        log = LOGS / f"{name}.log"
        began = time.monotonic()
        _say(f"{name}: begins")
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["nice", "-n", str(nicer), os.environ.get("MAKE", "make"), "--no-print-directory", *step],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Molecule wraps the names of tests at the width.
                env={**os.environ, "MAKEFLAGS": "", "COLUMNS": "240"},
                process_group=0,  # stop() ends it with all that it has started
            )
            self._running.add(process)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self._running.discard(process)
        ended = Ended(name, process.returncode == 0, log)
        after = f"{_clock(time.monotonic() - began)} ({_clock(used.ru_utime + used.ru_stime)} of processor)"
        counts = f", {text}" if (text := ended.counts()) else ""
        _say(f"{name}: {'passed' if ended.passed else 'FAILED'} after {after}{counts}")
        return ended


@contextmanager
def in_one_group() -> Iterator[None]:
    """Have the kernel weigh all steps as one, and the lanes within by their niceness.

    Each worker of Ansible is a session of its own. Processes of no group are weighed by sessions, whatever their
    niceness: a lane with four workers had four times what all servers of the labs had together. Under systemd and
    cgroup v2 processes are in a group already. Without the right to make one it stays as it is.
    """
    group, own = CPU_GROUPS / "kubegpu-test", str(os.getpid())
    ungrouped = None
    with suppress(OSError):  # macOS has no such file
        ungrouped = re.search(r"^\d+:cpu(,cpuacct)?:/$", OWN_GROUPS.read_text(), re.MULTILINE)
        if ungrouped:
            group.mkdir(exist_ok=True)
            (group / "cpu.shares").write_text(str(SHARES))
            (group / "cgroup.procs").write_text(own)
    try:
        yield
    finally:
        with suppress(OSError):  # groups in use by another run stay
            if ungrouped:
                (CPU_GROUPS / "cgroup.procs").write_text(own)
                group.rmdir()


def _say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")  # one write per line: lanes print at the same time
    sys.stdout.flush()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def main() -> int:
    began = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    steps = Steps()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, steps.stop)
    to_come = iter(STEPS)
    with in_one_group(), ThreadPoolExecutor(len(NICENESS)) as lanes:
        ended = [step for lane in lanes.map(steps.lane, NICENESS, [to_come] * len(NICENESS)) for step in lane]
    failed = [step for step in ended if not step.passed]
    for step in failed:
        print(f"\n=== {step.name} failed: {step.log}\n{step.evidence()}")
    left = sum(map(len, STEPS)) - len(ended)
    after = _clock(time.monotonic() - began)
    if failed or left:
        names = ", ".join(step.name for step in failed) or "nothing"
        print(f"\nmake test: FAILED after {after}: {names}{f'; {left} steps not run' if left else ''}")
        return 1
    print(f"\nmake test: passed after {after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
