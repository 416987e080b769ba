"""No play takes a second control plane while another one does not work: of all playbooks, by their tasks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from task_walk import PLAYBOOKS, Step, Task, files, included, role_file, walk_playbook

TURN, HEALTHY, ETCD = (role_file("kubernetes", name) for name in ("turn", "healthy", "etcd"))
DRAIN = role_file("maintain", "drain")
# What stops the members of a control plane that stays. A restart of one component by kubeadm waits for it.
UPGRADE = re.compile(r"upgrade[.]command|kubeadm upgrade (?:apply|node$)")
PLANES = "kube_control_plane"


def takes(step: Step) -> bool:
    """Whether the task cordons, drains, reboots, upgrades or resets the server."""
    for module, given in step.task.items():
        match module.rpartition(".")[2]:
            case "k8s_drain":
                return bool(given["state"] in ("drain", "cordon"))
            case "k8s" if isinstance(given.get("definition"), dict):
                spec = given["definition"].get("spec")  # a template may return a node, and takes none
                return isinstance(spec, dict) and spec.get("unschedulable") is True
            case "reboot":
                return True
            case "server_reboot":
                return "boot_id" not in given
            case "command":
                return bool(UPGRADE.search(str(given))) or "kubeadm reset" in str(given)
    return False


def over_control_planes(hosts: str) -> bool:
    return PLANES in hosts.split(":")


def taken(playbook: Path) -> list[Step]:
    steps = walk_playbook(playbook, remembers=False)
    return [step for hosts, step in steps if over_control_planes(hosts) and takes(step)]


TAKING = {playbook: steps for playbook in PLAYBOOKS if (steps := taken(playbook))}


def is_behind(step: Step) -> bool:
    """A node that leaves goes for good: it is judged by what remains without it. One that joins anew was not in."""
    if any(path.name in ("absent.yml", "join_control_plane.yml") and role == "kubernetes"
           for path, _tasks, role in step.trail if path):  # fmt: skip
        return step.is_after(ETCD)
    return step.is_after(TURN)


@pytest.mark.parametrize("playbook", TAKING, ids=lambda path: path.stem)
def test_each_play_that_takes_a_control_plane_waits_for_its_turn(playbook: Path) -> None:
    early = [step.task["name"] for step in TAKING[playbook] if not is_behind(step)]
    assert early == []


def is_stop(step: Step) -> bool:
    """Whether the task stops the server's member of etcd, and the server stays in the cluster."""
    modules = {module.rpartition(".")[2] for module in step.task}
    return bool({"reboot", "server_reboot"} & modules) or ("command" in modules and "reset" not in str(step.task))


STOPS = {playbook: stops for playbook, steps in TAKING.items() if (stops := [step for step in steps if is_stop(step)])}


def marks(task: Task, role: str) -> bool:
    """Whether the task annotates the node, itself or by the drain that it includes."""
    return "annotations" in str(task.get("kubernetes.core.k8s", "")) or DRAIN in files(task, role)


@pytest.mark.parametrize("playbook", STOPS, ids=lambda path: path.stem)
def test_the_turn_is_checked_again_between_the_mark_and_the_stop(playbook: Path) -> None:
    """Another run may have begun with another control plane meanwhile: the last two of the file are mark and turn."""
    for step in STOPS[playbook]:
        _path, tasks, role = step.trail[-1]
        asked = [
            number for number, task in enumerate(tasks) if [path for path, _role in included(task, role)] == [TURN]
        ]
        marked = [number for number, task in enumerate(tasks) if marks(task, role)]
        assert marked
        assert asked
        assert max(asked) > max(marked)
        assert max(asked) == len(tasks) - 1, "nothing is changed between"


def test_reboots_and_upgrades_are_stops() -> None:
    modules = {module for steps in STOPS.values() for step in steps for module in step.task}
    assert modules >= {"kubegpu.autoscale.server_reboot", "ansible.builtin.command"}


def test_a_node_is_marked_where_it_is_cordoned() -> None:
    """Or before: the mark is what other runs see. A node that leaves is judged by what remains."""
    unmarked = [
        step.task["name"]
        for steps in TAKING.values()
        for step in steps
        if any(module.endswith(".k8s") for module in step.task)
        and "annotations" not in step.task["kubernetes.core.k8s"]["definition"]["metadata"]
    ]
    assert unmarked == []


def test_the_playbooks_are_those_that_take_control_planes() -> None:
    """An empty list would be no evidence."""
    assert {path.stem for path in TAKING} >= {
        "cluster",
        "maintain",
        "nodes",
        "uninstall",
        "upgrade_driver",
        "upgrade_kubernetes",
    }


RETURNING = [path for path in TAKING if path.stem in ("maintain", "upgrade_driver", "upgrade_kubernetes", "nodes")]


@pytest.mark.parametrize("playbook", RETURNING, ids=lambda path: path.stem)
def test_a_control_plane_returns_only_when_its_member_is_healthy(playbook: Path) -> None:
    """Each task that puts a node back into service is after the wait."""
    returns = [
        step
        for hosts, step in walk_playbook(playbook, remembers=False)
        if over_control_planes(hosts) and step.task["name"] == "Uncordon the node"
    ]
    assert returns
    assert [step.role for step in returns if not step.is_after(HEALTHY)] == []
