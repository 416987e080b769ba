# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.stack import grafana_values
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain

DOCUMENTATION = r"""
name: grafana_values
short_description: Configure Grafana in the monitoring stack
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the values of Grafana's chart. Its pod downloads dashboards from grafana.com before it starts.
options:
  _input:
    description: Options of the role prometheus_stack, as P(kubegpu.autoscale.role_options#lookup) returns them.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show whether Grafana is installed
  ansible.builtin.debug:
    msg: "{{ (options | kubegpu.autoscale.grafana_values).enabled }}"
  vars:
    options: "{{ lookup('kubegpu.autoscale.role_options', 'prometheus_stack') }}"
"""

RETURN = r"""
_value:
  description: Values of the chart.
  type: dict
"""


def values(options: Mapping[str, Any]) -> dict[str, Any]:
    return grafana_values(plain(options))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"grafana_values": values}
