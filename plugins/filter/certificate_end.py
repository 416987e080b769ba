# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.x509 import not_after

DOCUMENTATION = r"""
name: certificate_end
short_description: Return the end of a certificate's validity
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the time at which a certificate expires. Needs no X.509 library.
options:
  _input:
    description: Text with one or more certificates in PEM format. Only the first one is read.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show how many days the administrator's certificate is valid
  ansible.builtin.debug:
    msg: "{{ (end - now(utc=true)).days }}"
  vars:
    user: "{{ (lookup('ansible.builtin.file', '.kubegpu/kubeconfig') | from_yaml).users[0].user }}"
    end: "{{ user['client-certificate-data'] | b64decode | kubegpu.autoscale.certificate_end }}"
"""

RETURN = r"""
_value:
  description: The time in UTC, in the format of C(now(utc=true)).
  type: raw
"""


def _certificate_end(text: str) -> datetime:
    try:
        return not_after(text).replace(tzinfo=None)  # as Ansible's `now` returns it
    except ValueError as err:
        raise AnsibleFilterError(f"certificate_end: {err}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"certificate_end": _certificate_end}
