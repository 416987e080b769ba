"""The first play reports for each server why any of the roles would fail, before one of them changes anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import B200, FACTS, L4, V100, Machine, machine_host

ROLES = ["nvidia_driver", "containerd"]
MACHINES = {
    "gpu1": (Machine(devices=(V100, B200)), True),
    "gpu2": (Machine(devices=(L4,)), True),
    "gpu3": (Machine(devices=(L4,)), False),
}


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The lines with which each server ends; none for one that goes on."""
    folder = tmp_path_factory.mktemp("first-play")
    hosts: dict[str, Any] = {}
    for name, (machine, has_runtime) in MACHINES.items():
        hosts[name] = machine_host(folder / name, machine)
        for known in ("_common_gpu_facts", "_common_server"):
            del hosts[name][known]
        if has_runtime:
            program = folder / name / "root" / "usr" / "local" / "bin" / "containerd"
            program.parent.mkdir(parents=True)
            program.touch()
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    (folder / "play.yml").write_text(json.dumps([play()]))
    settings = {"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH}
    # What apt has is not the question here.
    told = json.dumps({"_common_offer_plan": {"refused": [], "steps": {"ask": False}}, "kubegpu_free_gib": {}})
    done = ansible_playbook("-i", "hosts.json", "play.yml", "-e", told, cwd=folder, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: (folder / f"{name}.txt").read_text().splitlines() for name in MACHINES}


def play() -> dict[str, Any]:
    common = {"name": "kubegpu.autoscale._common", "tasks_from": "servers"}
    root = {"root": "{{ machine_folder }}/root"}
    keep = {
        "content": "{{ ansible_failed_result.msg | default('') }}",
        "dest": "{{ playbook_dir }}/{{ inventory_hostname }}.txt",
    }
    return {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"PATH": "{{ machine_folder }}/bin:{{ lookup('ansible.builtin.env', 'PATH') }}"},
        "module_defaults": {"kubegpu.autoscale.gpu_facts": root, "kubegpu.autoscale.server_info": root},
        "tasks": [
            {
                "ansible.builtin.set_fact": {name: f"{{{{ machine_facts.{name} }}}}" for name in FACTS}
                | {"cacheable": True}
            },
            {"ansible.builtin.copy": {**keep, "content": "", "mode": "0600"}},
            {
                "block": [{"ansible.builtin.include_role": common, "vars": {"_common_roles": ROLES}}],
                "rescue": [{"ansible.builtin.copy": {**keep, "mode": "0600"}}],
            },
        ],
    }


def test_the_reasons_of_all_roles_come_at_once(reasons: dict[str, list[str]]) -> None:
    driver, runtime = reasons["gpu1"]

    assert "no single driver supports them" in driver
    assert "has a container runtime that is not managed by this collection (/usr/local/bin/containerd)" in runtime


def test_each_server_has_its_own(reasons: dict[str, list[str]]) -> None:
    [runtime] = reasons["gpu2"]

    assert "has a container runtime that is not managed by this collection" in runtime
    assert reasons["gpu3"] == []
