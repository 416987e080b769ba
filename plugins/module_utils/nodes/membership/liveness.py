# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Whether a node or an etcd member is alive, and at which address. Each way to lose or to stop one asks this.

A name proves nothing: what answers under the name of a server is that server only at one of its own addresses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...kube.objects import is_ready
from .etcd_members import Member


@dataclass(frozen=True)
class Life:
    """A sign of life. text: what works, as a clause. address: where; empty if the cluster does not report it."""

    text: str
    address: str


@dataclass(frozen=True)
class Departures:
    """What is removed for nodes that are gone. unproven: names of which silence is all the evidence."""

    members: tuple[Member, ...]
    nodes: tuple[str, ...]
    unproven: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """What a cluster shows of its nodes and members.

    nodes:    objects of the API server.
    members:  of etcd, with what each answered.
    kubelets: addresses at which a kubelet answered.
    """

    nodes: Sequence[Mapping[str, Any]] = ()
    members: Sequence[Member] = ()
    kubelets: Collection[str] = ()

    def life(self, name: str, own: Collection[str] = ()) -> Life | None:
        """What is alive under this name, and is not the server with these addresses. None: nothing is."""
        return next((sign for sign in self._signs(name) if sign.address not in own), None)

    def is_only_at(self, name: str, own: Collection[str]) -> bool:
        """Whether the server with these addresses is all that the cluster knows by this name.

        Then its own state is evidence. Otherwise silence is not: another machine may only be out of reach.
        """
        nodes = (internal_address(node) for node in self._nodes(name))
        return {*nodes, *(member.address for member in self.members if member.name == name)} <= {*own}

    def departures(self, gone: Mapping[str, Collection[str]]) -> Departures:
        """gone: addresses of the server that replaces it, by the names of nodes; empty without one."""
        members = tuple(member for member in self.members if member.name in gone)
        nodes = {*map(_name, self.nodes)} & {*gone}
        present = sorted(nodes | {member.name for member in members})
        return Departures(
            members=members,
            nodes=tuple(sorted(nodes)),
            unproven=tuple(name for name in present if not self.is_only_at(name, gone[name])),
        )

    def outside(self, own: Mapping[str, Collection[str]]) -> list[tuple[str, Life]]:
        """Names of members and nodes that are alive, and are none of these servers. own: addresses by node name."""
        names = sorted({member.name for member in self.members} | {*map(_name, self.nodes)})
        found = ((name, self.life(name, own.get(name, ()))) for name in names)
        return [(name, sign) for name, sign in found if sign]

    def _nodes(self, name: str) -> Iterator[Mapping[str, Any]]:
        return (node for node in self.nodes if _name(node) == name)

    def _signs(self, name: str) -> Iterator[Life]:
        for node in self._nodes(name):
            address = internal_address(node)
            if is_ready(node):
                yield Life("that node is Ready", address)
            elif address in self.kubelets and address not in self._addresses_of_others(name):
                yield Life("its kubelet answers", address)
        for member in self.members:
            if member.name == name and member.answers:
                yield Life("its member of etcd answers", member.address)

    def _addresses_of_others(self, name: str) -> set[str]:
        """Of Ready nodes: a kubelet there is theirs."""
        return {internal_address(node) for node in self.nodes if _name(node) != name and is_ready(node)}


def _name(node: Mapping[str, Any]) -> str:
    return str(node["metadata"]["name"])


def internal_address(node: Mapping[str, Any]) -> str:
    addresses = node.get("status", {}).get("addresses") or ()
    return next((str(row["address"]) for row in addresses if row["type"] == "InternalIP"), "")
