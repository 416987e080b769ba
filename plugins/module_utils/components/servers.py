# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What a run knows about the servers of an inventory, for the doctor and the proof."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..server.fabric import fabric_states
from .node_labels import node_name

# The report derives these.
_DERIVED = ("server", "doc")
# As in `GPU 0: NVIDIA H200 (UUID: GPU-...)`, and in `NVIDIA Container Toolkit CLI version 1.19.0`.
_UUID = re.compile(r"\(UUID: ([^)]+)\)")
_RELEASE = re.compile(r"version (\S+)")


def examined_servers(servers: Sequence[str], hostvars: Mapping[str, Any], roles: Sequence[str]) -> list[dict[str, Any]]:
    """The servers that this run examined, with the findings of all plans, in the format of gpu_doctor.

    servers: hosts. hostvars: variables and facts by host; the plan of a role is `__ROLE_plan`. roles: their names.
    """
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


def server_gpu_facts(servers: Sequence[str], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`node` and `facts` of each server that this run surveyed: the result of gpu_facts, and what other tasks read.

    servers: hosts. hostvars: variables and facts by host.
    """
    facts = {host: hostvars[host].get("ansible_facts") or {} for host in servers}
    return [
        {"node": node_name(host, hostvars[host]), "facts": {**known["gpu_facts"], **_besides(hostvars[host])}}
        for host, known in facts.items()
        if "gpu_facts" in known
    ]


def _besides(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Expected GPUs, NVLink fabric, UUIDs and container toolkit of a server, which are not part of its facts."""
    expected = variables.get("nvidia_driver_expected_gpus")
    checksum = ((variables.get("gpu_proof_toolkit_config") or {}).get("stat") or {}).get("checksum")
    found = {
        "fabric": fabric_states(_output(variables, "gpu_proof_described")),
        "uuids": _UUID.findall(_output(variables, "gpu_proof_listed")),
        "toolkit": "".join(_RELEASE.findall(_output(variables, "gpu_proof_toolkit"))[:1]),
        "toolkit_config": str(checksum or "")[:12],
    }
    known = {name: value for name, value in found.items() if value}
    return known if expected is None else {**known, "expected_gpus": int(expected)}


def _output(variables: Mapping[str, Any], command: str) -> str:
    return str((variables.get(command) or {}).get("stdout") or "")
