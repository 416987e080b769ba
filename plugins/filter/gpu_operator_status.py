# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.gpu_operator import operator_status

DOCUMENTATION = r"""
name: gpu_operator_status
short_description: Check whether the GPU operator has set up the nodes
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the state that the GPU operator reports, and the number of ready validators.
options:
  _input:
    description: Three lists of objects, for ClusterPolicies, the DaemonSet of the validators, and GPU nodes.
    type: list
    elements: list
    required: true
"""

EXAMPLES = r"""
- name: Show whether the operator is ready
  ansible.builtin.debug:
    msg: "{{ (found.result.objects | kubegpu.autoscale.gpu_operator_status).verdict }}"
"""

RETURN = r"""
_value:
  description:
    - The C(verdict) of the operator, the number of C(valid) validators, the number of ready C(nodes), and whether all
      of them are C(ready).
  type: dict
"""


def gpu_operator_status(objects: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    status = operator_status(*objects)
    return {**asdict(status), "ready": status.ready}


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_operator_status": gpu_operator_status}
