# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans whether a server can become a node, and all servers of a play one cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...diagnosis.check import Check, S
from ...hops import Hop
from ..findings import errors, findings, warnings
from ..survey.host import Host
from .checks import SERVER as SERVER_CHECKS
from .checks import SERVERS as SERVERS_CHECKS
from .decisions import Address, Servers, ServerSurvey


def server_plan(survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, and fields of ServerSurvey."""
    host = Host.of(survey["host"])
    server = ServerSurvey(
        host,
        user=survey["user"],
        uid=survey["uid"],
        wanted_gib=survey.get("wanted_gib", {}),
        free_gib=survey.get("free_gib", {}),
        clock_ahead=survey.get("clock_ahead", 0),
        unreached=survey.get("unreached", {}),
        architectures=tuple(survey.get("architectures", ())),
        reboots_alone=survey.get("reboots_alone", False),
    )
    found: dict[str, Any] = {"hop": str(Hop.SERVER), "findings": findings(host, SERVER_CHECKS, server)}
    found["notices"] = warnings(SERVER_CHECKS, server)
    return _refusal(SERVER_CHECKS, server) | found | {"steps": {"examine": server.is_supported and server.uid == 0}}


def servers_plan(survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, and fields of Servers. Whether a play has the servers that it needs, under different names."""
    servers = Servers(
        Host.of(survey["host"]),
        wanted=tuple(survey.get("wanted", ())),
        remaining=tuple(survey.get("remaining", ())),
        needed=tuple(survey.get("needed", ())),
        fail_fast=survey.get("fail_fast", True),
        hostnames=survey.get("hostnames", {}),
    )
    return _refusal(SERVERS_CHECKS, servers)


@dataclass(frozen=True)
class ClusterOptions:
    """Options of the role kubernetes."""

    cni: str
    cluster_config: Mapping[str, Any]
    source_check_disabled: bool


def cluster_plan(options: ClusterOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, and `addresses` and `control_planes` as Servers has them. Whether servers reach each other."""
    servers = Servers(
        Host.of(survey["host"]),
        addresses={name: Address(**address) for name, address in survey["addresses"].items()},
        control_planes=tuple(survey["control_planes"]),
        has_own_etcd="external" not in (options.cluster_config.get("etcd") or {}),
        network=options.cni,
        source_check_disabled=options.source_check_disabled,
    )
    return _refusal(SERVERS_CHECKS, servers) | {"reached": servers.reached}


def _refusal(checks: tuple[Check[S], ...], state: S) -> dict[str, Any]:
    refused = errors(checks, state)
    return {"refused": refused, "broken": [], "notices": [], "packages": {}, "files": {}, "steps": {}}
