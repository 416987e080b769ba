# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans and evaluates the proof that pods of all nodes reach each other.

Called by plan.py twice: before a server connects, for the addresses, and afterwards with the addresses it missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..survey.host import Host

PORT = 8080
DNS_PORT = 53


@dataclass(frozen=True)
class Peer:
    """A target to connect to. pod: the expected UID; empty if no answer is expected."""

    address: str
    node: str
    pod: str


def peers(pods: Iterable[Mapping[str, Any]], dns: Iterable[Mapping[str, Any]]) -> Iterator[Peer]:
    """pods: those of the proof. dns: pods of the cluster's DNS."""
    yield from (peer for pod in pods for peer in _peers(pod, PORT, str(pod["metadata"]["uid"])))
    yield from (peer for pod in dns for peer in _peers(pod, DNS_PORT, ""))


def _peers(pod: Mapping[str, Any], port: int, answer: str) -> Iterator[Peer]:
    for row in pod["status"].get("podIPs") or ():
        address = f"[{row['ip']}]" if ":" in row["ip"] else row["ip"]
        yield Peer(f"{address}:{port}", str(pod["spec"]["nodeName"]), answer)


@dataclass(frozen=True)
class Reach:
    """Results of a server; nodes/pod_reach/checks.py checks them.

    peers:   targets; None if not known yet.
    has_pod: whether the server had a pod of the proof.
    missed:  reason, by address that was not reached.
    failure: message of the failed task.
    """

    host: Host
    cni: str
    wait_timeout: int
    peers: Sequence[Peer] | None = None
    has_pod: bool = False
    missed: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def missed_peers(self) -> tuple[Peer, ...]:
        return tuple(peer for peer in self.peers or () if peer.address in self.missed)
