"""The servers that a run has not found open, as the roles on localhost see them, and what is refused then."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from role_values import RoleValues

# What play 1 of the playbook gpu has left on a server.
LEFT: dict[str, tuple[dict[str, Any], bool]] = {
    "not reached": ({}, False),
    "skipped": ({"__nvidia_container_toolkit_unrequested": {"skipped": True}}, False),
    "denied": ({"__nvidia_container_toolkit_unrequested": {"is_denied": True}}, False),
    "open": ({"__nvidia_container_toolkit_unrequested": {"is_denied": False}}, True),
}
# Values of each role by which its container needs the variable.
NEEDY = {
    "nvidia_device_plugin": [
        {"nvidia_device_plugin_device_list_strategy": "envvar"},
        {"nvidia_device_plugin_values": {"deviceListStrategy": "envvar"}},
        {"nvidia_device_plugin_values": {"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}},
    ],
    "dcgm_exporter": [{"dcgm_exporter_values": {"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}}],
}


@pytest.mark.parametrize("role", NEEDY)
def test_a_chart_is_refused_while_a_server_may_ignore_the_variable(role: str) -> None:
    for states in product(LEFT, repeat=2):
        hosts = {
            f"gpu{number}": {"inventory_hostname": f"gpu{number}", **LEFT[state][0]}
            for number, state in enumerate(states)
        }
        play = {"groups": {"kube_node": [*hosts], "kube_control_plane": ["gpu0"]}, "hostvars": hosts}
        closed = [name for name, state in zip(hosts, states, strict=True) if not LEFT[state][1]]
        assert RoleValues(role, {}, play)["_common_closed_servers"] == closed
        for given, is_needy in [({}, False), *((given, True) for given in NEEDY[role])]:
            refused = RoleValues(role, given, play)[f"__{role}_chart"]["refused"]
            assert bool(refused) is (is_needy and bool(closed)), (states, given, refused)


@pytest.mark.parametrize("role", NEEDY)
def test_without_servers_nothing_is_refused(role: str) -> None:
    for given in NEEDY[role]:
        assert not RoleValues(role, given, {"groups": {}, "hostvars": {}})[f"__{role}_chart"]["refused"]


def test_a_play_sees_them_too(tmp_path: Path) -> None:
    """With the variables of other hosts as Ansible has them, after a server that failed."""
    known = "__nvidia_container_toolkit_unrequested"
    left = {"is_denied": "{{ inventory_hostname == 'gpu1' }}"}
    plays = [
        {
            "hosts": "kube_node",
            "gather_facts": False,
            "connection": "local",
            "tasks": [
                {"ansible.builtin.fail": {}, "when": "inventory_hostname == 'gpu2'"},
                {"ansible.builtin.set_fact": {known: left}},
            ],
        },
        {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [
                {
                    "ansible.builtin.include_role": {
                        "name": "kubegpu.autoscale._common",
                        "tasks_from": "chart_present",
                    },
                    "vars": {
                        "_common_chart": {"refused": "CLOSED {{ _common_closed_servers | join(' ') }}", "release": "a"},
                        "kubegpu_inventory_id": "default",
                    },
                }
            ],
        },
    ]
    (tmp_path / "play.yml").write_text(json.dumps(plays))
    (tmp_path / "hosts").write_text("[kube_node]\ngpu0\ngpu1\ngpu2\n")
    done = ansible_playbook("-i", "hosts", "play.yml", cwd=tmp_path, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH})
    assert "CLOSED gpu1 gpu2" in done.stdout, done.stdout + done.stderr
