# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.gpu_nodes import rollout

DOCUMENTATION = r"""
name: daemon_set_rollout
short_description: Count the ready pods of DaemonSets
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Compares the number of ready and updated pods with the number of ready nodes that should have a pod.
positional: _input, nodes
options:
  _input:
    description: The DaemonSets.
    type: list
    elements: dict
    required: true
  nodes:
    description: Nodes that should each have a pod.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show whether each node has an exporter
  ansible.builtin.debug:
    msg: "{{ (daemon_sets | kubegpu.autoscale.daemon_set_rollout(nodes)).is_complete }}"
"""

RETURN = r"""
_value:
  description:
    - The number of C(ready) pods, the number of C(nodes) that should have one, and whether the rollout C(is_complete).
  type: dict
"""


def daemon_set_rollout(daemon_sets: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return asdict(rollout(daemon_sets, nodes))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"daemon_set_rollout": daemon_set_rollout}
