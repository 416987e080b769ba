# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A server before it becomes a node, and all servers of a play together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .driver_packages import SYSTEMS
from .host import Host

SUPPORTED = tuple(sorted(SYSTEMS))


@dataclass(frozen=True)
class Server:
    """One server.

    user, uid:   by whom the tasks run.
    wanted_gib:  free disk by folder that a node needs.
    free_gib:    what there is.
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
        """Folders with less than is wanted. A node has its packages and images already."""
        if self.host.clusters:
            return ()
        return tuple(folder for folder, wanted in self.wanted_gib.items() if self.free_gib[folder] < float(wanted))


@dataclass(frozen=True)
class Servers:
    """All servers of a play.

    wanted:    those that the play began with.
    remaining: those that are left.
    needed:    those that may never be left out.
    fail_fast: whether none may be left out.
    hostnames: by the server's name in the inventory.
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
        """Those that are left out and may not be."""
        must_stay = self.wanted if self.fail_fast else self.needed
        return tuple(name for name in self.wanted if name not in self.remaining and name in must_stay)

    @property
    def by_hostname(self) -> dict[str, tuple[str, ...]]:
        """Nodes are named in lower case."""
        found: dict[str, list[str]] = {}
        for server, hostname in self.hostnames.items():
            found.setdefault(hostname.lower(), []).append(server)
        return {hostname: tuple(servers) for hostname, servers in sorted(found.items())}
