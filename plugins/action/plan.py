# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Decides on the controller what a role does. plugins/modules/plan.py documents it.

The strategy imports this file once, before it starts a process for each host. So it imports all plans.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.plans import PLANS as OF_CLUSTERS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.plans import PLANS as OF_SERVERS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.role_plan import options_of

PLANS = OF_SERVERS | OF_CLUSTERS
ARGUMENTS: dict[str, Any] = {
    "role": {"type": "str", "required": True},
    "subject": {"type": "str", "default": ""},
    "survey": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, given = self.validate_argument_spec(ARGUMENTS)
        role, survey = given["role"], given["survey"]
        variables = task_vars or {}

        def read(names: Collection[str]) -> Mapping[str, Any]:
            return dict(self._templar.template({name: variables[name] for name in names if name in variables}))

        name = ".".join(filter(None, (role, given["subject"])))
        if name not in PLANS:
            raise AnsibleActionFail(f"plan: unknown plan {name}. Next: use one of {', '.join(PLANS)}.")
        try:
            return PLANS[name].result(options_of(PLANS[name], role, read), survey)
        except ValueError as err:
            raise AnsibleActionFail(str(err)) from err
