"""No task reaches the user's kubeconfig: all use the run's copy of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from collection import ROOT

PUBLIC = re.compile(r"\bkubegpu_(kubeconfig|context)\b")
# Arguments that are only shown.
SHOWN = ("fail_msg", "msg", "name", "success_msg")
# These tasks write the user's file, and decide whether they may.
OF_THE_FILE = {f"roles/kubernetes/tasks/{name}.yml" for name in ("absent", "kubeconfig", "plan")}
FILES = sorted([*(ROOT / "roles").glob("*/tasks/**/*.yml"), *(ROOT / "roles").glob("*/handlers/*.yml")])
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))


def tasks_of(entries: Any) -> Iterator[dict[str, Any]]:
    """Plays, blocks and tasks with what is in them, each without the others."""
    for entry in entries or []:
        parts = [part for part in ("block", "rescue", "always", "pre_tasks", "tasks", "post_tasks") if part in entry]
        yield {key: value for key, value in entry.items() if key not in parts}
        for part in parts:
            yield from tasks_of(entry[part])


def without_shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_shown(part) for key, part in value.items() if key not in SHOWN}
    return [without_shown(part) for part in value] if isinstance(value, list) else value


def all_tasks() -> list[tuple[Path, dict[str, Any]]]:
    return [(path, task) for path in (*FILES, *PLAYBOOKS) for task in tasks_of(yaml.safe_load(path.read_text()))]


def test_no_task_names_the_users_file_or_context() -> None:
    found = all_tasks()
    assert len(found) > 600
    assert {
        (str(path.relative_to(ROOT)), task.get("name"))
        for path, task in found
        if PUBLIC.search(json.dumps(without_shown(task)))
        and str(path.relative_to(ROOT)) not in OF_THE_FILE
        and "ansible.builtin.debug" not in task
    } == set()


def test_no_task_selects_a_context_of_its_own() -> None:
    """The run's copy has one."""
    modules = set(yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["action_groups"]["all"])
    names = {*(f"kubegpu.autoscale.{name}" for name in modules)}
    for path, task in all_tasks():
        defaults = task.get("module_defaults", {})
        assert defaults in ({}, {"group/kubegpu.autoscale.cluster": "{{ _common_access }}"}), (path, task["name"])
        for key, value in task.items():
            if isinstance(value, dict) and (key in names or key.startswith("kubernetes.core.")):
                assert "context" not in value, (path, task["name"])
                assert value.get("kubeconfig", "{{ _common_kubeconfig }}") == "{{ _common_kubeconfig }}", path


def test_variables_of_roles_use_the_run_s_copy() -> None:
    """Defaults may name the folder of the user's file, but nothing else reads it."""
    files = sorted([*(ROOT / "roles").glob("*/vars/**/*.yml"), *(ROOT / "roles").glob("*/defaults/**/*.yml")])
    naming = [
        (str(path.relative_to(ROOT)), name)
        for path in files
        for name, value in (yaml.safe_load(path.read_text()) or {}).items()
        if PUBLIC.search(json.dumps(value)) or PUBLIC.search(name)
    ]
    assert sorted(naming) == [
        ("roles/_common/defaults/main/cluster.yml", "kubegpu_context"),
        ("roles/_common/defaults/main/main.yml", "kubegpu_kubeconfig"),
        ("roles/_common/vars/main.yml", "_common_run"),
        ("roles/kubernetes/defaults/main.yml", "kubernetes_backup_fetch"),
        ("roles/kubernetes/vars/main.yml", "__kubernetes_backup_root"),
    ]
