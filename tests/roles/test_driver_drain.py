"""A driver is not taken from under pods: where the controller cannot drain the node, nothing is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from role_values import ROLES, RoleValues

MARK, GPUS = "kubegpu.autoscale/cordoned-for-driver", "kubegpu.autoscale/gpus-before-driver"


def drain(folder: Path, servers: list[str], **variables: Any) -> tuple[int, str]:
    role = {"name": "kubegpu.autoscale.maintain", "tasks_from": "out_of_service"}
    tasks = [
        {"ansible.builtin.set_fact": {"hostname": "{{ inventory_hostname }}", "cacheable": True}},
        {"ansible.builtin.include_role": role},
    ]
    play = {"hosts": "all", "connection": "local", "gather_facts": False, "tasks": tasks}
    (folder / "play.yml").write_text(json.dumps([play]))
    told = {"kubegpu_kubeconfig": str(folder / "none"), **variables}
    done = ansible_playbook(
        "-i", f"{','.join(servers)},", "play.yml", "-e", json.dumps(told),
        cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH},
    )  # fmt: skip
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("clusters", [[], ["/etc/kubernetes/kubelet.conf"]])
def test_a_node_whose_cluster_is_not_seen_is_refused(tmp_path: Path, clusters: list[str]) -> None:
    code, said = drain(tmp_path, ["gpu1"], _common_server={"result": {"clusters": clusters}})

    assert (code == 0) == (not clusters), said
    assert ("does not find gpu1 in the cluster of" in said) == bool(clusters)
    assert ("it was not rebooted" in said) == bool(clusters)


@pytest.mark.parametrize(
    ("servers", "takes_turns", "is_refused"),
    [(["gpu1", "gpu2"], False, True), (["gpu1", "gpu2"], True, False), (["gpu1"], False, False)],
)
def test_nodes_are_drained_together_by_the_playbook_for_it_alone(
    tmp_path: Path, servers: list[str], takes_turns: bool, is_refused: bool
) -> None:
    """kubegpu_upgrade_serial may lie in group_vars, and the playbook nodes knows nothing of it."""
    known = {
        "_common_node": {"metadata": {}},
        "_common_server": {"result": {"clusters": ["/etc/kubernetes/kubelet.conf"]}},
        "kubegpu_upgrade_serial": 5,
    }
    _code, said = drain(tmp_path, servers, _common_takes_turns=takes_turns, **known)

    assert ("must reboot, and gpu2 may reboot at the same time" in said) == is_refused, said
    assert ("List the control plane nodes" in said) != is_refused


@pytest.mark.parametrize(
    ("clusters", "node", "goes_back"),
    [([], {}, False), (["/etc/kubernetes/kubelet.conf"], {}, True), ([], {"metadata": {"name": "gpu1"}}, True)],
    ids=["bare", "a node", "drained as a node"],
)
def test_a_bare_server_waits_for_no_cluster(clusters: list[str], node: dict[str, Any], goes_back: bool) -> None:
    """The kubeconfig may be of a cluster that is gone: for half an hour nothing would answer."""
    tasks = yaml.safe_load((ROLES / "nvidia_driver/tasks/main.yml").read_text())
    [back] = [task for task in tasks if task["name"] == "Return the node to service"]
    told = {
        "__nvidia_driver_plan": {"steps": {"put_back": True}},
        "_common_server": {"result": {"clusters": clusters}},
        "_common_node": node,
        "ansible_check_mode": False,
    }

    assert RoleValues("nvidia_driver", {}, told)[back["when"]] == goes_back


@pytest.mark.parametrize("file", ["main", "preflight"])
def test_a_newer_runtime_is_due_on_a_node(file: str) -> None:
    """The conditions after the drain read the same plans: without them each node would stay drained."""
    [block] = yaml.safe_load((ROLES / f"maintain/tasks/{file}.yml").read_text())
    newer = {"steps": {"upgrade": True}, "refused": []}
    role = RoleValues("maintain", {}, {**block["vars"], "__containerd_plan": newer})
    [plan] = yaml.safe_load((ROLES / "maintain/tasks/plan.yml").read_text())
    conditions = [task["when"] for task in yaml.safe_load((ROLES / "maintain/tasks/node.yml").read_text())[1:3]]

    assert role[plan["kubegpu.autoscale.plan"]["survey"]["runtime"].strip("{} ")]
    assert [role[condition] for condition in conditions] == [True, False]


@pytest.mark.parametrize(
    ("annotations", "is_ours"),
    [({}, False), ({MARK: "one"}, True), ({MARK: "two"}, False), ({MARK: "two", GPUS: "8"}, False)],
)
def test_a_node_returns_by_the_inventory_that_cordoned_it(annotations: dict[str, str], is_ours: bool) -> None:
    """Another one drains the node like any that was cordoned before, and leaves its annotations."""
    node = {"metadata": {"annotations": annotations}, "spec": {"unschedulable": True}}
    seen = {"_common_node": node, "kubegpu_inventory_id": "one"}
    assert RoleValues("maintain", {}, seen)["__maintain_marked"] == is_ours
    [back] = [task for task in tasks_of("return") if task["name"] == "Return the node to service"]
    assert back["when"] == "__maintain_marked"


@pytest.mark.parametrize("is_cordoned", [False, True])
def test_the_cordon_names_the_inventory_and_its_return_takes_all_of_it(is_cordoned: bool) -> None:
    drain = next(task for task in _nested(tasks_of("out_of_service")) if task["name"] == "Drain the node")
    back = next(task for task in _nested(tasks_of("return")) if task["name"] == "Uncordon the node")
    node = {"spec": {"unschedulable": is_cordoned}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    role = RoleValues("maintain", {}, {"_common_node": node, "kubegpu_inventory_id": "one"})

    written = role[_expression(drain["vars"]["_common_drain"]["annotations"])]
    assert written == ({} if is_cordoned else {MARK: "one", GPUS: "8"})
    removed = role[_expression(back["vars"]["_common_uncordon"]["metadata"]["annotations"])]
    assert removed == dict.fromkeys((MARK, GPUS))


def tasks_of(name: str) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = yaml.safe_load((ROLES / f"maintain/tasks/{name}.yml").read_text())
    return tasks


def _expression(template: str) -> str:
    return template.strip().removeprefix("{{").removesuffix("}}")


def _nested(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [found for task in tasks for found in (task, *_nested(task.get("block", [])))]
