"""What GitHub runs: each test of the Makefile, at each proposal or by schedule."""

from __future__ import annotations

import re

import yaml
from collection import ROOT

from lab.vm.__main__ import PROGRAMS

WORKFLOWS = ROOT / ".github" / "workflows"
# Part of `make test`.
IN_TEST = {"test-env"}


def commands() -> str:
    return "\n".join(path.read_text() for path in WORKFLOWS.glob("*.yml"))


def test_each_test_of_the_makefile_is_run_by_github() -> None:
    targets = set(
        re.findall(
            r"^(test[a-z-]*|demo|loadtest|faults|gates-all|mutants|pins-check|charts-check):", makefile(), re.MULTILINE
        )
    )
    run = set(re.findall(r"[\w-]+", "\n".join(re.findall(r"\bmake (.+)$", commands(), re.MULTILINE))))
    assert targets - IN_TEST - run == set()


def test_the_systems_of_the_labs_are_all_run_by_github() -> None:
    [written] = re.findall(r"^SYSTEMS \?= (.+)$", makefile(), re.MULTILINE)
    entries = yaml.safe_load((WORKFLOWS / "weekly.yml").read_text())["jobs"]["lab"]["strategy"]["matrix"]["run"]
    for target in ("test-systems", "test-first-runs"):
        run = " ".join(entry for entry in entries if target in entry)
        assert [system for system in written.split() if system not in run] == []


def test_a_runner_gets_what_boots_a_virtual_machine() -> None:
    steps = yaml.safe_load((WORKFLOWS / "weekly.yml").read_text())["jobs"]["lab"]["steps"]
    [installed] = [step["run"] for step in steps if step.get("if") == "matrix.run == 'make test-vm'"]
    assert set(PROGRAMS.values()) <= set(installed.split())


def makefile() -> str:
    return (ROOT / "Makefile").read_text()
