# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.helm import archive

DOCUMENTATION = r"""
name: helm_archive
short_description: Describe the archive of a helm release
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the file name, URL and checksum of the archive that contains helm.
positional: _input, pinned, platform, mirror
options:
  _input:
    description: The release to install, with its C(version), and its C(sha256) by platform.
    type: dict
    required: true
  pinned:
    description: The release that the collection pins. Its checksums are used only for the same version.
    type: dict
    required: true
  platform:
    description: The platform, as P(kubegpu.autoscale.helm_platform#filter) returns it.
    type: str
    required: true
  mirror:
    description: C(kubegpu_chart_mirror).
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show from where helm is downloaded
  ansible.builtin.debug:
    msg: "{{ (pin | kubegpu.autoscale.helm_archive(pin, 'linux-amd64')).url }}"
"""

RETURN = r"""
_value:
  description: C(name), C(url) and C(checksum) of the archive.
  type: dict
"""


def helm_archive(pin: Mapping[str, Any], pinned: Mapping[str, Any], platform: str, mirror: str = "") -> dict[str, str]:
    return asdict(archive(pin, pinned, platform, mirror))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"helm_archive": helm_archive}
