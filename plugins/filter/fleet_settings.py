# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components import fleet

DOCUMENTATION = r"""
name: fleet_settings
short_description: Derive settings from the size of the fleet
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns the settings that have to follow the number of GPU nodes and autoscalers.
positional: _input, hpa_sync_period
options:
  _input:
    description: The number of C(nodes) and of C(autoscalers).
    type: dict
    required: true
  hpa_sync_period:
    description: Seconds between two evaluations of one HPA. By default C(sync) of the result.
    type: float
"""

EXAMPLES = r"""
- name: Show the settings for 300 nodes
  ansible.builtin.debug:
    msg: "{{ {'nodes': 300, 'autoscalers': 150} | kubegpu.autoscale.fleet_settings }}"
"""

RETURN = r"""
_value:
  description:
    - C(workers) of the HPA controller, C(requests) per second, C(interval) in seconds of scrapes and rule evaluations,
      C(sync) in seconds of HPAs, C(relist) in seconds of the adapter, and C(memory_mib) and C(millicores) that
      Prometheus requests.
  type: dict
"""


def fleet_settings(size: Mapping[str, Any], hpa_sync_period: float | None = None) -> dict[str, int]:
    """Raises: AnsibleFilterError for a size or a period that is no number, or a period of 0."""
    try:
        nodes, autoscalers = int(size["nodes"]), int(size["autoscalers"])
        period = None if hpa_sync_period is None else float(hpa_sync_period)
        return asdict(fleet.fleet_settings(nodes, autoscalers, period))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as err:
        raise AnsibleFilterError(
            f"fleet_settings: {dict(size)} with an HPA sync period of {hpa_sync_period!r} is not a fleet size."
            " Next: set kubegpu_fleet to whole numbers of nodes and autoscalers,"
            " and kubernetes_hpa_sync_period to seconds above 0."
        ) from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fleet_settings": fleet_settings}
