# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.gpu_nodes import gpu_nodes

DOCUMENTATION = r"""
name: gpu_nodes
short_description: Describe the GPU nodes of a pool
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns label selectors and a node affinity for the nodes that have an NVIDIA GPU and all labels of a pool.
  - A node has a GPU if it has one of the labels that NVIDIA's charts, node-feature-discovery, clouds or Karpenter set.
options:
  _input:
    description: Labels of the pool. Empty for all GPU nodes.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the affinity of pods that belong on GPU nodes of one pool
  ansible.builtin.debug:
    msg: "{{ ({'pool': 'inference'} | kubegpu.autoscale.gpu_nodes).affinity }}"
"""

RETURN = r"""
_value:
  description:
    - The pool's C(labels) as text and as C(terms) of a label selector, C(selectors) of labelled GPU nodes,
      and an C(affinity) for pods.
  type: dict
"""


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_nodes": gpu_nodes}
