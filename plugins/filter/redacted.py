# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import redacted

DOCUMENTATION = r"""
name: redacted
short_description: Hide the secrets in a value
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Replaces each secret in a value with C((hidden)).
  - Secrets are recognized by the name of their key, or by their text, for example C(--password=x).
    References to secrets, for example C(existingSecret), are kept.
options:
  _input:
    description: Any value.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Show the values of a chart
  ansible.builtin.debug:
    msg: "{{ prometheus_stack_values | kubegpu.autoscale.redacted }}"
"""

RETURN = r"""
_value:
  description: The value without secrets, in the same shape.
  type: raw
"""


def _redacted(value: Any) -> Any:
    return redacted(value)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"redacted": _redacted}
