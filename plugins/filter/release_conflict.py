# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.releases import Release, conflict

DOCUMENTATION = r"""
name: release_conflict
short_description: Check whether a Helm release may be changed
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns an error for a release that this collection did not install and may not adopt.
positional: _input, chart, adopt
options:
  _input:
    description: The result of P(kubegpu.autoscale.chart_release#module) for the release.
    type: dict
    required: true
  chart:
    description: C(release), C(namespace), and C(adopt), the variable that allows the role to adopt the release.
    type: dict
    required: true
  adopt:
    description: Whether the release may be adopted.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show why a release is not changed
  ansible.builtin.debug:
    msg: "{{ seen.result | kubegpu.autoscale.release_conflict(chart) }}"
"""

RETURN = r"""
_value:
  description:
    - The error. Empty if the release may be changed.
  type: str
"""


def release_conflict(seen: Mapping[str, Any], chart: Mapping[str, Any], adopt: bool = False) -> str:
    known = {key: seen[key] for key in ("status", "chart", "owned", "made_by", "begun", "changes")}
    release = Release(chart["release"], chart["namespace"], **known, option=chart.get("adopt") or "")
    return conflict(release, adopt=boolean(adopt))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"release_conflict": release_conflict}
