# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks why a server cannot become a node, and why several cannot become one cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...diagnosis.check import ALL, CheckResult, FindingType, FindingTypes, check
from ...hops import Hop
from ..findings import seen_on
from .decisions import SUPPORTED, Servers, ServerSurvey

_SERVER = FindingTypes(Hop.SERVER)

SYSTEM_UNSUPPORTED = _SERVER.error(
    "SERVER_SYSTEM_UNSUPPORTED",
    "the roles support {supported}",
    "install one of these, or remove the host from kube_control_plane and kube_node",
    before="refuse",
)


@check("the system is supported", SYSTEM_UNSUPPORTED)
def system_is_supported(server: ServerSurvey) -> Iterator[CheckResult]:
    if not server.is_supported:
        supported = f"{', '.join(SUPPORTED[:-1])} and {SUPPORTED[-1]}"
        seen = f"runs {server.host.system}, which is not supported"
        yield seen_on(server.host, SYSTEM_UNSUPPORTED, seen, supported=supported)


ARCHITECTURE_UNTESTED = _SERVER.error(
    "SERVER_ARCHITECTURE_UNTESTED",
    "the collection was tested on x86_64 alone. On ARM (Grace, DGX Spark) the driver is in NVIDIA's repository sbsa, "
    "every image needs a build for it, and GB200 NVL72 needs nvidia-imex, which no role installs",
    "remove the host from kube_control_plane and kube_node; or, to try it, set kubegpu_untested_architectures: "
    "[{architecture}]",
    before="refuse",
)


@check("the architecture was tested", ARCHITECTURE_UNTESTED)
def architecture_was_tested(server: ServerSurvey) -> Iterator[CheckResult]:
    architecture = server.host.architecture
    if server.is_supported and not server.is_tested:
        seen = f"has the architecture {architecture}"
        yield seen_on(server.host, ARCHITECTURE_UNTESTED, seen, architecture=architecture)


REBOOTS_ALONE = _SERVER.warning(
    "SERVER_REBOOTS_ALONE",
    "unattended-upgrades reboots the node without a drain, which ends its pods, and possibly several nodes at the same "
    "time",
    'set `Unattended-Upgrade::Automatic-Reboot "false";` in /etc/apt/apt.conf.d/99kubegpu-local on the server, and run '
    "`ansible-playbook kubegpu.autoscale.maintain`, which drains nodes and reboots them one by one",
)


@check("it does not reboot by itself", REBOOTS_ALONE)
def does_not_reboot_alone(server: ServerSurvey) -> Iterator[CheckResult]:
    if server.reboots_alone:
        yield seen_on(server.host, REBOOTS_ALONE, "has Unattended-Upgrade::Automatic-Reboot on")


NOT_ROOT = _SERVER.error(
    "SERVER_NOT_ROOT",
    "the roles install packages and write to /etc",
    "set `become: true` in the play, or connect as root",
    before="refuse",
)


@check("tasks run as root", NOT_ROOT)
def tasks_run_as_root(server: ServerSurvey) -> Iterator[CheckResult]:
    if server.uid != 0 and server.is_supported:
        yield seen_on(server.host, NOT_ROOT, f"is connected as {server.user}, not as root")


DISK_FULL = _SERVER.error(
    "SERVER_DISK_FULL",
    "packages, images and containers would fill the disk, and the kubelet evicts pods from a full one",
    "free disk space there (`df -h {folders}`), or set kubegpu_free_gib to what you know to be enough",
    before="refuse",
)


@check("there is free disk space", DISK_FULL)
def disk_has_room(server: ServerSurvey) -> Iterator[CheckResult]:
    if server.full:
        rows = "; ".join(
            f"{server.free_gib[folder]} GiB for {folder}, wanted {server.wanted_gib[folder]}" for folder in server.full
        )
        yield seen_on(server.host, DISK_FULL, f"has too little free disk space: {rows}", folders=" ".join(server.full))


CLOCK_WRONG = _SERVER.error(
    "SERVER_CLOCK_WRONG",
    "certificates are not valid yet or expire early, tokens of joins as well, and etcd needs clocks that agree",
    "on the server: `timedatectl set-ntp true` (package systemd-timesyncd or chrony), and `timedatectl` until it shows "
    "that the clock is synchronized; check the controller's clock, too",
    before="refuse",
)


@check("its clock agrees with the controller's", CLOCK_WRONG)
def clock_agrees(server: ServerSurvey) -> Iterator[CheckResult]:
    if server.clock_is_wrong:
        ahead = server.clock_ahead
        seen = f"has a clock that is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the controller's"
        yield seen_on(server.host, CLOCK_WRONG, seen)


PORT_BLOCKED = _SERVER.error(
    "SERVER_PORT_BLOCKED",
    "something between the servers drops the connections, so its join, etcd or `kubectl logs` would time out",
    "allow these ports on the other servers (`ufw allow from SUBNET to any port PORT proto tcp`, security groups, the "
    "switch); docs/servers.md lists all",
    before="refuse",
)


@check("it reaches the ports of other servers", PORT_BLOCKED)
def ports_are_open(server: ServerSurvey) -> Iterator[CheckResult]:
    if server.unreached:
        rows = ", ".join(f"{address} ({reason})" for address, reason in sorted(server.unreached.items()))
        yield seen_on(server.host, PORT_BLOCKED, f"does not reach {rows}")


MISSING = _SERVER.error(
    "SERVER_MISSING",
    "by default a run works on all servers or on none",
    "`ansible {server} -m ping`; or set kubegpu_fail_fast: false to skip such servers",
    before="refuse",
)
CONTROL_PLANE_MISSING = _SERVER.error(
    "SERVER_CONTROL_PLANE_MISSING",
    "control planes are never skipped: with one less, etcd loses its majority when the next one restarts",
    "`ansible {server} -m ping`, and fix that control plane; or remove it from the inventory, and list its node in "
    "kubernetes_lost_nodes",
    before="refuse",
)


@check("no server is missing", MISSING, CONTROL_PLANE_MISSING)
def all_servers_are_there(servers: Servers) -> Iterator[CheckResult]:
    if servers.missing:
        names, first = ", ".join(servers.missing), servers.missing[0]
        if servers.fail_fast:
            yield _seen(MISSING, names, "did not answer", server=first)
        else:
            yield _seen(CONTROL_PLANE_MISSING, names, "did not answer, or failed above", server=first)


NAME_SHARED = _SERVER.error(
    "SERVER_NAME_SHARED",
    "a cluster identifies its nodes by their host names",
    "give each server a unique name: `hostnamectl set-hostname NAME`",
    before="refuse",
)
NAME_INVALID = _SERVER.error(
    "SERVER_NAME_INVALID",
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


SUBNETS = _SERVER.error(
    "SERVER_SUBNETS",
    "kubernetes_cni: bridge routes the pods of a node by its address, which has to be a neighbor's of all others",
    "set kubernetes_cni: flannel, which works across subnets (cilium and calico do, too); or, if the servers have a "
    "second network in common, kubernetes_node_ip of each to its address there",
    before="refuse",
)
_AT_MOST = 5


@check("the network bridge connects servers of one subnet", SUBNETS)
def bridge_has_one_subnet(servers: Servers) -> Iterator[CheckResult]:
    if servers.network == "bridge" and len(servers.by_subnet) > 1:
        rows = [f"{_shortened(names)} in {subnet}" for subnet, names in servers.by_subnet.items()]
        yield _seen(SUBNETS, "servers", f"are in several subnets: {'; '.join(rows)}")


SOURCE_CHECK = _SERVER.error(
    "SERVER_SOURCE_CHECK",
    "kubernetes_cni: bridge sends packets with the addresses of pods, and EC2 drops them unless the source/destination "
    "check of each instance is disabled",
    "set kubernetes_cni: flannel, which needs no change in AWS; or disable the check (`aws ec2 "
    "modify-instance-attribute --no-source-dest-check --instance-id ID`) and set kubernetes_source_check_disabled: "
    "true. The network of a cluster cannot be changed later",
    before="refuse",
)


@check("the cloud forwards packets of the network bridge", SOURCE_CHECK)
def cloud_forwards_pods(servers: Servers) -> Iterator[CheckResult]:
    if servers.network == "bridge" and servers.checked_by_amazon:
        yield _seen(SOURCE_CHECK, _shortened(servers.checked_by_amazon), "run on Amazon EC2")


def _shortened(names: tuple[str, ...]) -> str:
    rest = len(names) - _AT_MOST
    return ", ".join(names[:_AT_MOST]) + (f" and {rest} more" if rest > 0 else "")


SERVER = (
    system_is_supported,
    architecture_was_tested,
    tasks_run_as_root,
    disk_has_room,
    clock_agrees,
    ports_are_open,
    does_not_reboot_alone,
)
SERVERS = (all_servers_are_there, names_fit, bridge_has_one_subnet, cloud_forwards_pods)


def _seen(finding_type: FindingType, names: str, seen: str, **words: str) -> CheckResult:
    return CheckResult(finding_type, names, seen, affected=frozenset({ALL}), template_vars=words)
