"""What a task sets counts more than a role's variable of that name, for the rest of the run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import ROOT

ROLES = ROOT / "roles"


def tasks(part: Any) -> Iterator[dict[str, Any]]:
    for task in part or ():
        yield task
        for inner in ("block", "rescue", "always"):
            yield from tasks(task.get(inner))


def own(role: Path) -> set[str]:
    """Its variables, without their values: those have tags of Ansible."""
    return {name for path in (role / "vars").rglob("*.yml") for name in re.findall(r"^(\w+):", path.read_text(), re.M)}


@pytest.mark.parametrize("role", sorted(ROLES.iterdir()), ids=lambda role: role.name)
def test_no_task_sets_a_variable_of_its_role(role: Path) -> None:
    done = [task for path in role.glob("tasks/*.yml") for task in tasks(yaml.safe_load(path.read_text()))]
    facts = {name for task in done for name in task.get("ansible.builtin.set_fact") or ()}
    results = {task["register"] for task in done if "register" in task}
    assert (facts | results) & (own(role) | own(ROLES / "_common")) == set()
