# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks why a server cannot become a node, and why several cannot become one cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...diagnosis.check import ALL, CheckResult, FindingType, check
from ...hops import Hop
from ..server import SUPPORTED, Server, Servers
from .seen import seen_on

SYSTEM_UNSUPPORTED = FindingType(
    "SERVER_SYSTEM_UNSUPPORTED",
    Hop.SERVER,
    "error",
    "the roles support {supported}",
    "install one of these, or remove the host from kube_control_plane and kube_node",
    before="refuse",
)


@check("the system is supported", SYSTEM_UNSUPPORTED)
def system_is_supported(server: Server) -> Iterator[CheckResult]:
    if not server.is_supported:
        supported = f"{', '.join(SUPPORTED[:-1])} and {SUPPORTED[-1]}"
        seen = f"runs {server.host.system}, which is not supported"
        yield seen_on(server.host, SYSTEM_UNSUPPORTED, seen, supported=supported)


NOT_ROOT = FindingType(
    "SERVER_NOT_ROOT",
    Hop.SERVER,
    "error",
    "the roles install packages and write to /etc",
    "set `become: true` in the play, or connect as root",
    before="refuse",
)


@check("tasks run as root", NOT_ROOT)
def tasks_run_as_root(server: Server) -> Iterator[CheckResult]:
    if server.uid != 0 and server.is_supported:
        yield seen_on(server.host, NOT_ROOT, f"is connected as {server.user}, not as root")


DISK_FULL = FindingType(
    "SERVER_DISK_FULL",
    Hop.SERVER,
    "error",
    "packages, images and containers would fill the disk, and the kubelet evicts pods from a full one",
    "free disk space there (`df -h {folders}`), or set kubegpu_free_gib to what you know to be enough",
    before="refuse",
)


@check("there is free disk space", DISK_FULL)
def disk_has_room(server: Server) -> Iterator[CheckResult]:
    if server.full:
        rows = "; ".join(
            f"{server.free_gib[folder]} GiB for {folder}, wanted {server.wanted_gib[folder]}" for folder in server.full
        )
        yield seen_on(server.host, DISK_FULL, f"has too little free disk space: {rows}", folders=" ".join(server.full))


MISSING = FindingType(
    "SERVER_MISSING",
    Hop.SERVER,
    "error",
    "by default a run works on all servers or on none",
    "`ansible {first} -m ping`; or set kubegpu_fail_fast: false to skip such servers",
    before="refuse",
)
CONTROL_PLANE_MISSING = FindingType(
    "SERVER_CONTROL_PLANE_MISSING",
    Hop.SERVER,
    "error",
    "control planes are never skipped: with one less, etcd loses its majority when the next one restarts",
    "`ansible {first} -m ping`, and fix that control plane; or remove it from the inventory, and list its node in "
    "kubernetes_lost_nodes",
    before="refuse",
)


@check("no server is missing", MISSING, CONTROL_PLANE_MISSING)
def all_servers_are_there(servers: Servers) -> Iterator[CheckResult]:
    if servers.missing:
        names, first = ", ".join(servers.missing), servers.missing[0]
        if servers.fail_fast:
            yield _seen(MISSING, names, "did not answer", first=first)
        else:
            yield _seen(CONTROL_PLANE_MISSING, names, "did not answer, or failed above", first=first)


NAME_SHARED = FindingType(
    "SERVER_NAME_SHARED",
    Hop.SERVER,
    "error",
    "a cluster identifies its nodes by their host names",
    "give each server a unique name: `hostnamectl set-hostname NAME`",
    before="refuse",
)
NAME_INVALID = FindingType(
    "SERVER_NAME_INVALID",
    Hop.SERVER,
    "error",
    "names of nodes have letters a-z, digits, `-` and `.`",
    "on the node: `hostnamectl set-hostname NAME`",
    before="refuse",
)
_NAME = re.compile("[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


@check("each server has a unique and valid node name", NAME_SHARED, NAME_INVALID)
def names_fit(servers: Servers) -> Iterator[CheckResult]:
    for hostname, names in servers.by_hostname.items():
        if len(names) > 1:
            yield _seen(NAME_SHARED, " and ".join(names), f"have the same host name, {hostname}")
        if not _NAME.fullmatch(hostname):
            yield _seen(NAME_INVALID, names[0], f"has the host name {hostname}")


SERVER = (system_is_supported, tasks_run_as_root, disk_has_room)
SERVERS = (all_servers_are_there, names_fit)


def _seen(finding_type: FindingType, names: str, seen: str, **words: str) -> CheckResult:
    return CheckResult(finding_type, names, seen, affected=frozenset({ALL}), template_vars=words)
