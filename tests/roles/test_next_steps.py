"""The next steps in messages work, and servers outside a run do not make it fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from collection import ROOT
from role_values import RoleValues

NODES = ROOT / "playbooks/nodes.yml"
SERVERS = ROOT / "roles/_common/tasks/servers.yml"


def task(path: Path, name: str) -> dict[str, Any]:
    entries = yaml.safe_load(path.read_text())
    rows = [row for entry in entries for row in [entry, *entry.get("tasks", []), *entry.get("post_tasks", [])]]
    return next(row for row in rows if row["name"] == name)


@pytest.mark.parametrize(
    ("limit", "looks"), [({}, True), ({"ansible_limit": "cp3,localhost"}, False)], ids=["all", "one"]
)
def test_a_server_without_a_gpu_comes_alone_to_those_that_have_some(limit: dict[str, str], looks: bool) -> None:
    """A control plane that takes the place of a lost one needs none."""
    role = RoleValues("_common", limit, {"gpus": []})

    assert role[task(SERVERS, "Fail if no server has a GPU")["when"]] == looks
    assert role[task(SERVERS, "Warn that the run is limited to servers without a GPU")["when"]] != looks


def test_room_is_asked_of_each_folder_that_an_inventory_names() -> None:
    [look, *_facts] = yaml.safe_load((SERVERS.parent / "server.yml").read_text())
    wanted = {"/var/lib": 5, "/var/lib/containerd": 200}
    role = RoleValues("_common", {"kubegpu_free_gib": wanted}, {})

    assert role[look["kubegpu.autoscale.server_info"]["folders"].strip("{} ")] == [*wanted]


@pytest.mark.parametrize(("connection", "reboots"), [("ssh", True), ("local", False)])
def test_a_first_run_says_so_too(connection: str, reboots: bool) -> None:
    waits = task(NODES, "Fail if servers wait for a reboot")
    gpu1 = {"nvidia_driver_reboot_reason": "nouveau is loaded", "ansible_connection": connection}
    role = RoleValues("_common", {}, {"waiting": ["gpu1"], "ansible_play_hosts": ["gpu1"], "hostvars": {"gpu1": gpu1}})
    role.tell(connections=role[waits["vars"]["connections"].strip("{} ")])
    said = " ".join(role.text(waits["ansible.builtin.assert"]["fail_msg"]).split())

    assert ("or set nvidia_driver_reboot_ok: true and run it again, which does that." in said) == reboots
    assert ("Next: reboot them and run this again." in said) != reboots


@pytest.mark.parametrize(("nodes", "passes_over"), [(1, True), (2, False)], ids=["one node", "several"])
def test_the_only_node_is_drained_whatever_budgets_say(nodes: int, passes_over: bool) -> None:
    """The second of two replicas could never be evicted, because no node can run the first one."""
    path = ROOT / "roles/maintain/tasks/drain.yml"
    tasks = DataLoader().load_from_file(str(path), trusted_as_template=True)
    [drain] = [row for task in tasks for row in task.get("block", []) if row["name"] == "Drain the node"]
    asked = {"options": {}, "timeout": 600}
    told = {"__maintain_nodes_beside": {"resources": [{}] * nodes}, "_common_drain": asked, **drain["vars"]}
    options = RoleValues("_common", {}, told)[drain["kubernetes.core.k8s_drain"]["delete_options"].strip("{} ")]

    assert options["disable_eviction"] == passes_over
