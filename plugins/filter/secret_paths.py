# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import secrets_in

DOCUMENTATION = r"""
name: secret_paths
short_description: Find the secrets in a value
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the path of each secret in a value. It recognizes secrets as P(kubegpu.autoscale.redacted#filter) does.
options:
  _input:
    description: Any value.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Write a configuration, and log it only if it has no secret
  ansible.builtin.copy:
    content: "{{ settings | to_nice_yaml }}"
    dest: /etc/example.yml
    mode: "0600"
  no_log: "{{ settings | kubegpu.autoscale.secret_paths | length > 0 }}"
"""

RETURN = r"""
_value:
  description: Paths without duplicates, for example C(grafana.adminPassword), in the order of the value.
  type: list
  elements: str
"""


def _secret_paths(value: Any) -> list[str]:
    return list(dict.fromkeys(secret.path for secret in secrets_in(value)))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"secret_paths": _secret_paths}
