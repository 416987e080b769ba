"""What roles hand to node_plan gets its types there, so that `-e name=false` is no more than that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import yaml
from collection import ROOT

PLUGINS = "ansible_collections.kubegpu.autoscale.plugins"
ARGUMENTS = import_module(f"{PLUGINS}.action.node_plan").ARGUMENTS
SUBJECTS = {
    "nvidia_driver": "driver",
    "containerd": "containerd",
    "nvidia_container_toolkit": "toolkit",
    "kubernetes": "kubernetes",
}
# Those of _common that plans take.
SHARED = {"kubegpu_versions": {"type": "dict"}, "kubegpu_image_mirror": {"type": "str"}}
DOCUMENTED = yaml.safe_load(import_module(f"{PLUGINS}.modules.node_plan").DOCUMENTATION)["options"]


def handed(role: str) -> dict[str, Any]:
    """Arguments of the role's plan."""
    [plan] = yaml.safe_load((ROOT / "roles" / role / "tasks" / "plan.yml").read_text())
    return plan["kubegpu.autoscale.node_plan"]


def test_each_plan_is_documented() -> None:
    assert {name: [spec["type"], spec.get("required", False)] for name, spec in ARGUMENTS.items()} == {
        name: [option["type"], option.get("required", False)] for name, option in DOCUMENTED.items()
    }


@pytest.mark.parametrize("role", SUBJECTS)
def test_an_option_of_a_role_has_its_type_in_the_plan(role: str) -> None:
    specs = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    options = specs["argument_specs"]["main"]["options"] | SHARED
    planned = ARGUMENTS[SUBJECTS[role]]["options"]["options"]["options"]
    handed_over = handed(role)[SUBJECTS[role]]["options"]
    of_role = {name: options[re.sub(r"[{} ]", "", template)] for name, template in handed_over.items()}

    assert {name: (spec["type"], spec.get("elements"), spec.get("choices")) for name, spec in of_role.items()} == {
        name: (spec["type"], spec.get("elements"), spec.get("choices")) for name, spec in planned.items()
    }


@pytest.mark.parametrize("role", SUBJECTS)
def test_a_role_hands_over_all_that_it_reads(role: str) -> None:
    subject = handed(role)[SUBJECTS[role]]
    assert {*subject["survey"]} == {*ARGUMENTS[SUBJECTS[role]]["options"]["survey"]["options"]}


def skipped_imports(tasks: list[dict[str, Any]], *, is_conditional: bool = False) -> Iterator[str]:
    """Names of tasks that import a plan below a condition."""
    for task in tasks:
        may_skip = is_conditional or "when" in task
        if may_skip and task.get("ansible.builtin.import_tasks") == "plan.yml":
            yield task["name"]
        for part in ("block", "rescue", "always"):
            yield from skipped_imports(task.get(part, []), is_conditional=may_skip)


@pytest.mark.parametrize("role", SUBJECTS)
def test_a_condition_that_fails_does_not_replace_the_plan(role: str) -> None:
    """The result of a skipped task is registered as well: a plan below a condition is included, not imported."""
    files = (ROOT / "roles" / role / "tasks").glob("*.yml")
    assert [name for file in files for name in skipped_imports(yaml.safe_load(file.read_text()))] == []
