"""What takes nodes, data and releases away is behind the confirmation: of all roles and playbooks, by their tasks."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from collection import ROOT
from task_walk import PLAYBOOKS, ROLES, Step, role_file, walk_playbook, walk_role

CONFIRM = role_file("_common", "confirm")
COMMANDS = re.compile(
    r"kubeadm reset|\bkubectl\b.*\bdelete node|'kubectl'.*'delete', 'node'|'restore-(?:prepare|stop|swap)'"
)
# Modules and actions that change nothing, with what ends in _info.
READS = {
    *("assert", "debug", "fail", "find", "include_vars", "meta", "pause", "ping", "set_fact", "slurp", "stat"),
    *("wait_for_connection", "plan", "cluster_identity", "gpu_facts", "gather_facts", "setup", "async_status"),
}
TABLE = yaml.safe_load((ROOT / "roles/_common/vars/main.yml").read_text())["_common_removals"]


def options(role: str) -> dict[str, Any]:
    path = ROOT / "roles" / role / "meta" / "argument_specs.yml"
    found: dict[str, Any] = yaml.safe_load(path.read_text())["argument_specs"].get("main", {}).get("options", {})
    return found


# Each role with an option that may be `absent`.
REMOVING = sorted(role for role in ROLES if any("absent" in row.get("choices", ()) for row in options(role).values()))


def module_of(step: Step) -> tuple[str, Any]:
    [(name, given)] = [
        (key, value) for key, value in step.task.items() if re.fullmatch(r"[a-z_]+\.[a-z_]+\.[a-z0-9_]+", key)
    ]
    return name, given


def takes_away(step: Step) -> bool:
    """A node, a release, or packages with the containers that run by them, and data of etcd."""
    name, given = module_of(step)
    if step.task.get("check_mode") is True:
        return False
    match name.rpartition(".")[2]:
        case "chart_release" | "apt" | "helm":
            return "absent" in str(given.get("state", ""))
        case "command" | "shell":
            return bool(COMMANDS.search(str(given)))
        case "uri":
            return "member/remove" in given["url"]
        case "k8s":
            return given.get("kind") in ("Node", "PersistentVolumeClaim") and given.get("state") == "absent"
        case "objects":
            return "crd_group" in given
    return False


def changes(step: Step) -> bool:
    name, given = module_of(step)
    short = name.rpartition(".")[2]
    reads = short in READS or short.endswith("_info") or step.task.get("check_mode") is True
    if short == "uri":
        return given.get("method", "GET") != "GET" and "member/remove" in given["url"]
    return not reads and step.task.get("changed_when") is not False


def entry(role: str) -> str:
    """Where a removal begins: other phases of the role are of another state."""
    return "absent" if role_file(role, "absent").is_file() else "main"


@pytest.mark.parametrize("role", REMOVING)
def test_each_role_that_takes_something_away_is_in_the_table(role: str) -> None:
    """And no other: the rule is there once."""
    taken = [step.task["name"] for step in walk_role(role, entry(role)) if takes_away(step)]
    assert bool(taken) == (role in TABLE), taken


def test_the_table_names_roles_that_remove() -> None:
    assert {*TABLE} <= {*REMOVING}
    assert len(REMOVING) >= 18


@pytest.mark.parametrize("role", sorted(TABLE))
def test_nothing_changes_before_a_removal_is_confirmed(role: str) -> None:
    early = [step.task["name"] for step in walk_role(role, entry(role)) if changes(step) and not behind(step)]
    assert early == []


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_no_playbook_takes_away_what_is_not_confirmed(playbook: Any) -> None:
    early = {step.task["name"] for _hosts, step in walk_playbook(playbook) if takes_away(step) and not behind(step)}
    assert early == set()


def behind(step: Step) -> bool:
    return step.is_after(CONFIRM) or any(path == CONFIRM for path, _tasks, _role in step.trail)
