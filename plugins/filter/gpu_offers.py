# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.gpu_nodes import offers

DOCUMENTATION = r"""
name: gpu_offers
short_description: List the nodes that offer GPUs
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the ready nodes, and the nodes that offer no GPU.
options:
  _input:
    description: Nodes that should offer GPUs.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show which nodes offer no GPU
  ansible.builtin.debug:
    msg: "{{ (nodes | kubegpu.autoscale.gpu_offers).waiting }}"
"""

RETURN = r"""
_value:
  description:
    - C(ready) are the ready nodes. C(waiting) are the names of nodes that offer no GPU. C(shown) lists as text what
      each node offers.
  type: dict
"""


def gpu_offers(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = offers(nodes)
    return {"ready": list(found.ready), "waiting": list(found.waiting), "shown": found.shown}


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_offers": gpu_offers}
