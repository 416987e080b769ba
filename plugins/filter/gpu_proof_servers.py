# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.fabric import fabric_states

DOCUMENTATION = r"""
name: gpu_proof_servers
short_description: Collect the GPU facts of servers by node
version_added: 0.3.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns the option C(servers) of M(kubegpu.autoscale.gpu_proof), which C(node_facts) of
    M(kubegpu.autoscale.gpu_doctor) is as well. It has one entry for each server whose GPUs were looked at in this run.
positional: _input, hostvars
options:
  _input:
    description: Names of servers in the inventory.
    type: list
    elements: str
    required: true
  hostvars:
    description:
      - Variables by server, with the facts of M(kubegpu.autoscale.gpu_facts) where it ran. C(kubernetes_node_name) and
        C(nvidia_driver_expected_gpus) count where they are set. C(gpu_proof_described) is the result of
        C(nvidia-smi -q).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what is known of the servers
  ansible.builtin.debug:
    msg: "{{ ['gpu1'] | kubegpu.autoscale.gpu_proof_servers(known) }}"
  vars:
    known:
      gpu1:
        nvidia_driver_expected_gpus: 8
        ansible_facts: {hostname: gpu1, gpu_facts: {gpus: []}}
"""

RETURN = r"""
_value:
  description:
    - Each with C(node) and C(facts). To these C(expected_gpus) and C(fabric), the state by GPU, are added where they
      are known.
  type: list
  elements: dict
"""


def gpu_proof_servers(hosts: Sequence[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = ((host, hostvars[host], hostvars[host].get("ansible_facts") or {}) for host in hosts)
    return [_server(host, variables, facts) for host, variables, facts in rows if "gpu_facts" in facts]


def _server(host: str, variables: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    node = variables.get("kubernetes_node_name") or str(facts.get("hostname", host)).lower()
    expected = variables.get("nvidia_driver_expected_gpus")
    number = {} if expected is None else {"expected_gpus": int(expected)}
    states = fabric_states(str((variables.get("gpu_proof_described") or {}).get("stdout") or ""))
    fabric = {"fabric": states} if states else {}
    return {"node": node, "facts": {**facts["gpu_facts"], **number, **fabric}}


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_proof_servers": gpu_proof_servers}
