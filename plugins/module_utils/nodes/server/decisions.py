# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A server before it becomes a node, and all servers of a play.

Called by plan.py, for a server and for all of the play, before any role changes one. In: facts, clocks and free disk
space. Out: what is missing, which checks.py reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from ..driver.packages import SYSTEMS
from ..survey.host import Host

SUPPORTED = tuple(sorted(SYSTEMS))
TESTED_ARCHITECTURE = "x86_64"
AMAZON = "Amazon EC2"  # as firmware names it
# Seconds that a server's clock may differ from the controller's: a task on a busy server begins that much later.
# kubeadm's certificates are valid from 5 minutes before they are made.
CLOCK_TOLERANCE_S = 60
# kubernetes.io, Ports and Protocols. Prometheus and metrics-server ask the kubelet, too.
API_SERVER, KUBELET, ETCD = 6443, 10250, (2379, 2380)


@dataclass(frozen=True)
class ServerSurvey:
    """One server.

    user, uid:   user of the tasks.
    wanted_gib:  required free disk space by folder.
    free_gib:    available disk space by folder.
    clock_ahead: seconds by which its clock is ahead of the controller's.
    unreached:   why it does not reach an address and port of another server, by that address.
    architectures: of ARM for example, that the user wants to try.
    reboots_alone: whether unattended-upgrades reboots it.
    """

    host: Host
    user: str
    uid: int
    wanted_gib: Mapping[str, float] = field(default_factory=dict)
    free_gib: Mapping[str, float] = field(default_factory=dict)
    clock_ahead: float = 0
    unreached: Mapping[str, str] = field(default_factory=dict)
    architectures: tuple[str, ...] = ()
    reboots_alone: bool = False
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_supported(self) -> bool:
        return self.host.system in SUPPORTED

    @property
    def is_tested(self) -> bool:
        return self.host.architecture in (TESTED_ARCHITECTURE, *self.architectures)

    @property
    def full(self) -> tuple[str, ...]:
        """Folders with too little space. A node already has its packages and images."""
        if self.host.clusters:
            return ()
        return tuple(folder for folder, wanted in self.wanted_gib.items() if self.free_gib[folder] < float(wanted))

    @property
    def clock_is_wrong(self) -> bool:
        return abs(self.clock_ahead) > CLOCK_TOLERANCE_S


@dataclass(frozen=True)
class Address:
    """By which the other nodes reach a server.

    subnet: that it is in; empty if unknown. is_node: whether the server is a node already.
    vendor: of the machine, by its firmware.
    """

    address: str
    subnet: str = ""
    is_node: bool = False
    vendor: str = ""


@dataclass(frozen=True)
class Servers:
    """All servers of a play.

    wanted:    servers at the start of the play.
    remaining: servers that have not failed.
    needed:    servers that are always required.
    fail_fast: whether all servers are required.
    hostnames: host names by the server's name in the inventory.
    addresses: likewise.
    control_planes: those of the play.
    has_own_etcd:   whether etcd runs on the control planes.
    network:   the pod network; empty if the run makes no cluster.
    source_check_disabled: whether the cloud accepts packets of pods' addresses, as the user says.
    """

    host: Host
    wanted: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    fail_fast: bool = True
    hostnames: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, Address] = field(default_factory=dict)
    control_planes: tuple[str, ...] = ()
    has_own_etcd: bool = True
    network: str = ""
    source_check_disabled: bool = False
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Required servers that are missing."""
        must_stay = self.wanted if self.fail_fast else self.needed
        return tuple(name for name in self.wanted if name not in self.remaining and name in must_stay)

    @property
    def by_hostname(self) -> dict[str, tuple[str, ...]]:
        """Nodes are named in lower case."""
        found: dict[str, list[str]] = {}
        for server, hostname in self.hostnames.items():
            found.setdefault(hostname.lower(), []).append(server)
        return {hostname: tuple(servers) for hostname, servers in sorted(found.items())}

    @property
    def by_subnet(self) -> dict[str, tuple[str, ...]]:
        """Servers by the subnet of their address, the largest first."""
        found: dict[str, list[str]] = {}
        for server, address in self.addresses.items():
            if address.subnet:
                found.setdefault(address.subnet, []).append(server)
        return {
            subnet: tuple(servers) for subnet, servers in sorted(found.items(), key=lambda row: (-len(row[1]), row[0]))
        }

    @property
    def checked_by_amazon(self) -> tuple[str, ...]:
        """Servers that are no nodes yet and from which EC2 drops what pods send, unless they are alone."""
        if len(self.addresses) < 2 or self.source_check_disabled:
            return ()
        return tuple(
            name for name, address in self.addresses.items() if address.vendor == AMAZON and not address.is_node
        )

    @property
    def reached(self) -> dict[str, list[str]]:
        """Address and port of other servers that each server has to reach, of which one at least is no node yet."""
        return {
            server: [
                f"{_in_url(other.address)}:{port}"
                for name, other in self.addresses.items()
                if name != server and not (own.is_node and other.is_node)
                for port in self._ports(server, name)
            ]
            for server, own in self.addresses.items()
        }

    def _ports(self, server: str, other: str) -> Iterator[int]:
        """Only those of control planes, and theirs: between all nodes they would be the square of their number."""
        if other in self.control_planes:
            yield API_SERVER
        if server in self.control_planes:
            yield KUBELET
            if other in self.control_planes and self.has_own_etcd:
                yield from ETCD


def subnet_of(address: str, prefix: str) -> str:
    """In the notation 192.0.2.0/24; empty where one of them is unknown. prefix: its length, or a mask."""
    try:
        return str(ip_network(f"{address}/{prefix}", strict=False))
    except ValueError:
        return ""


def _in_url(address: str) -> str:
    return f"[{address}]" if ip_address(address).version == 6 else address


def server_addresses(servers: Sequence[str], hostvars: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Fields of the Address of each host that has one. hostvars: variables and facts by host."""
    found = {host: _address(hostvars[host]) for host in servers}
    return {host: asdict(address) for host, address in found.items() if address.address}


def _address(variables: Mapping[str, Any]) -> Address:
    facts = variables.get("ansible_facts") or {}
    wanted = str(variables.get("kubernetes_node_ip") or "").split(",", maxsplit=1)[0].strip()
    address = wanted or (facts.get("default_ipv4") or {}).get("address") or ""
    known = (variables.get("_common_server") or {}).get("result") or {}
    row = next((row for row in _rows(facts) if row.get("address") == address), {})
    subnet = subnet_of(address, str(row.get("prefix") or row.get("netmask") or ""))
    return Address(address, subnet, bool(known.get("clusters")), str(known.get("vendor") or ""))


def _rows(facts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Addresses of all interfaces. A fact has the name of its interface with an underscore for each dash."""
    for interface in facts.get("interfaces") or ():
        details = facts.get(str(interface).replace("-", "_")) or {}
        yield from (row for row in (details.get("ipv4"), *(details.get("ipv4_secondaries") or ())) if row)
