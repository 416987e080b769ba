# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.receivers import alertmanager_values

DOCUMENTATION = r"""
name: alertmanager_values
short_description: Configure Alertmanager's receivers
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns values for C(alertmanager) in the chart kube-prometheus-stack. Each entry gets one route and one receiver.
options:
  _input:
    description: Receivers, as in O(kubegpu.autoscale.prometheus_stack#role:main:prometheus_stack_receivers).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the configuration of Alertmanager
  ansible.builtin.debug:
    msg: "{{ (receivers | kubegpu.autoscale.alertmanager_values).config }}"
  vars:
    receivers:
      - name: on-call
        type: slack
        secret:
          name: slack
          key: url
"""

RETURN = r"""
_value:
  description: Values of the chart. Empty without receivers.
  type: dict
"""


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"alertmanager_values": alertmanager_values}
