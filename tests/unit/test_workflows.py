"""What GitHub runs: each test of the Makefile, at each proposal or by schedule."""

from __future__ import annotations

import re

import yaml
from collection import ROOT

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


def makefile() -> str:
    return (ROOT / "Makefile").read_text()
