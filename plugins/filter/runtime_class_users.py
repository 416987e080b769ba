# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import gpu_nodes

DOCUMENTATION = r"""
name: runtime_class_users
short_description: List the DaemonSets that use a RuntimeClass
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the DaemonSets whose pods could not be created without the RuntimeClass.
positional: _input, runtime_class, others_only
options:
  _input:
    description: DaemonSets of the cluster.
    type: list
    elements: dict
    required: true
  runtime_class:
    description: Name of the RuntimeClass.
    type: str
    required: true
  others_only:
    description: Whether to ignore releases that this collection installed.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show what needs the RuntimeClass
  ansible.builtin.debug:
    msg: "{{ daemon_sets | kubegpu.autoscale.runtime_class_users('nvidia') }}"
"""

RETURN = r"""
_value:
  description:
    - Namespace and name of each DaemonSet.
  type: list
  elements: str
"""


def runtime_class_users(
    daemon_sets: Sequence[Mapping[str, Any]], runtime_class: str, others_only: bool = False
) -> list[str]:
    return gpu_nodes.runtime_class_users(daemon_sets, runtime_class, others_only=others_only)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"runtime_class_users": runtime_class_users}
