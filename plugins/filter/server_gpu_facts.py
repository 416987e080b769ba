# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.node_labels import node_name
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.fabric import fabric_states

DOCUMENTATION = r"""
name: server_gpu_facts
short_description: Collect the GPU facts of servers
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the result of P(kubegpu.autoscale.gpu_facts#module) for each server, with the name of its node.
  - The facts include C(expected_gpus) if the variable C(nvidia_driver_expected_gpus) is set. They include C(fabric),
    the state of the NVLink fabric by GPU, if C(gpu_proof_described) is the result of C(nvidia-smi -q).
  - They include C(uuids) of the GPUs and MIG instances, C(toolkit), the release of the container toolkit, and
    C(toolkit_config), the digest of its configuration, from the other results of C(gpu_proof)'s entry point C(facts).
positional: _input, hostvars
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: Variables and facts by host.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the facts of all servers
  ansible.builtin.debug:
    msg: "{{ groups.kube_node | kubegpu.autoscale.server_gpu_facts(hostvars) }}"
"""

RETURN = r"""
_value:
  description:
    - C(node) and C(facts) of each server that this run surveyed.
  type: list
  elements: dict
"""


# As in `GPU 0: NVIDIA H200 (UUID: GPU-...)`, and in `NVIDIA Container Toolkit CLI version 1.19.0`.
_UUID = re.compile(r"\(UUID: ([^)]+)\)")
_RELEASE = re.compile(r"version (\S+)")


def server_gpu_facts(servers: Sequence[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    facts = {host: hostvars[host].get("ansible_facts") or {} for host in servers}
    return [
        {"node": node_name(host, hostvars[host]), "facts": {**known["gpu_facts"], **_besides(hostvars[host])}}
        for host, known in facts.items()
        if "gpu_facts" in known
    ]


def _besides(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Expected GPUs, NVLink fabric, UUIDs and container toolkit of a server, which are not part of its facts."""
    expected = variables.get("nvidia_driver_expected_gpus")
    checksum = ((variables.get("gpu_proof_toolkit_config") or {}).get("stat") or {}).get("checksum")
    found = {
        "fabric": fabric_states(_output(variables, "gpu_proof_described")),
        "uuids": _UUID.findall(_output(variables, "gpu_proof_listed")),
        "toolkit": "".join(_RELEASE.findall(_output(variables, "gpu_proof_toolkit"))[:1]),
        "toolkit_config": str(checksum or "")[:12],
    }
    known = {name: value for name, value in found.items() if value}
    return known if expected is None else {**known, "expected_gpus": int(expected)}


def _output(variables: Mapping[str, Any], command: str) -> str:
    return str((variables.get(command) or {}).get("stdout") or "")


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"server_gpu_facts": server_gpu_facts}
