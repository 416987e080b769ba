"""Every task that the playbooks reach through roles and files, with the keywords that it inherits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from collection import ROOT
from task_walk import read

OURS = "kubegpu.autoscale."
SERVER_ROLES = ["containerd", "kubernetes", "nvidia_container_toolkit", "nvidia_driver"]
# Roles that an include takes from a variable.
LOOPS = {
    "{{ _common_roles }}": SERVER_ROLES,
    "{{ __gpu_doctor_roles }}": SERVER_ROLES,
    "{{ __gitops_roles }}": yaml.safe_load((ROOT / "roles/gitops/defaults/main.yml").read_text())["gitops_roles"],
}
PARTS = ("block", "rescue", "always", "pre_tasks", "tasks", "post_tasks")
ROLES = ("ansible.builtin.include_role", "ansible.builtin.import_role")
FILES = ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks")
INHERITED = ("any_errors_fatal", "connection", "delegate_to", "hosts", "ignore_unreachable", "run_once")


@dataclass(frozen=True)
class Reached:
    """playbook: where the walk began. keywords: those of INHERITED, with what plays, blocks and includes give."""

    playbook: str
    path: Path
    task: Mapping[str, Any]
    keywords: Mapping[str, Any]

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(ROOT)}: {self.task.get('name')}"

    @property
    def is_on_controller(self) -> bool:
        return "localhost" in (self.keywords.get("delegate_to"), self.keywords["hosts"])


@cache
def reached(playbook: Path) -> tuple[Reached, ...]:
    """The tasks of one playbook. A file that is entered with the same keywords again is walked once."""
    return tuple(_walked(playbook))


def _walked(playbook: Path) -> Iterator[Reached]:
    seen: set[str] = set()

    def file(path: Path, keywords: Mapping[str, Any]) -> Iterator[Reached]:
        key = f"{path} {sorted(keywords.items())}"
        if key not in seen:
            seen.add(key)
            yield from tasks(path, read(path), keywords)

    def tasks(path: Path, entries: Sequence[Mapping[str, Any]], outer: Mapping[str, Any]) -> Iterator[Reached]:
        for entry in entries:
            keywords = {**outer, **{name: entry[name] for name in INHERITED if name in entry}}
            if "hosts" not in entry and not set(PARTS) & entry.keys():
                yield Reached(playbook.stem, path, entry, keywords)
            for part in PARTS:
                yield from tasks(path, entry.get(part) or [], keywords)
            for target, applied in _targets(path, entry):
                yield from file(target, {**keywords, **{name: applied[name] for name in INHERITED if name in applied}})

    yield from file(playbook, {})


def _targets(path: Path, entry: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Files that a play or a task leads to, and the keywords that an include applies."""
    if "ansible.builtin.import_playbook" in entry:
        yield path.parent / entry["ansible.builtin.import_playbook"], {}
    for role in entry.get("roles") or []:
        yield from _files_of(role if isinstance(role, str) else role["role"], "main", {})
    for word in ROLES:
        if word in entry:
            include = entry[word]
            if turn := entry.get("vars", {}).get("_common_turn"):
                yield from _files_of(turn["name"], turn.get("tasks_from", "main"), {})
            for role in _names(entry, include["name"]):
                yield from _files_of(role, include.get("tasks_from", "main"), include.get("apply") or {})
    for word in FILES:
        if word in entry:
            include = entry[word] if isinstance(entry[word], dict) else {"file": entry[word]}
            found = path.parent / include["file"]
            named = [found] if found.is_file() else sorted(path.parent.glob("*.yml"))
            yield from ((target, include.get("apply") or {}) for target in named)


def _names(entry: Mapping[str, Any], role: str) -> list[str]:
    if "{{" not in role:
        return [role]
    if "_common_turn" in role:  # followed where it is given
        return []
    return entry["loop"] if isinstance(entry["loop"], list) else LOOPS[entry["loop"]]


def _files_of(role: str, name: str, applied: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    path = ROOT / "roles" / role.removeprefix(OURS) / "tasks" / f"{name.removesuffix('.yml')}.yml"
    if path.is_file():
        yield path, applied
