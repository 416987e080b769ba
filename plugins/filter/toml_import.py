# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.toml import with_import, without_import

DOCUMENTATION = r"""
name: toml_import
short_description: Add an import to somebody's containerd configuration, or take it back
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Adds one pattern to the top-level list C(imports) of a TOML document. Every other character stays as it is.
  - What was added is marked, so that it can be taken back exactly. An import that was there before is left alone.
  - Fails where C(imports) is written in a way that cannot be extended.
positional: pattern, state
options:
  _input:
    description: The document.
    type: str
    required: true
  pattern:
    description: Absolute path or pattern of the files to import.
    type: str
    required: true
  state:
    description: Whether the import is to be there.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Let containerd read drop-ins
  ansible.builtin.copy:
    content: "{{ config | kubegpu.autoscale.toml_import('/etc/containerd/conf.d/*.toml') }}"
    dest: /etc/containerd/config.toml
    mode: "0644"
  vars:
    config: "{{ lookup('ansible.builtin.file', '/etc/containerd/config.toml', rstrip=false) }}"
"""

RETURN = r"""
_value:
  description: The changed document.
  type: str
"""

_CHANGES = {"present": with_import, "absent": without_import}


def _toml_import(document: str, pattern: str, state: str = "present") -> str:
    try:
        return _CHANGES[state](document, pattern)
    except (KeyError, TypeError, ValueError) as err:
        raise AnsibleFilterError(f"toml_import: {err}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"toml_import": _toml_import}
