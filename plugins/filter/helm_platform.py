# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.helm import platform

DOCUMENTATION = r"""
name: helm_platform
short_description: Return helm's name of a platform
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the operating system and architecture as they occur in the names of helm's archives.
options:
  _input:
    description: The output of C(uname -sm).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the platform of the controller
  ansible.builtin.debug:
    msg: "{{ 'Linux x86_64' | kubegpu.autoscale.helm_platform }}"
"""

RETURN = r"""
_value:
  description: The platform, for example C(linux-amd64).
  type: str
"""


def helm_platform(uname: str) -> str:
    return platform(uname)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"helm_platform": helm_platform}
