# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import alerts
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain

DOCUMENTATION = r"""
name: alert_rules
short_description: Create PrometheusRules for alerts
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns a PrometheusRule for each file of alerts, without disabled alerts.
positional: _input, options, metadata
options:
  _input:
    description: Rule files by name, each with C(groups) in Prometheus' format.
    type: dict
    required: true
  options:
    description: Names of C(disabled) alerts, and C(labels) for the others.
    type: dict
    required: true
  metadata:
    description: C(namespace) and C(labels) of the objects.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the alerts except a disabled one
  ansible.builtin.debug:
    msg: "{{ (files | kubegpu.autoscale.alert_rules({'disabled': ['GpuHot']}, {'namespace': 'monitoring'})).objects }}"
"""

RETURN = r"""
_value:
  description: The C(objects), and an error C(refused) if a disabled alert does not exist.
  type: dict
"""


def alert_rules(files: Mapping[str, Any], options: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    given = alerts.AlertOptions(**plain(options))
    return {
        "objects": alerts.alert_rules(files, given, metadata),
        "refused": alerts.unknown_alert(files, given),
    }


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"alert_rules": alert_rules}
