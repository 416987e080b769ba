# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.dashboards import config_maps
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.plain import plain

DOCUMENTATION = r"""
name: dashboard_objects
short_description: Create the ConfigMaps of dashboards
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns a ConfigMap for each dashboard, which Grafana's sidecar loads.
positional: _input, metadata
options:
  _input:
    description: Dashboards by name, as in C(files/dashboards.yml) of the role gpu_dashboards.
    type: dict
    required: true
  metadata:
    description: C(namespace), C(labels) and C(annotations) of the ConfigMaps.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the ConfigMap of a dashboard
  ansible.builtin.debug:
    msg: "{{ text | from_yaml | kubegpu.autoscale.dashboard_objects({'namespace': 'monitoring'}) | first }}"
"""

RETURN = r"""
_value:
  description: The ConfigMaps.
  type: list
  elements: dict
"""


def dashboard_objects(dashboards: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    return config_maps(plain(dashboards), metadata)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"dashboard_objects": dashboard_objects}
