"""How servers join: by one token, side by side, and without the proxies of a login. kubeadm is a stand-in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, ROOT
from kubernetes_nodes import Node

TOKEN = "abcdef.0123456789abcdef"
# Writes down what it is called for, by whom and with which proxies. A server that is to fail has a file of its name.
KUBEADM = f"""#!/bin/sh
echo "$* [$https_proxy$NO_PROXY]" >> $RECORD
case "$*" in
  "token create"*) echo "kubeadm join cp1:6443 --token {TOKEN} --discovery-token-ca-cert-hash sha256:{"0" * 64} " ;;
  join*) [ ! -e $(dirname $3)/fails ] || exit 1; [ ! -e $RECORD.leaves ] || touch $RECORD.gone ;;
esac
"""
SERVERS = ("cp1", "gpu1", "gpu2", "gpu3")
PROXIES = {"https_proxy": "http://proxy.corp:3128", "NO_PROXY": ".corp"}


@pytest.fixture
def run(tmp_path: Path) -> Any:
    if os.geteuid() != 0:
        pytest.skip("the role's files belong to root")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubeadm").write_text(KUBEADM)
    (programs / "kubeadm").chmod(0o755)
    names = {name: tmp_path / name for name in SERVERS}
    for folder in names.values():
        folder.mkdir()

    def play(*, fails: str = "", leaves: bool = False) -> tuple[Any, list[str]]:
        if leaves:
            (tmp_path / "record.leaves").touch()
        if fails:
            (names[fails] / "fails").touch()
        hosts: dict[str, Any] = {}
        for name in SERVERS[1:]:
            plan = Node(name=name, planes=("cp1",), hosts=SERVERS, others={"cp1": True}).plan()
            plan["files"]["join_config"] = str(names[name] / "join.yaml")
            plan["files"]["joined"] = str(names[name] / "kubelet.conf")
            hosts[name] = {"__kubernetes_plan": plan}
        local = {"ansible_connection": "local", "ansible_become": False}
        gone = {"ansible_connection": f"{{{{ 'ssh' if '{tmp_path}/record.gone' is file else 'local' }}}}"}
        leading = {**gone, "ansible_host": "127.0.0.1", "ansible_port": 9}  # nothing listens there
        inventory = {"kube_control_plane": {"hosts": {"cp1": leading}}, "kube_node": {"hosts": hosts}}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": local, "children": inventory}}))
        role = {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "joins"}
        tasks = [{"ansible.builtin.include_role": role}, {"ansible.builtin.debug": {"msg": "goes on"}}]
        head = {"hosts": "kube_node", "gather_facts": False, "max_fail_percentage": 99}
        (tmp_path / "play.yml").write_text(json.dumps([{**head, "tasks": tasks}]))
        record = tmp_path / "record"
        record.touch()
        environment = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, "RECORD": str(record), **PROXIES}
        environment["PATH"] = f"{programs}:{os.environ['PATH']}"
        done = ansible_playbook("-i", "hosts.yml", "play.yml", "-vvv", "--diff", cwd=tmp_path, env=environment)
        return done, record.read_text().splitlines()

    return play


def test_all_servers_of_a_run_join_by_one_token_that_no_output_shows(run: Any) -> None:
    """One each would be a login each at the control plane, at the same time: above ten, its sshd closes some."""
    done, called = run()

    assert done.returncode == 0, done.stdout
    assert [call for call in called if call.startswith("token create")] == [
        "token create --ttl 44m --print-join-command []"
    ]
    assert len([call for call in called if call.startswith("join ")]) == 3
    assert called[-1] == "token delete abcdef []", "it is of no use any more"
    assert TOKEN not in done.stdout + done.stderr
    assert TOKEN.partition(".")[2] not in done.stdout + done.stderr


def test_the_others_join_where_one_fails_and_the_token_goes(run: Any) -> None:
    done, called = run(fails="gpu2")

    assert done.returncode != 0
    assert sorted(host for host in SERVERS if f'ok: [{host}] => {{\n    "msg": "goes on"' in done.stdout) == [
        "gpu1",
        "gpu3",
    ]
    assert called[-1] == "token delete abcdef []"


def test_the_run_goes_on_if_the_control_plane_leaves_before_the_token_is_deleted(run: Any) -> None:
    """Ansible would report `...ignoring`, and end the run with failed=0 and unreachable=0."""
    done, called = run(leaves=True)

    assert len([call for call in called if call.startswith("join ")]) == 3
    assert done.stdout.count('"msg": "goes on"') == 3, done.stdout
    assert done.returncode == 0


def test_no_proxy_of_the_login_reaches_the_cluster(run: Any) -> None:
    """kubeadm would write it into the API server's pod."""
    _done, called = run()
    asked = [call for call in called if not call.startswith("config validate")]  # which connects to nothing
    assert len(asked) == 5
    assert [call for call in asked if not call.endswith(" []")] == []


def commands(tasks: list[dict[str, Any]]) -> Any:
    for task in tasks:
        for part in ("block", "rescue", "always"):
            yield from commands(task.get(part) or [])
        if "ansible.builtin.command" in task:
            yield task


FILES = sorted((ROOT / "roles/kubernetes/tasks").glob("*.yml"))
PROGRAMS = ("kubeadm", "kubectl", "__kubernetes_plan.upgrade.command")


def test_each_call_of_kubeadm_and_kubectl_goes_without_a_proxy() -> None:
    """A kubectl with a proxy asks the API server through it (kubernetes/kubeadm#666)."""
    called = [task for file in FILES for task in commands(yaml.safe_load(file.read_text()))]
    ours = [
        task
        for task in called
        if any(name in json.dumps(task["ansible.builtin.command"]) for name in PROGRAMS)
        and "dpkg-query" not in json.dumps(task)
    ]

    assert len(ours) > 20
    assert [task["name"] for task in ours if task.get("environment") != "{{ __kubernetes_environment }}"] == []
