"""A playbook that is for what the inventory lists fails without any of it, whatever state is wanted."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from collection import ROOT
from role_values import RoleValues
from task_walk import walk_role


def states() -> list[tuple[str, str]]:
    """Roles with the option ROLE_required, and each state."""
    found = []
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        role = path.parts[-3]
        options = yaml.safe_load(path.read_text())["argument_specs"].get("main", {}).get("options", {})
        if f"{role}_required" in options:
            found += [(role, state) for state in options[f"{role}_state"]["choices"]]
    return found


def failures(role: str, state: str, **options: Any) -> list[str]:
    """What the assertions of the role say that look at ROLE_required."""
    told = {"kubegpu_cluster_ready": True, "ansible_check_mode": False, "groups": {}, "hostvars": {}}
    values = RoleValues(role, {f"{role}_state": state, **options}, told)
    tasks = [step.task for step in walk_role(role) if f"{role}_required" in str(step.task.get("when"))]
    assert tasks
    return [
        values.text(task["ansible.builtin.assert"]["fail_msg"])
        for task in tasks
        if values[task["when"]] and not all(values[that] for that in task["ansible.builtin.assert"]["that"])
    ]


@pytest.mark.parametrize(("role", "state"), states())
def test_a_run_without_an_entry_fails_in_each_state_if_one_is_required(role: str, state: str) -> None:
    (text,) = failures(role, state, **{f"{role}_required": True})

    assert "is empty" in text
    assert "Nothing was changed. Next: " in text
    assert failures(role, state) == []


def test_a_removal_needs_no_target() -> None:
    named = {"gpu_autoscaling_required": True, "gpu_autoscaling_autoscalers": [{"namespace": "ml", "name": "chat"}]}

    assert failures("gpu_autoscaling", "absent", **named) == []
