# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.node_labels import node_name

DOCUMENTATION = r"""
name: server_gpu_facts
short_description: Collect the GPU facts of servers
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns what P(kubegpu.autoscale.gpu_facts#module) found on each server, by the name of its node.
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
    - C(node) and C(facts) of each server that this run has surveyed.
  type: list
  elements: dict
"""


def server_gpu_facts(servers: Sequence[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    facts = {host: hostvars[host].get("ansible_facts") or {} for host in servers}
    return [
        {"node": node_name(host, hostvars[host]), "facts": known["gpu_facts"]}
        for host, known in facts.items()
        if "gpu_facts" in known
    ]


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"server_gpu_facts": server_gpu_facts}
