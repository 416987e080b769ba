# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.request_schedule import longest_s

DOCUMENTATION = r"""
name: loadtest_longest
short_description: Compute how long a search for a target takes at most
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the seconds after which a search for a target has tried its last number of users.
options:
  _input:
    description: The C(sweep) of P(kubegpu.autoscale.loadtest_objects#filter).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the longest time
  ansible.builtin.debug:
    msg: "{{ sweep | kubegpu.autoscale.loadtest_longest }} s"
"""

RETURN = r"""
_value:
  description:
    - Seconds, without the start of the generator.
  type: float
"""


def loadtest_longest(sweep: Mapping[str, Any]) -> float:
    return longest_s(plain(sweep))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"loadtest_longest": loadtest_longest}
