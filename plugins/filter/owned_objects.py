# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.owned import owned

DOCUMENTATION = r"""
name: owned_objects
short_description: Sort objects by their owner
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns the objects that a role has labelled, those of them that it does not want any more, and the names that it
    wants and that other objects have.
positional: _input, labels, wanted
options:
  _input:
    description: Objects with their kinds.
    type: list
    elements: dict
    required: true
  labels:
    description: Labels that each object of the role has.
    type: dict
    required: true
  wanted:
    description: C(<kind> <name>) of each object that the role wants.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Show what is left over
  ansible.builtin.debug:
    msg: "{{ (objects | kubegpu.autoscale.owned_objects({'app': 'sample'}, ['Deployment sample'])).left }}"
"""

RETURN = r"""
_value:
  description: C(found) and C(left), lists of objects, and C(foreign), a list of names.
  type: dict
"""


def owned_objects(
    objects: Sequence[Mapping[str, Any]], labels: Mapping[str, str], wanted: Collection[str]
) -> dict[str, Any]:
    found = owned(objects, labels, list(wanted))
    return {"found": list(found.found), "left": list(found.left), "foreign": list(found.foreign)}


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"owned_objects": owned_objects}
