# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.closed_servers import refusal

DOCUMENTATION = r"""
name: closed_to
short_description: Check that no server is closed to a component that gets GPUs by the environment
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns why a device plugin or an exporter that gets or gives GPUs by C(NVIDIA_VISIBLE_DEVICES) cannot be installed.
positional: _input, servers, present
options:
  _input:
    description: Values of its chart.
    type: dict
    required: true
  servers:
    description: Servers that ignore the variable, or that this run has not examined.
    type: list
    elements: str
    required: true
  present:
    description: The same components that exist, as M(kubegpu.autoscale.gpu_cluster_info) returns them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show whether the plugin can be installed
  ansible.builtin.debug:
    msg: "{{ {'deviceListStrategy': 'envvar'} | kubegpu.autoscale.closed_to(['gpu1'], []) }}"
"""

RETURN = r"""
_value:
  description: The error; empty if nothing prevents it.
  type: str
"""


def closed_to(values: Mapping[str, Any], servers: Sequence[str], present: Sequence[Mapping[str, Any]]) -> str:
    return refusal(values, servers, present)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"closed_to": closed_to}
