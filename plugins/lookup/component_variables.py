# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
name: component_variables
short_description: List the variables that configure which components are installed
version_added: 0.1.0
author:
  - kubegpu.autoscale contributors (@kubegpu)
description:
  - Returns the names of the variables with which an inventory configures what each chart role installs.
  - P(kubegpu.autoscale.component_wanted#filter) reads their values.
options: {}
"""

EXAMPLES = r"""
- name: Show the names
  ansible.builtin.debug:
    msg: "{{ query('kubegpu.autoscale.component_variables') }}"
"""

RETURN = r"""
_raw:
  description: Names of variables, which do not have to be defined.
  type: list
  elements: str
"""

from collections.abc import Mapping
from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.wanted import variables as names


class LookupModule(LookupBase):
    """The names, which no option changes."""

    def run(self, terms: list[Any], variables: Mapping[str, Any] | None = None, **kwargs: Any) -> list[str]:
        return names()
