"""Runs ansible-lint on this checkout, without its repeated work.

It starts ansible-playbook for a syntax check of each playbook and role, fifty times two seconds of a processor: here
one run checks all. Only where that fails are they checked one by one, so that a report is what ansible-lint always
reports. It reads a task anew for each rule: here once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, MutableMapping
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import yaml
from ansiblelint import file_utils
from ansiblelint.__main__ import main
from ansiblelint.errors import MatchError
from ansiblelint.file_utils import Lintable
from ansiblelint.runner import Runner
from ansiblelint.utils import Task

Matches = list[MatchError]
check_one_by_one = Runner._map_syntax_check_workers
normalize_task = Task._normalize_task
# By identity: a task, which has to stay for that, and what ansible-lint makes of it.
normalized: dict[int, tuple[object, MutableMapping[str, Any]]] = {}


def check_at_once(runner: Runner, check_one: Callable[[Lintable], Matches], files: list[Lintable]) -> list[Matches]:
    """files: playbooks and roles found by ansible-lint."""
    playbooks = [str(file.path) for file in files if file.kind == "playbook"]
    roles = [
        {"hosts": "localhost", "tasks": [{"ansible.builtin.import_role": {"name": str(file.path)}}]}
        for file in files
        if file.kind == "role"
    ]
    with NamedTemporaryFile("w", suffix=".yml") as plays:
        yaml.safe_dump(roles, plays)
        plays.flush()
        done = subprocess.run(
            ["ansible-playbook", "--syntax-check", *playbooks, *([plays.name] if roles else [])],
            env=runner.app.runtime.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    if done.returncode:
        return check_one_by_one(runner, check_one, files)
    checked, ask = {Path(name).resolve() for name in playbooks}, runner.app.runtime.has_playbook
    runner.app.runtime.has_playbook = lambda name, **more: Path(name).resolve() in checked or ask(name, **more)
    return []


def normalize_once(task: Task) -> MutableMapping[str, Any]:
    """A copy for each rule, because rules modify it."""
    raw = task.raw_task
    if id(raw) not in normalized:
        normalized[id(raw)] = raw, normalize_task(task)
    return {**normalized[id(raw)][1]}


if __name__ == "__main__":
    Runner._map_syntax_check_workers = check_at_once
    Task._normalize_task = normalize_once
    file_utils.kind_from_path = cache(file_utils.kind_from_path)
    sys.exit(main(["ansible-lint", *sys.argv[1:]]))
