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


def test_what_runs_as_root_knows_where_the_cache_is() -> None:
    lines = [line for line in commands().splitlines() if re.search(r"\bsudo\b.*\b(make|bash)\b", line)]

    assert lines
    assert [line for line in lines if "--preserve-env=CI,XDG_CACHE_HOME" not in line] == []


def test_a_job_with_a_lab_takes_its_cache_from_where_there_is_room() -> None:
    for path in WORKFLOWS.glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            steps = job.get("steps", [])
            as_root = any("sudo --preserve-env" in step.get("run", "") for step in steps)
            cached = any(step.get("uses") == "./.github/actions/lab-cache" for step in steps)
            assert cached == as_root


def test_a_release_is_tested_on_artifacts_of_its_own() -> None:
    jobs = yaml.safe_load((WORKFLOWS / "release.yml").read_text())["jobs"]

    assert jobs["release"]["needs"] == "test"
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert jobs["test"]["with"] == {"cached": False}
    assert "cache" not in "".join(str(step) for step in jobs["release"]["steps"])


def makefile() -> str:
    return (ROOT / "Makefile").read_text()
