# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.chart_values import merged_values

DOCUMENTATION = r"""
name: chart_values
short_description: Merge values of a chart, including its lists
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the values of a role, overridden by those of an inventory. Entries of the lists in O(lists) are added.
positional: _input, given, lists
options:
  _input:
    description: Values of the role.
    type: dict
    required: true
  given:
    description: Values of the inventory.
    type: dict
  lists:
    description:
      - How entries are added, by the path of a list. V(each) adds missing entries. V(env) replaces the variable
        with the same C(name), and drops empty variables of the role. V(flags) replaces the flag with the same name.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Change the log level
  ansible.builtin.debug:
    msg: "{{ {'args': ['--v=2']} | kubegpu.autoscale.chart_values({'args': ['--v=6']}, {'args': 'flags'}) }}"
"""

RETURN = r"""
_value:
  description: The merged values.
  type: dict
"""


def chart_values(
    own: Mapping[str, Any], given: Mapping[str, Any] | None = None, lists: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Raises: AnsibleFilterError if a value for one of the lists is not a list."""
    try:
        return merged_values(own, given, lists or {})
    except ValueError as err:
        raise AnsibleFilterError(str(err)) from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"chart_values": chart_values}
