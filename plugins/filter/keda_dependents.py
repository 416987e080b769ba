# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.keda import dependents

DOCUMENTATION = r"""
name: keda_dependents
short_description: Check whether KEDA can be removed
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns an error if objects depend on KEDA, because Helm would delete ScaledObjects and ScaledJobs with KEDA's CRDs.
positional: _input, context, inventory_id, preview
options:
  _input:
    description: Two lists, of ScaledObjects and ScaledJobs.
    type: list
    elements: list
    required: true
  context:
    description: Context of the kubeconfig, for the text of the error.
    type: str
    required: true
  inventory_id:
    description: ID of the inventory.
    type: str
    required: true
  preview:
    description: Whether this is check mode, in which objects of the inventory do not count.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show why KEDA is not removed
  ansible.builtin.debug:
    msg: "{{ (found.result.objects | kubegpu.autoscale.keda_dependents('prod', 'default')).error }}"
"""

RETURN = r"""
_value:
  description:
    - Whether objects are still being deleted (C(leaving)), and the C(error), which is empty if nothing depends on KEDA.
  type: dict
"""


def keda_dependents(
    objects: Sequence[Sequence[Mapping[str, Any]]], context: str, inventory_id: str, preview: bool = False
) -> dict[str, Any]:
    found = dependents([*chain.from_iterable(objects)], inventory_id, preview=preview)
    return {"leaving": bool(found.leaving) and not found.staying, "error": found.error(context)}


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"keda_dependents": keda_dependents}
