# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.job import exits

DOCUMENTATION = r"""
name: loadtest_exits
short_description: List the exit codes of a load generator
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the exit codes of load generators that have ended. Other containers in their pods are ignored.
options:
  _input:
    description: Pods of the Job.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show whether the generator has ended
  ansible.builtin.debug:
    msg: "{{ pods.resources | kubegpu.autoscale.loadtest_exits }}"
"""

RETURN = r"""
_value:
  description:
    - One exit code for each generator that has ended.
  type: list
  elements: int
"""


def loadtest_exits(pods: Sequence[Mapping[str, Any]]) -> list[int]:
    return exits(pods)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"loadtest_exits": loadtest_exits}
