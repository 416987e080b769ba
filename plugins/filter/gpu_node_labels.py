# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.node_labels import (
    Server,
    label_changes,
    node_name,
    owned,
)

DOCUMENTATION = r"""
name: gpu_node_labels
short_description: Decide which nodes get the GPU label
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the nodes to add the label C(nvidia.com/gpu.present) to, and the nodes to remove it from.
  - A GPU node is recognized by the PCI devices of its server, by a label, or by the resources of its device plugin.
positional: _input, servers, hostvars, drivers, pool, left_out
options:
  _input:
    description: Nodes of the cluster.
    type: list
    elements: dict
    required: true
  servers:
    description: Names of servers in the inventory.
    type: list
    elements: str
    default: []
  hostvars:
    description: Variables by server, including the facts of M(kubegpu.autoscale.gpu_facts) if it ran.
    type: dict
    default: {}
  drivers:
    description: Kernel drivers of GPUs that the node itself uses. Another driver passes a GPU to a virtual machine.
    type: list
    elements: raw
    default: []
  pool:
    description: Labels of this inventory's nodes. Empty for all nodes.
    type: dict
    default: {}
  left_out:
    description: Servers that failed in this run, and so may not be nodes, even if a GPU was found on them before.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show the nodes that get the label
  ansible.builtin.debug:
    msg: "{{ (nodes.resources | kubegpu.autoscale.gpu_node_labels).add }}"
"""

RETURN = r"""
_value:
  description:
    - Nodes to C(add) the label to and to C(remove) it from, the C(owned) nodes that the role labelled, an error
      C(refused), and a C(warning).
  type: dict
"""


def gpu_node_labels(
    nodes: Sequence[Mapping[str, Any]],
    servers: Sequence[str] = (),
    hostvars: Mapping[str, Any] | None = None,
    drivers: Collection[str | None] = (),
    pool: Mapping[str, Any] | None = None,
    left_out: Collection[str] = (),
) -> dict[str, Any]:
    known = hostvars or {}
    found = [_server(host, known[host], drivers, host in left_out) for host in servers]
    return {**asdict(label_changes(found, nodes, pool or {})), "owned": owned(nodes)}


def _server(host: str, variables: Mapping[str, Any], drivers: Collection[str | None], is_left_out: bool) -> Server:
    facts = variables.get("ansible_facts") or {}
    name = node_name(host, variables)
    if "gpu_facts" not in facts or is_left_out:
        return Server(host, name, None)
    gpus = facts["gpu_facts"].get("gpus") or ()
    return Server(host, name, any(gpu["bound_driver"] in drivers for gpu in gpus))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_node_labels": gpu_node_labels}
