# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling import kube_names

DOCUMENTATION = r"""
name: short_name
short_description: Shorten a name to a label value
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns a name of at most 63 characters, the limit of label values. A longer name is cut, and ends with a digest of
    the whole name.
options:
  _input:
    description: A name that is valid except for its length.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the name of a Job
  ansible.builtin.debug:
    msg: "{{ ('loadtest-' ~ autoscaler) | kubegpu.autoscale.short_name }}"
"""

RETURN = r"""
_value:
  description:
    - The name.
  type: str
"""


def short_name(name: str) -> str:
    return kube_names.short_name(str(name))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"short_name": short_name}
