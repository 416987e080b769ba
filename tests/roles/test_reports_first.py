"""A report is printed before its files are written: their folder may be read-only, or the disk full."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from collection import ROOT
from task_walk import Task, files, read, role_file

FOLDER = role_file("_common", "private_folder")
FILES = sorted((ROOT / "roles").glob("*/tasks/*.yml"))


def flat(tasks: Sequence[Task]) -> Iterator[Task]:
    for task in tasks:
        parts = [task[part] for part in ("block", "rescue", "always") if part in task]
        yield from [task] if not parts else (inner for part in parts for inner in flat(part))


def after_the_files(path: Path) -> list[str]:
    """Tasks that print a report after a task that creates the folder of files."""
    tasks = list(flat(read(path)))
    writes = [number for number, task in enumerate(tasks) if FOLDER in files(task, path.parts[-3])]
    prints = [task for task in tasks[min(writes, default=len(tasks)) :] if "ansible.builtin.debug" in task]
    return [task["name"] for task in prints if re.search(r"_(report|lines)\b", str(task["ansible.builtin.debug"]))]


def test_each_report_precedes_its_files() -> None:
    late = {str(path.relative_to(ROOT)): names for path in FILES if (names := after_the_files(path))}

    assert late == {}


@pytest.mark.parametrize("role", ["gpu_doctor", "gpu_loadtest", "gpu_proof"])
def test_the_roles_with_reports_are_those_that_write_files(role: str) -> None:
    assert any(FOLDER in files(task, role) for path in FILES if path.parts[-3] == role for task in read(path))
