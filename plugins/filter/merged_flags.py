# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import values

DOCUMENTATION = r"""
name: merged_flags
short_description: Add flags of a program to others
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns the flags, each by its name only once. A given flag replaces the one of its name.
positional: _input, given
options:
  _input:
    description: Flags, C(--name=value) for example.
    type: list
    elements: str
    required: true
  given:
    description: Flags that are added.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Change the level of a log
  ansible.builtin.debug:
    msg: "{{ ['--v=2', '--port=80'] | kubegpu.autoscale.merged_flags(['--v=6']) }}"
"""

RETURN = r"""
_value:
  description:
    - The flags that are kept, then the given ones.
  type: list
  elements: str
"""


def merged_flags(own: Sequence[str], given: Sequence[str]) -> list[str]:
    return values.merged_flags(own, given)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"merged_flags": merged_flags}
