# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import plugin_pools

DOCUMENTATION = r"""
name: shares_gpus
short_description: Check whether pods share GPUs
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns whether the device plugin assigns a GPU to several pods, on all nodes or in one of the pools.
positional: _input, sharing
options:
  _input:
    description: Pools of the role nvidia_device_plugin.
    type: list
    elements: dict
    required: true
  sharing:
    description: How GPUs on all other nodes are shared.
    type: str
    default: none
"""

EXAMPLES = r"""
- name: Show whether GPUs of a pool are shared
  ansible.builtin.debug:
    msg: "{{ [{'name': 'dev', 'sharing': 'mps'}] | kubegpu.autoscale.shares_gpus }}"
"""

RETURN = r"""
_value:
  description:
    - Whether GPUs are shared.
  type: bool
"""


def shares_gpus(pools: Sequence[Mapping[str, Any]], sharing: str = "none") -> bool:
    return plugin_pools.shares_gpus(plugin_pools.Sharing(sharing=sharing, pools=pools))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"shares_gpus": shares_gpus}
