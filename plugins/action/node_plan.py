# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans on the controller what a role does to a server. plugins/modules/node_plan.py documents it."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.apt.plan import (
    APT,
    APT_OFFER,
    apt_offer_plan,
    apt_plan,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.containerd.drop_in_plan import (
    DROP_IN,
    drop_in_plan,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.containerd.plan import CONTAINERD, containerd_plan
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.kubernetes.plan import KUBERNETES, kubernetes_plan
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.maintain.plan import MAINTAIN, maintain_plan
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.maintain.turn import TURN, turn_plan
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.pod_reach.plan import REACH, reach_plan
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.restore import RESTORE, restore_plan
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.server.plan import (
    SERVER,
    SERVERS,
    server_plan,
    servers_plan,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.toolkit.unrequested_gpus import (
    UNREQUESTED,
    unrequested_plan,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.secrets import secrets_in

HOST: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "system": {"type": "str", "required": True},
    "release": {"type": "str", "default": ""},
    "kernel": {"type": "str", "required": True},
    "architecture": {"type": "str", "required": True},
    "is_local": {"type": "bool", "default": False},
    "clusters": {"type": "list", "elements": "str", "default": []},
}
PLANS = {
    "server": (SERVER, server_plan),
    "servers": (SERVERS, servers_plan),
    "apt": (APT, apt_plan),
    "apt_offer": (APT_OFFER, apt_offer_plan),
    "containerd": (CONTAINERD, containerd_plan),
    "drop_in": (DROP_IN, drop_in_plan),
    "unrequested": (UNREQUESTED, unrequested_plan),
    "kubernetes": (KUBERNETES, kubernetes_plan),
    "reach": (REACH, reach_plan),
    "restore": (RESTORE, restore_plan),
    "maintain": (MAINTAIN, maintain_plan),
    "turn": (TURN, turn_plan),
}
ARGUMENTS: dict[str, Any] = {
    "host": {"type": "dict", "required": True, "options": HOST},
    **{name: {"type": "dict", "options": arguments} for name, (arguments, _plan) in PLANS.items()},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, given = self.validate_argument_spec(
            ARGUMENTS, required_one_of=[[*PLANS]], mutually_exclusive=[[*PLANS]]
        )
        host = Host(**{**given["host"], "clusters": tuple(given["host"]["clusters"])}, now=time.time())
        [plan] = (plan(host, given[name]) for name, (_arguments, plan) in PLANS.items() if given[name] is not None)
        # Same effect as no_log, because files in a plan may contain a login, such as a proxy's.
        # A login is not recognized in TOML, so the plan reports it.
        is_hidden = plan.get("steps", {}).get("has_secrets", False) or bool(secrets_in(plan))
        return {"changed": False, **plan, "_ansible_no_log": is_hidden}
