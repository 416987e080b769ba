# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.mig import Request, changes, refusals
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain

DOCUMENTATION = r"""
name: mig_changes
short_description: Decide which nodes get another MIG profile
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Compares the MIG profiles of nodes with the profile that an inventory requests.
positional: _input, request
options:
  _input:
    description: Nodes with the label C(nvidia.com/mig.capable=true).
    type: list
    elements: dict
    required: true
  request:
    description:
      - C(state) and C(profile) of the role gpu_mig, the labels of its C(pool) of nodes, and the C(strategy) of the GPU
        operator if this collection installs it.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show which nodes would be partitioned
  ansible.builtin.debug:
    msg: "{{ (nodes | kubegpu.autoscale.mig_changes({'state': 'present', 'profile': 'all-1g.10gb'})).changes }}"
"""

RETURN = r"""
_value:
  description:
    - C(changes) lists nodes with C(name), C(has), C(wanted), C(applied) and C(cordoned), and the metadata C(cordon),
      C(start) and C(end) for each step. C(refusals) lists the errors that stop the role before it changes a node.
  type: dict
"""


def mig_changes(nodes: Sequence[Mapping[str, Any]], request: Mapping[str, Any]) -> dict[str, Any]:
    wanted = Request(**plain(request))
    return {"changes": [asdict(change) for change in changes(wanted, nodes)], "refusals": refusals(wanted, nodes)}


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"mig_changes": mig_changes}
