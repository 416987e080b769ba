# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.workloads import proof_targets, workloads

DOCUMENTATION = r"""
name: autoscaled_workloads
short_description: Find autoscalers whose workload is missing
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns queries for the workloads of autoscalers, and sorts the autoscalers by the results.
positional: _input, found, orphans
options:
  _input:
    description: The autoscalers, as in O(kubegpu.autoscale.gpu_autoscaler#module:autoscalers).
    type: list
    elements: dict
    required: true
  found:
    description: The objects that P(kubegpu.autoscale.objects_info#module) returned, one list for each query.
    type: list
    elements: list
    default: []
  orphans:
    description: HPAs that exist although their workload does not.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Show which workloads do not exist
  ansible.builtin.debug:
    msg: "{{ (autoscalers | kubegpu.autoscale.autoscaled_workloads(seen.result.objects)).missing }}"
"""

RETURN = r"""
_value:
  description:
    - C(queries) for the workloads and C(hpa_queries) for the HPAs of missing workloads, in the format of
      P(kubegpu.autoscale.objects_info#module). Names of C(missing) workloads, the C(wanted) autoscalers, those
      C(to_prove), and their C(namespaces).
  type: dict
"""


def autoscaled_workloads(
    autoscalers: Sequence[Mapping[str, Any]],
    found: Sequence[Sequence[Any]] = (),
    orphans: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    sorted_out = workloads(autoscalers, found)
    lists = {key: list(rows) for key, rows in vars(sorted_out).items()}
    return {**lists, "to_prove": proof_targets(sorted_out.wanted, orphans)}


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"autoscaled_workloads": autoscaled_workloads}
