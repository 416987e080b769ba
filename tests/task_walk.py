"""Tasks of playbooks and roles with all that they include, as far as files tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from collection import ROOT

OURS = "kubegpu.autoscale."
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
ROLES = sorted(path.parent.name for path in (ROOT / "roles").glob("*/tasks"))
_ROLE = ("ansible.builtin.include_role", "ansible.builtin.import_role")
_FILE = ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks")
_PARTS = ("block", "rescue", "always")
Task = Mapping[str, Any]
# Roles that an include takes from a variable are those that have the file.
_ANY = "{{"


@dataclass(frozen=True)
class Step:
    """A task, and what leads to it, the outermost first: files, with the tasks before it in each and their role."""

    task: Task
    role: str
    trail: tuple[tuple[Path | None, tuple[Task, ...], str], ...]

    @property
    def before(self) -> Iterator[tuple[Task, str]]:
        """Tasks before it, with their role. Those of a main.yml are phases of a role, and exclude each other."""
        for path, tasks, role in self.trail:
            if path is None or path.name != "main.yml":
                yield from ((task, role) for task in tasks)

    def is_after(self, path: Path) -> bool:
        """Whether a task before it is of this file, or includes it."""
        return any(path in files(task, role) for task, role in self.before)


@cache
def read(path: Path) -> tuple[Task, ...]:
    return tuple(yaml.safe_load(path.read_text()) or ())


def role_file(role: str, name: str) -> Path:
    return ROOT / "roles" / role.removeprefix(OURS) / "tasks" / f"{name.removesuffix('.yml')}.yml"


TURN = role_file("_common", "turn")


def included(task: Task, role: str) -> list[tuple[Path, str]]:
    """Files that the task includes itself, with their roles."""
    for module in _ROLE:
        if module in task:
            given = task[module]
            if turn := task.get("vars", {}).get("_common_turn"):  # what _common's turn.yml includes, and that file
                return [(TURN, "_common"), *included({module: turn}, role)]
            name, file = given["name"], given.get("tasks_from", "main")
            names = [name] if _ANY not in name else [other for other in ROLES if role_file(other, file).is_file()]
            return [
                (role_file(name, file), name.removeprefix(OURS)) for name in names if role_file(name, file).is_file()
            ]
    for module in _FILE:
        if module in task:
            given = task[module]
            named = given["file"] if isinstance(given, dict) else given
            return [(role_file(role, name), role) for name in re.findall(r"[\w/]+[.]yml", named)]
    return []


def files(task: Task, role: str, seen: frozenset[Path] = frozenset()) -> set[Path]:
    """All files that the task leads to, not by the main.yml of a role: which phase of it runs is another question."""
    found: set[Path] = set()
    for path, other in included(task, role):
        if path not in seen:
            found |= {path}
            for inner in read(path) if path.name != "main.yml" else ():
                found |= files(inner, other, seen | found)
    for part in _PARTS:
        for inner in task.get(part, ()):
            found |= files(inner, role, seen | found)
    return found


def including(wanted: Path, tasks: Sequence[Task], role: str) -> Iterator[Task]:
    """The tasks below these that include the file themselves."""
    for task in tasks:
        for part in _PARTS:
            yield from including(wanted, task.get(part, ()), role)
        for path, other in included(task, role):
            if path == wanted:
                yield task
            else:
                yield from including(wanted, read(path), other)


def walk(
    tasks: Sequence[Task],
    role: str = "",
    path: Path | None = None,
    trail: tuple[tuple[Path | None, tuple[Task, ...], str], ...] = (),
) -> Iterator[Step]:
    """Each task that is no include and no block. A file that leads to itself is followed once."""
    for number, task in enumerate(tasks):
        here = (*trail, (path, tuple(tasks[:number]), role))
        parts = [task[part] for part in _PARTS if part in task]
        leads = included(task, role)
        for part in parts:
            yield from walk(part, role, path, here)
        for file, other in leads:
            if file not in [known for known, _tasks, _role in here]:
                yield from walk(read(file), other, file, here)
        if not parts and not leads:
            yield Step(task, role, here)


def walk_role(role: str, name: str = "main") -> Iterator[Step]:
    path = role_file(role, name)
    return walk(read(path), role, path)


def plays(playbook: Path) -> list[tuple[str, tuple[Task, ...]]]:
    """Hosts of each play, and its tasks with its roles as tasks."""
    found = []
    for play in read(playbook):
        roles = [row if isinstance(row, dict) else {"role": row} for row in play.get("roles", ())]
        as_tasks = [{"ansible.builtin.include_role": {"name": row["role"]}} for row in roles]
        parts = (play.get("pre_tasks", ()), as_tasks, play.get("tasks", ()), play.get("post_tasks", ()))
        if "hosts" in play:
            found.append((play["hosts"], tuple(task for part in parts for task in part)))
    return found


def walk_playbook(playbook: Path, *, remembers: bool = True) -> Iterator[tuple[str, Step]]:
    """With the hosts of the play. remembers: whether what earlier plays have done counts as done."""
    done: tuple[Task, ...] = ()
    for hosts, tasks in plays(playbook):
        for step in walk(tasks, trail=((None, done, ""),)):
            yield hosts, step
        done += tasks if remembers else ()
