# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

DOCUMENTATION = r"""
name: nodes_beside
short_description: List the nodes that can take the pods of another node
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns the other nodes, without control planes that kubeadm reserves with a taint.
  - A cordoned node counts, because it returns to service.
positional: _input, name
options:
  _input:
    description: All nodes of the cluster.
    type: list
    elements: dict
    required: true
  name:
    description: Name of the node to drain.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Fail if a drain could never meet a disruption budget
  ansible.builtin.assert:
    that: nodes.resources | kubegpu.autoscale.nodes_beside('gpu1') | length > 0
"""

RETURN = r"""
_value:
  description: Names of the nodes.
  type: list
  elements: str
"""

# https://kubernetes.io/docs/reference/labels-annotations-taints/#node-role-kubernetes-io-control-plane-taint
RESERVED = "node-role.kubernetes.io/control-plane"


def nodes_beside(nodes: Iterable[Mapping[str, Any]], name: str) -> list[str]:
    others = (node for node in nodes if node["metadata"]["name"] != name)
    return [node["metadata"]["name"] for node in others if not _is_reserved(node)]


def _is_reserved(node: Mapping[str, Any]) -> bool:
    return any(taint["key"] == RESERVED for taint in (node.get("spec") or {}).get("taints") or ())


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"nodes_beside": nodes_beside}
