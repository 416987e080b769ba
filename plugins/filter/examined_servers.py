# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.node_labels import node_name

DOCUMENTATION = r"""
name: examined_servers
short_description: Collect what roles found on servers
extends_documentation_fragment: kubegpu.autoscale.private
description:
  - Returns the servers that the entry point C(server) of the role gpu_doctor examined, with the findings of the
    other roles' plans.
  - The plan of a role is in the variable C(__ROLE_plan), a result of P(kubegpu.autoscale.plan#module). The plan
    of the server itself is in C(_common_server_plan).
positional: _input, hostvars, roles
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: Variables and facts by host.
    type: dict
    required: true
  roles:
    description: Names of the roles, without the collection.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Report on the servers only
  kubegpu.autoscale.gpu_doctor:
    servers: "{{ groups.kube_node | kubegpu.autoscale.examined_servers(hostvars, ['nvidia_driver']) }}"
    no_cluster: no cluster exists yet
"""

RETURN = r"""
_value:
  description:
    - The servers that this run examined, in the format of P(kubegpu.autoscale.gpu_doctor#module).
  type: list
  elements: dict
"""

# The report derives these.
_DERIVED = ("server", "doc")


def examined_servers(servers: Sequence[str], hostvars: Mapping[str, Any], roles: Sequence[str]) -> list[dict[str, Any]]:
    known = {host: hostvars[host] for host in sorted(servers)}
    return [
        _described(host, variables, roles) for host, variables in known.items() if "__gpu_doctor_gathered" in variables
    ]


def _described(host: str, variables: Mapping[str, Any], roles: Sequence[str]) -> dict[str, Any]:
    gathered = variables["__gpu_doctor_gathered"]
    results = (variables.get(name) or {} for name in ("_common_server_plan", *(f"__{role}_plan" for role in roles)))
    plans = [plan for plan in results if "findings" in plan]
    return {
        "name": host,
        "node": node_name(host, variables),
        "unreachable": (gathered.get("msg") or "no answer").strip() if gathered.get("unreachable") else "",
        "failed": _words(variables["__gpu_doctor_failed"]) if "__gpu_doctor_failed" in variables else "",
        "hops": list(dict.fromkeys(plan["hop"] for plan in plans)),
        "findings": [_without_derived(found) for plan in plans for found in plan["findings"]],
    }


def _words(failed: Mapping[str, Any]) -> str:
    """Why a task failed. gather_facts hides the reason of the module that it calls."""
    results = [*(failed.get("failed_modules") or {}).values(), failed]
    said = (str(result.get("msg") or result.get("module_stderr") or "").strip() for result in results)
    return next(filter(None, said), "the task reported no reason")


def _without_derived(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in _DERIVED}


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"examined_servers": examined_servers}
