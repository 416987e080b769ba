# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import wanted

DOCUMENTATION = r"""
name: component_wanted
short_description: Read which components an inventory wants
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns the options of each chart role that decide whether it installs its component.
  - P(kubegpu.autoscale.component_variables#lookup) has the names of the variables.
options:
  _input:
    description: Values by the names of the variables. An empty value means the default.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what is wanted of the exporter
  ansible.builtin.debug:
    msg: "{{ {'dcgm_exporter_state': 'present'} | kubegpu.autoscale.component_wanted }}"
"""

RETURN = r"""
_value:
  description:
    - C(state), C(namespace), C(release) and C(adopt) by role, and C(needed) of a role that C(auto) installs only on
      demand.
  type: dict
"""


def component_wanted(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return wanted.wanted(values)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"component_wanted": component_wanted}
