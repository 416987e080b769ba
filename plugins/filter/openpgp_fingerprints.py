# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.openpgp import openpgp_fingerprints

DOCUMENTATION = r"""
name: openpgp_fingerprints
short_description: Compute fingerprints of OpenPGP keys
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the fingerprints of the primary keys (version 4) in ASCII-armored text. Does not need gpg.
options:
  _input:
    description: Text with one or more public key blocks.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Fail if the key is not the pinned one
  ansible.builtin.assert:
    that: key | kubegpu.autoscale.openpgp_fingerprints == ['9DC858229FC7DD38854AE2D88D81803C0EBFCD88']
  vars:
    key: "{{ lookup('ansible.builtin.url', 'https://download.docker.com/linux/debian/gpg', split_lines=false) }}"
"""

RETURN = r"""
_value:
  description: Fingerprints in upper-case hexadecimal, in the order of the keys. Empty if the text has no key.
  type: list
  elements: str
"""


def _openpgp_fingerprints(text: str) -> list[str]:
    try:
        return openpgp_fingerprints(text)
    except (ValueError, IndexError) as err:
        raise AnsibleFilterError(f"openpgp_fingerprints: {err}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"openpgp_fingerprints": _openpgp_fingerprints}
