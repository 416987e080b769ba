"""What the role kubernetes checks of its servers with each other, before anything is changed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH


def play(folder: Path, addresses: dict[str, str], **variables: Any) -> Any:
    """addresses: of servers, with the prefix of their subnet. cp1 is the control plane."""
    hosts = {}
    for name, address in addresses.items():
        ip, _slash, prefix = address.partition("/")
        facts = {
            "distribution": "Debian",
            "distribution_major_version": "12",
            "kernel": "6.1.0-40-amd64",
            "architecture": "x86_64",
            "user_id": "root",
            "user_uid": 0,
            "hostname": name,
            "default_ipv4": {"address": ip},
            "interfaces": ["eth0"],
            "eth0": {"ipv4": {"address": ip, "prefix": prefix}},
        }
        hosts[name] = {"facts": facts, "_common_server": {"result": {"clusters": []}}, "ansible_connection": "local"}
    groups = {
        "kube_control_plane": {"hosts": {"cp1": hosts["cp1"]}},
        "kube_node": {"hosts": {name: host for name, host in hosts.items() if name != "cp1"}},
    }
    (folder / "hosts.yml").write_text(json.dumps({"all": {"children": groups}}))
    role = {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "servers"}
    told = {"ansible.legacy.tell": {"facts": "{{ facts }}"}}
    (folder / "actions").mkdir()
    (folder / "actions/tell.py").write_text(TELL)
    tasks = [told, {"ansible.builtin.include_role": role}, {"ansible.builtin.debug": {"msg": "goes on"}}]
    head = {"hosts": "kube_control_plane:kube_node", "gather_facts": False, "max_fail_percentage": 99}
    (folder / "play.yml").write_text(json.dumps([{**head, "tasks": tasks}]))
    return ansible_playbook(
        "-i", "hosts.yml", "play.yml", "-e", json.dumps({"ansible_become": False, **variables}), cwd=folder,
        env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "ANSIBLE_ACTION_PLUGINS": str(folder / "actions")},
    )  # fmt: skip


TELL = """
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        return {"ansible_facts": self._task.args["facts"]}
"""
RACKS = {"cp1": "127.0.0.1/24", "gpu1": "127.0.0.2/24", "gpu2": "127.0.9.3/24"}


def test_racks_need_another_network_than_bridge(tmp_path: Path) -> None:
    done = play(tmp_path, RACKS)

    said = " ".join(done.stdout.split())
    assert done.returncode != 0
    assert "server: servers are in several subnets: cp1, gpu1 in 127.0.0.0/24; gpu2 in 127.0.9.0/24." in said
    assert "set kubernetes_cni: flannel" in said
    assert "goes on" not in said


def test_flannel_connects_racks(tmp_path: Path) -> None:
    done = play(tmp_path, RACKS, kubernetes_cni="flannel")
    assert done.returncode == 0, done.stdout


@pytest.fixture
def firewall() -> Iterator[str]:
    """An address whose API server's port answers nothing: its queue is full, and the kernel drops what comes."""
    address = "127.77.0.1"
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind((address, 6443))
        server.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex((address, 6443))
        yield address


def test_a_firewall_between_servers_is_found_before_the_first_join(tmp_path: Path, firewall: str) -> None:
    done = play(tmp_path, {"cp1": f"{firewall}/16", "gpu1": "127.77.0.2/16"})

    said = " ".join(done.stdout.split())
    assert f"server: gpu1 does not reach {firewall}:6443 (no answer in 5 s)." in said
    assert 'ok: [cp1] => { "msg": "goes on"' in said
    assert 'ok: [gpu1] => { "msg": "goes on"' not in said
