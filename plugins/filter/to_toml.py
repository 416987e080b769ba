# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.toml import to_toml

DOCUMENTATION = r"""
name: to_toml
short_description: Write a dictionary as TOML
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Turns nested dictionaries into a TOML document, as containerd's configuration wants it.
options:
  _input:
    description: The dictionary. Values are strings, numbers, booleans, lists of them and further dictionaries.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Raise containerd's limit for one download
  ansible.builtin.copy:
    content: "{{ settings | kubegpu.autoscale.to_toml }}"
    dest: /etc/containerd/conf.d/50-downloads.toml
    mode: "0644"
  vars:
    settings: {version: 3, plugins: {io.containerd.cri.v1.images: {max_concurrent_downloads: 8}}}
"""

RETURN = r"""
_value:
  description: The TOML document.
  type: str
"""


def _to_toml(table: Any) -> str:
    try:
        return to_toml(table)
    except (TypeError, AttributeError) as err:
        raise AnsibleFilterError(f"to_toml: {err}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"to_toml": _to_toml}
