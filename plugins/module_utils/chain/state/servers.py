# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Servers of the inventory, as the playbook examined them. No checks here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import HopError
from ...hops import SERVER_TITLES, Hop


@dataclass(frozen=True)
class ServerFinding:
    """A finding of a role's plan, in the format of nodes/findings.py."""

    id: str
    hop: Hop
    severity: str
    seen: str
    cause: str
    fix: str
    is_consequence: bool = False
    explained_by: tuple[Hop, ...] = ()


@dataclass(frozen=True)
class ExaminedServer:
    """name:        in the inventory.
    node:        its current or future name in the cluster.
    unreachable: why it could not be reached; empty if it was.
    failed:      why it could not be examined completely; empty if it was.
    hops:        examined hops.
    """

    name: str
    node: str
    unreachable: str = ""
    failed: str = ""
    hops: tuple[Hop, ...] = ()
    findings: tuple[ServerFinding, ...] = ()

    @property
    def status(self) -> str:
        return "unreachable" if self.unreachable else "failed" if self.failed else "examined"

    @property
    def is_examined(self) -> bool:
        return self.status == "examined"


@dataclass(frozen=True)
class NoCluster:
    """Why only servers were examined.

    is_missing: no kubeconfig exists, so there may be no cluster yet.
    """

    why: str
    is_missing: bool


def server_of(given: Mapping[str, Any]) -> ExaminedServer:
    """Raises: HopError for an unknown hop."""
    return ExaminedServer(
        given["name"],
        given["node"],
        given["unreachable"],
        given["failed"],
        tuple(map(_hop, given["hops"])),
        tuple(_finding(found) for found in given["findings"]),
    )


def _finding(given: Mapping[str, Any]) -> ServerFinding:
    changed = {"hop": _hop(given["hop"]), "explained_by": tuple(map(_hop, given["explained_by"]))}
    return ServerFinding(**{**given, **changed})


def _hop(name: str) -> Hop:
    if name not in SERVER_TITLES:
        raise HopError(
            Hop.SPEC,
            seen=f"servers: unknown hop {name!r}",
            fix=f"pass what the filter examined_servers returns; its hops are {', '.join(SERVER_TITLES)}",
        )
    return Hop(name)
