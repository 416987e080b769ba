# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A server before it becomes a node, and all servers of a play."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .driver_packages import SYSTEMS
from .host import Host

SUPPORTED = tuple(sorted(SYSTEMS))


@dataclass(frozen=True)
class Server:
    """One server.

    user, uid:   user of the tasks.
    wanted_gib:  required free disk space by folder.
    free_gib:    available disk space by folder.
    """

    host: Host
    user: str
    uid: int
    wanted_gib: Mapping[str, float] = field(default_factory=dict)
    free_gib: Mapping[str, float] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_supported(self) -> bool:
        return self.host.system in SUPPORTED

    @property
    def full(self) -> tuple[str, ...]:
        """Folders with too little space. A node already has its packages and images."""
        if self.host.clusters:
            return ()
        return tuple(folder for folder, wanted in self.wanted_gib.items() if self.free_gib[folder] < float(wanted))


@dataclass(frozen=True)
class Servers:
    """All servers of a play.

    wanted:    servers at the start of the play.
    remaining: servers that have not failed.
    needed:    servers that are always required.
    fail_fast: whether all servers are required.
    hostnames: host names by the server's name in the inventory.
    """

    host: Host
    wanted: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    fail_fast: bool = True
    hostnames: Mapping[str, str] = field(default_factory=dict)
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
