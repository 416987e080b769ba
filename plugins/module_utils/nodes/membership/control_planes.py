# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Which servers of a run are in the cluster, who leads it, who leaves and who is gone.

Called by nodes/kubernetes. In: the inventory, and what each control plane reported in this play or before. Out: the
server that the others join, and the names that leave or are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class ControlPlane:
    """A control plane, as it has described itself.

    node:        the name of its node.
    state:       `present` or `absent`, as it is wanted.
    is_complete: whether it is a control plane whose init or join has ended.
    addresses:   all that it has; empty if they are unknown.
    """

    host: str
    node: str
    state: str
    is_complete: bool
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Membership:
    """Servers by their names in the inventory.

    control_planes: all of the inventory, in its order.
    hosts:          those that the play still has.
    all_hosts:      the same with those that failed or do not answer.
    servers:        control planes that have described themselves, in this play or in one before.
    nodes:          hosts that the play still has, by the names of their nodes; empty unless nodes are lost.
    elsewhere:      control planes that the run leaves out and that answer, with whether they are complete now.
    silent:         control planes that the run leaves out and that do not answer.
    lost:           names of nodes that the user calls lost.
    """

    control_planes: tuple[str, ...]
    hosts: tuple[str, ...]
    all_hosts: tuple[str, ...]
    servers: Mapping[str, ControlPlane]
    elsewhere: Mapping[str, bool] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    nodes: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    @cached_property
    def complete(self) -> tuple[str, ...]:
        return tuple(name for name in self.control_planes if self._is_complete(name))

    def _is_complete(self, name: str) -> bool:
        """Of one that the run leaves out, an earlier play may remember what is no longer so."""
        if name in self.elsewhere:
            return self.elsewhere[name]
        return name not in self.silent and name in self.servers and self.servers[name].is_complete

    @property
    def control_plane(self) -> str:
        """The server that the others join. Only if none is complete, the first one creates the cluster."""
        return next(iter((*self.complete, *self.control_planes)), "")

    @property
    def staying(self) -> tuple[str, ...]:
        """Control planes of the cluster that this run does not touch."""
        return tuple(name for name in self.complete if name not in self.all_hosts)

    @property
    def staying_beside(self) -> tuple[str, ...]:
        """Control planes of this run that stay, while others of it leave."""
        return tuple(
            name
            for name in self.complete
            if name in self.all_hosts and name in self.servers and self.servers[name].state != "absent"
        )

    @property
    def members(self) -> tuple[ControlPlane, ...]:
        """Control planes of this run that are in the cluster."""
        return tuple(self.servers[name] for name in self.hosts if name in self.complete and name in self.servers)

    @property
    def leaving(self) -> tuple[str, ...]:
        """Nodes of control planes of this run that leave, whether their join has ended or not."""
        return tuple(
            self.servers[name].node
            for name in self.hosts
            if name in self.servers and self.servers[name].state == "absent"
        )

    @property
    def incomplete(self) -> tuple[ControlPlane, ...]:
        """Control planes of this run that are not in the cluster."""
        return tuple(
            self.servers[name]
            for name in self.hosts
            if name in self.control_planes and name not in self.complete and name in self.servers
        )

    @property
    def returned(self) -> tuple[ControlPlane, ...]:
        """Control planes that are bare again, in a cluster that may know their nodes."""
        return tuple(sorted(self.incomplete, key=lambda server: server.node)) if self.complete else ()

    @property
    def gone(self) -> dict[str, tuple[str, ...]]:
        """Addresses of the server that returns, by the names of nodes that are removed; none for a lost one."""
        return dict.fromkeys(self.lost, ()) | {server.node: server.addresses for server in self.returned}

    @property
    def in_play(self) -> dict[str, str]:
        """Hosts of this run by the names of their nodes, whether they answer or not."""
        return {name: name for name in self.all_hosts} | dict(self.nodes)
