# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans whether a server can become a node, and all servers of a play one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...diagnosis.check import Check, S
from ...hops import Hop
from ..findings import errors, findings
from ..survey.host import Host
from .checks import SERVER as SERVER_CHECKS
from .checks import SERVERS as SERVERS_CHECKS
from .decisions import Address, Servers, ServerSurvey

_NAMES = {"type": "list", "elements": "str", "default": []}
SERVER: dict[str, Any] = {
    "user": {"type": "str", "required": True},
    "uid": {"type": "int", "required": True},
    "wanted_gib": {"type": "dict", "default": {}},
    "free_gib": {"type": "dict", "default": {}},
    "clock_ahead": {"type": "float", "default": 0.0},
    "unreached": {"type": "dict", "default": {}},
}
SERVERS: dict[str, Any] = {
    "wanted": _NAMES,
    "remaining": _NAMES,
    "needed": _NAMES,
    "fail_fast": {"type": "bool", "default": True},
    "hostnames": {"type": "dict", "default": {}},
    "addresses": {"type": "dict", "default": {}},
    "control_planes": _NAMES,
    "has_own_etcd": {"type": "bool", "default": True},
    "network": {"type": "str", "default": ""},
}


def server_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as SERVER has them."""
    server = ServerSurvey(host, **params)
    found = {"hop": str(Hop.SERVER), "findings": findings(host, SERVER_CHECKS, server)}
    return _refusal(SERVER_CHECKS, server) | found | {"steps": {"examine": server.is_supported and server.uid == 0}}


def servers_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as SERVERS has them."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in params.items()
    }
    values["addresses"] = {name: Address(**address) for name, address in values["addresses"].items()}
    servers = Servers(host, **values)
    return _refusal(SERVERS_CHECKS, servers) | {"reached": servers.reached}


def _refusal(checks: tuple[Check[S], ...], state: S) -> dict[str, Any]:
    refused = errors(checks, state)
    return {"refused": refused, "broken": [], "notices": [], "packages": {}, "files": {}, "steps": {}}
