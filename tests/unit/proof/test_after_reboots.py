"""Each node that a role returns to service after a reboot is proven first, independent of the record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from collection import ROOT

REBOOTS = re.compile(r"ansible\.builtin\.reboot:|kubegpu\.autoscale\.server_reboot:")
TASKS = sorted((ROOT / "roles").glob("*/tasks/*.yml"))
ROLES_THAT_REBOOT = sorted({path.parents[1].name for path in TASKS if REBOOTS.search(path.read_text())})


def tasks_in(entries: Any) -> Iterator[Mapping[str, Any]]:
    """Those of blocks, too, in order."""
    for task in entries or ():
        yield task
        yield from tasks_in(task.get("block"))


def uncordons(task: Mapping[str, Any]) -> bool:
    return task.get("ansible.builtin.include_tasks") == "uncordon.yml"


def returns(task: Mapping[str, Any]) -> bool:
    included = task.get("ansible.builtin.include_role") or {}
    of_role = (included.get("name"), included.get("tasks_from")) == ("kubegpu.autoscale.maintain", "return")
    return of_role or task.get("ansible.builtin.include_tasks") == "return.yml"


def proves(task: Mapping[str, Any]) -> bool:
    included = task.get("ansible.builtin.include_role") or {}
    return included.get("name") == "kubegpu.autoscale.gpu_proof" and "tasks_from" not in included


def test_a_role_that_reboots_nodes_returns_them() -> None:
    returning = {
        path.parents[1].name for path in TASKS if any(map(returns, tasks_in(yaml.safe_load(path.read_text()))))
    }
    assert returning == set(ROLES_THAT_REBOOT) != set()


def test_a_node_is_proven_between_its_reboot_and_its_return() -> None:
    tasks = list(tasks_in(yaml.safe_load((ROOT / "roles/maintain/tasks/return.yml").read_text())))
    [number] = [number for number, task in enumerate(tasks) if uncordons(task)]
    (proof,) = filter(proves, tasks[:number])
    assert proof["vars"]["gpu_proof_repeat"] is True
    assert proof["when"] == "kubegpu_proof | bool"
