# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import stack

DOCUMENTATION = r"""
name: stack_faults
short_description: Check the options of the monitoring stack
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns an error for each option of the role prometheus_stack that would expose Prometheus to everyone, fill its
    volume, or leave Alertmanager without a configuration.
options:
  _input:
    description:
      - C(receivers), C(without_login), C(storage) and C(retention_size) of the role.
        C(chart_values) are all values, and C(has_own_values) is true if the inventory sets some of them.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Fail if Prometheus would be exposed to everyone
  ansible.builtin.assert:
    that: options | kubegpu.autoscale.stack_faults | length == 0
  vars:
    options:
      has_own_values: true
      chart_values:
        prometheus:
          service:
            type: NodePort
"""

RETURN = r"""
_value:
  description: Errors, each with its reason and the next step.
  type: list
  elements: str
"""


def stack_faults(options: Mapping[str, Any]) -> list[str]:
    return stack.stack_faults(stack.StackOptions(**options))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"stack_faults": stack_faults}
