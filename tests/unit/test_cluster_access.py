"""No task of a role reaches a cluster that the inventory does not name.

A module that is given no kubeconfig takes the one of the user, ~/.kube/config.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import ROOT

GROUP = "kubegpu.autoscale.cluster"
OURS = "kubegpu.autoscale."
INCLUDES = ("ansible.builtin.include_role", "ansible.builtin.import_role")
FILES = ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks")
GROUPS = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["action_groups"]
TALK = {f"{OURS}{name}" for name in GROUPS["all"]} | {name for name in GROUPS["cluster"] if isinstance(name, str)}
CORE = "kubernetes.core."
# It fetches a chart, and needs no cluster.
HELM_PULL = f"{CORE}helm_pull"
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
# Roles that an include takes from a variable: those of servers, and those that a folder for GitOps has.
SERVER_ROLES = ["containerd", "kubernetes", "nvidia_container_toolkit", "nvidia_driver"]
LOOPS = {
    "{{ _common_roles }}": SERVER_ROLES,
    "{{ __gpu_doctor_roles }}": SERVER_ROLES,
    "{{ __gitops_roles }}": yaml.safe_load((ROOT / "roles/gitops/defaults/main.yml").read_text())["gitops_roles"],
}
# An option with which a module asks no cluster.
OFFLINE = {"kubegpu.autoscale.cluster_identity": "objects"}
# A file of tasks, and whether those who enter it have the defaults of the group.
Entry = tuple[Path, bool]


def read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(path.read_text()) or []
    return found


def roles() -> list[str]:
    return sorted(path.name for path in (ROOT / "roles").iterdir())


def tasks_of(role: str, name: str) -> list[Path]:
    path = ROOT / "roles" / role.removeprefix(OURS) / "tasks" / f"{name.removesuffix('.yml')}.yml"
    return [path] if path.is_file() else []


def named(task: dict[str, Any], role: str) -> list[str]:
    """The roles that an include names, one for each turn of its loop."""
    if "{{" not in role:
        return [role]
    looped = task["loop"] if isinstance(task["loop"], list) else LOOPS[task["loop"]]
    return [f"{OURS}{name}" for name in looped]


def is_given(task: dict[str, Any]) -> bool:
    """By the task's own keyword, which the tasks of a block inherit, and those of a dynamic include do not."""
    return has_group(task.get("module_defaults"))


def is_applied(task: dict[str, Any]) -> bool:
    included = next((task[word] for word in INCLUDES + FILES if word in task), None)
    return isinstance(included, dict) and has_group((included.get("apply") or {}).get("module_defaults"))


def has_group(defaults: dict[str, Any] | None) -> bool:
    return f"group/{GROUP}" in (defaults or {})


class Walk:
    """All tasks that entries lead to, each with whether it has the defaults of the group."""

    def __init__(self) -> None:
        self.seen: set[Entry] = set()
        self.bare: set[str] = set()
        self.reached: set[str] = set()

    def file(self, path: Path, given: bool) -> None:
        if (path, given) not in self.seen:
            self.seen.add((path, given))
            self.tasks(path, read(path), given)

    def tasks(self, path: Path, tasks: list[dict[str, Any]], given: bool) -> None:
        for task in tasks:
            inner = given or is_given(task)
            self.task(path, task, inner, included=given or is_applied(task))
            for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
                self.tasks(path, task.get(part) or [], inner)

    def task(self, path: Path, task: dict[str, Any], given: bool, included: bool) -> None:
        for target in (*included_roles(task), *included_files(path, task)):
            self.file(target, included)
        for module in TALK & task.keys():
            if OFFLINE.get(module) in task[module]:
                continue
            where = f"{path.relative_to(ROOT)}: {task['name']}"
            self.reached.add(where)
            if not given and "kubeconfig" not in task[module]:
                self.bare.add(where)


def included_roles(task: dict[str, Any]) -> Iterator[Path]:
    if turn := task.get("vars", {}).get("_common_turn"):  # the role that _common's turn.yml includes
        yield from tasks_of(turn["name"], turn.get("tasks_from", "main"))
    for word in INCLUDES:
        if word in task and "_common_turn" not in task[word]["name"]:
            for role in named(task, task[word]["name"]):
                yield from tasks_of(role, task[word].get("tasks_from", "main"))


def included_files(path: Path, task: dict[str, Any]) -> Iterator[Path]:
    for word in FILES:
        if word in task:
            named = task[word] if isinstance(task[word], str) else task[word]["file"]
            found = path.parent / named
            yield from [found] if found.is_file() else path.parent.glob("*.yml") if "{{" in named else []


@pytest.fixture(scope="module")
def walk() -> Walk:
    """From the playbooks, and from each role as a user's play includes it."""
    walk = Walk()
    for role in roles():
        for path in tasks_of(role, "main"):
            walk.file(path, given=False)
    for path in PLAYBOOKS:
        walk.file(path, given=False)
    return walk


def test_each_task_that_talks_to_a_cluster_is_told_which(walk: Walk) -> None:
    assert sorted(walk.bare) == []


def test_each_task_file_is_walked(walk: Walk) -> None:
    """A file that no entry leads to would be judged by nobody."""
    files = {path for path in (ROOT / "roles").glob("*/tasks/*.yml") if set(text_of(path)) & TALK}
    assert sorted(str(path.relative_to(ROOT)) for path in files - {path for path, _given in walk.seen}) == []
    assert len(walk.reached) > 60


def text_of(path: Path) -> list[str]:
    """What precedes the colon of each line, such as a module before an anchor."""
    return [line.strip().partition(":")[0] for line in path.read_text().splitlines()]


def test_the_group_has_what_the_roles_use_of_kubernetes_core() -> None:
    used = {line for path in (ROOT / "roles").glob("*/tasks/*.yml") for line in text_of(path)}
    talking = {name for name in used if name.startswith(CORE)} - {HELM_PULL}
    assert talking == {name for name in TALK if name.startswith(CORE)}
