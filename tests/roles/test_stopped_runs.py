"""Who stops a run as its message says gets the node back: no later run drains it for that, or lifts another cordon."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from collection import ROOT
from kubernetes_nodes import CONTROL_PLANE, Node, encoded
from planned import plan_of
from role_values import RoleValues
from task_walk import PLAYBOOKS, including, plays, role_file

MARKS = sorted(
    {
        mark
        for folder, kind in (("roles", "*.yml"), ("plugins", "*.py"))
        for path in (ROOT / folder).rglob(kind)
        for mark in re.findall(r"kubegpu[.]autoscale/cordoned-for-[a-z]+", path.read_text())
    }
)
SMALL = "all-1g.10gb"


def maintained(node: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether the next run with nothing to change drains the node, and whether it lifts a cordon."""
    marked = bool(
        RoleValues("maintain", {}, {"_common_node": node, "kubegpu_inventory_id": "one"})["__maintain_marked"]
    )
    plan = plan_of("maintain", {"in_cluster": True, "marked": marked})
    return plan["steps"]["maintain"], marked


def partitioned(node: Mapping[str, Any]) -> tuple[bool, bool]:
    changes = plan_of("gpu_mig", {"nodes": [node], "strategy": ""}, state="present", profile=SMALL, inventory_id="one")
    return bool(changes["changes"]), any(not change["cordoned"] for change in changes["changes"])


def upgraded(node: Mapping[str, Any]) -> tuple[bool, bool]:
    """An upgrade that was stopped half-way still drains the node."""
    before = {"content": encoded('{"apply": false, "cordoned": false}')}
    server = Node(files=CONTROL_PLANE, survey={"node_before": {"resources": [node]}, "before": before})
    return False, server.plan()["upgrade"]["uncordon"]


NEXT: dict[str, Callable[[Mapping[str, Any]], tuple[bool, bool]]] = {
    "kubegpu.autoscale/cordoned-for-driver": maintained,
    "kubegpu.autoscale/cordoned-for-mig": partitioned,
    "kubegpu.autoscale/cordoned-for-upgrade": upgraded,
}


def node(annotations: Mapping[str, str], *, cordoned: bool) -> dict[str, Any]:
    labels = {"nvidia.com/mig.config": SMALL, "nvidia.com/mig.config.state": "success"}
    labels["nvidia.com/gpu.deploy.mig-manager"] = "true"
    status = {"nodeInfo": {"kubeletVersion": "v1.36.3"}}
    metadata = {"name": "gpu1", "labels": labels, "annotations": {**annotations}}
    return {"metadata": metadata, "spec": {"unschedulable": cordoned}, "status": status}


def drains() -> Iterator[tuple[str, str]]:
    """Each call of the drain in a playbook: the role, and the annotation that its message names."""
    for playbook in PLAYBOOKS:
        for _hosts, tasks in plays(playbook):
            for task in including(role_file("maintain", "drain"), tasks, ""):
                given = task["vars"]["_common_drain"]
                yield given["role"], given["mark"]


def commands(mark: str) -> list[str]:
    message = RoleValues("maintain", {}, {"_common_drain": {"node": "gpu1", "mark": mark}})["_common_to_stop"]
    return re.findall(r"`(kubectl [^`]+)`", message)


@pytest.mark.parametrize("mark", MARKS)
def test_a_run_that_was_stopped_as_its_message_says_is_over(mark: str) -> None:
    """Someone cordons the node later, and nothing differs: it is not drained, and the cordon stays."""
    annotations = {mark: "one"}
    assert NEXT[mark](node(annotations, cordoned=True))[1], "an interrupted run goes on"

    cordoned = True
    for command in commands(mark):
        if command == "kubectl uncordon gpu1":
            cordoned = False
        elif removed := re.fullmatch(r"kubectl annotate node gpu1 (\S+)-", command):
            annotations.pop(removed[1])
    assert not cordoned
    assert NEXT[mark](node(annotations, cordoned=True)) == (False, False)


@pytest.mark.parametrize("mark", [mark for mark in MARKS if NEXT[mark] is not upgraded])
def test_an_annotation_does_not_outlive_its_cordon(mark: str) -> None:
    """The node was only uncordoned. It is not drained, and the annotation goes, so that it claims no later cordon."""
    seen = node({mark: "one"}, cordoned=False)
    stale = plan_of("gpu_mig", {"nodes": [seen], "strategy": ""}, state="present", profile=SMALL, inventory_id="one")
    role = RoleValues("maintain", {}, {"_common_node": seen, "kubegpu_inventory_id": "one"})

    assert NEXT[mark](seen) == (False, False)
    assert [stale["stale"] == ["gpu1"], role["__maintain_stale"]].count(True) == 1


def test_the_commands_are_written_once() -> None:
    """Each role names its annotation to the drain."""
    written = [path for path in (ROOT / "roles").rglob("*.yml") if "kubectl uncordon" in path.read_text()]
    named = set(drains())

    assert [str(path.relative_to(ROOT)) for path in written] == ["roles/_common/vars/main.yml"]
    assert len({role for role, _mark in named}) == len({mark for _role, mark in named}) == len(MARKS)
