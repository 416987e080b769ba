# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.stack import public_dashboards

DOCUMENTATION = r"""
name: public_dashboards
short_description: Describe dashboards of grafana.com
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns dashboards as Grafana's chart takes them. Its pod fetches them before it starts.
options:
  _input:
    description: Revisions by the ids that grafana.com gives.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the values of one dashboard
  ansible.builtin.debug:
    msg: "{{ {12239: 2} | kubegpu.autoscale.public_dashboards }}"
"""

RETURN = r"""
_value:
  description: Dashboards by name.
  type: dict
"""


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"public_dashboards": public_dashboards}
