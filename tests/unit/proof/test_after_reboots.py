"""Each node that a role returns to service after a reboot is proven first, independent of the record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
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
    definition = (task.get("kubernetes.core.k8s") or {}).get("definition") or {}
    is_uncordoned = (definition.get("spec") or {}).get("unschedulable") is False
    return is_uncordoned or (task.get("kubernetes.core.k8s_drain") or {}).get("state") == "uncordon"


def proves(task: Mapping[str, Any]) -> bool:
    included = task.get("ansible.builtin.include_role") or {}
    return included.get("name") == "kubegpu.autoscale.gpu_proof" and "tasks_from" not in included


RETURNS = [
    path
    for path in TASKS
    if path.parents[1].name in ROLES_THAT_REBOOT and any(map(uncordons, tasks_in(yaml.safe_load(path.read_text()))))
]


def test_a_role_that_reboots_nodes_returns_them() -> None:
    assert {path.parents[1].name for path in RETURNS} == set(ROLES_THAT_REBOOT)


@pytest.mark.parametrize("path", RETURNS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_node_is_proven_between_its_reboot_and_its_return(path: Path) -> None:
    tasks = list(tasks_in(yaml.safe_load(path.read_text())))
    for number, task in enumerate(tasks):
        if uncordons(task):
            (proof,) = filter(proves, tasks[:number])
            assert proof["vars"]["gpu_proof_repeat"] is True
            assert proof["when"] == "kubegpu_proof | bool"
