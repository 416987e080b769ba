"""`make test` says at its end which step failed and why, and runs the others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import lanes
import pytest

MAKE = """#!/bin/sh
echo "$2" >>{ran}
cat /proc/$$/cgroup >>{ran}.groups
cat /sys/fs/cgroup/cpu/kubegpu-test/cpu.shares >>{ran}.shares 2>/dev/null
[ "$2" != broken ] || {{ printf '  \033[2m\033[32m│\033[0m \033[31mFAILED\033[0m %s\n' \
    "tests/test_a.py::test_b - assert 1 == 2"; exit 1; }}
[ "$2" != site ] || {{ printf '  │ %s\n' "TASK [a : Pass] *****" "ok: [n]" "TASK [a : Stop] ****" \
    "FAILED - RETRYING: [n]: Stop (1 retries left)." \
    "fatal: [n]: FAILED! => " "    msg: no disk" "" "PLAY RECAP **" "n : ok=1"; exit 2; }}
echo "=== 3 passed, 1 skipped in 4.56s ==="
"""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in for make writes what it was asked for."""
    make, ran = tmp_path / "make", tmp_path / "ran"
    make.write_text(MAKE.format(ran=ran))
    make.chmod(0o755)
    monkeypatch.setenv("MAKE", str(make))
    monkeypatch.setattr(lanes, "LOGS", tmp_path / "logs")
    return ran


def run(monkeypatch: pytest.MonkeyPatch, *steps: str) -> int:
    monkeypatch.setattr(lanes, "STEPS", tuple(((step,),) for step in steps))
    return lanes.main()


def test_a_run_that_passes(ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "one", "two", "three") == 0
    assert sorted(ran.read_text().split()) == ["one", "three", "two"]
    printed = capsys.readouterr().out
    assert re.search(r"one: passed after \d+:\d\d \(\d+:\d\d of processor\), 3 passed, 1 skipped", printed)
    assert re.fullmatch(r"make test: passed after \d+:\d\d", printed.splitlines()[-1])


def test_what_a_step_leaves_out_is_another() -> None:
    words = {word for row in lanes.STEPS for step in row for word in step}
    left = {word.partition("=")[2] for word in words if word.startswith("WITHOUT=")}
    assert left
    assert {f"ARGS=tests/{folder}" for folder in left} <= words


def test_what_is_in_one_row_is_run_one_after_the_other(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "STEPS", ((("first",), ("broken",), ("last",)),))
    assert lanes.main() == 1
    assert ran.read_text().split() == ["first", "broken", "last"]


def test_a_failure_is_shown_and_the_others_run(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "broken", "broken", "other", "another") == 1
    assert sorted(ran.read_text().split()) == ["another", "broken", "broken", "other"]
    printed = capsys.readouterr().out
    assert "\nFAILED tests/test_a.py::test_b - assert 1 == 2\n" in printed
    assert re.fullmatch(r"make test: FAILED after \d+:\d\d: broken, broken", printed.splitlines()[-1])


def test_of_a_playbook_the_task_that_failed_is_shown_last(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "site") == 1
    printed = capsys.readouterr().out.splitlines()
    (decided,) = (number for number, line in enumerate(printed) if line.startswith("--- what decided"))
    assert printed[decided + 1 : -2] == ["TASK [a : Stop]", "fatal: [n]: FAILED! => ", "    msg: no disk"]
    assert re.fullmatch(r"make test: FAILED after \d+:\d\d: site", printed[-1])


def test_a_machine_without_control_groups_runs_all(ran: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As macOS, which has none."""
    monkeypatch.setattr(lanes, "OWN_GROUPS", tmp_path / "gone")
    assert run(monkeypatch, "one", "two") == 0
    assert sorted(ran.read_text().split()) == ["one", "two"]


@pytest.mark.skipif(not os.access(lanes.CPU_GROUPS / "cgroup.procs", os.W_OK), reason="no cgroup v1 to write to")
def test_all_steps_are_weighed_as_one_and_less_than_labs(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path("/proc/self/cgroup").read_text()
    assert run(monkeypatch, "one", "two") == 0
    of_steps = [line for line in Path(f"{ran}.groups").read_text().splitlines() if re.search(r":cpu[:,]", line)]
    assert len(of_steps) == 2
    assert of_steps[0] == of_steps[1]
    assert not of_steps[0].endswith(":/")
    # From a group of somebody else's it is not taken out.
    if re.search(r"^\d+:cpu(,cpuacct)?:/(kubegpu-test)?$", before, re.MULTILINE):
        assert Path(f"{ran}.shares").read_text().split() == ["512", "512"]
    assert Path("/proc/self/cgroup").read_text() == before
