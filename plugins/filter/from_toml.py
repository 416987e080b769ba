# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.toml import from_toml

DOCUMENTATION = r"""
name: from_toml
short_description: Read a TOML document
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Turns a TOML document, containerd's configuration for instance, into nested dictionaries.
options:
  _input:
    description: The document.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Read which version containerd's configuration has
  ansible.builtin.debug:
    msg: "{{ (config | kubegpu.autoscale.from_toml).version }}"
  vars:
    config: "{{ lookup('ansible.builtin.file', '/etc/containerd/config.toml') }}"
"""

RETURN = r"""
_value:
  description: What the document says.
  type: dict
"""


def _from_toml(document: str) -> dict[str, Any]:
    try:
        return from_toml(document)
    except (TypeError, ValueError) as err:
        raise AnsibleFilterError(f"from_toml: {err}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"from_toml": _from_toml}
