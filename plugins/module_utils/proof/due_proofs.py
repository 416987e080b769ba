# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans what must be proven: nodes and a chain that are new or have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import enumeration
from .nodes import GpuServer, ProofNode
from .record import VISIBLE, Entry, Record

NEW = "new"
REPEATED = "repeated"
SEEN = "a pod without a request saw GPUs"
CLAIMED = "its GPUs are offered only by dynamic resource allocation, which the proof does not support"
UNSEEN = "it is unknown whether pods without a request see GPUs"


@dataclass(frozen=True)
class Due:
    """A node on which CUDA must be proven, and the reason."""

    node: ProofNode
    reason: str


@dataclass(frozen=True)
class ProofPlan:
    """Plan of a run.

    due:     nodes to prove.
    waiting: reason why an unproven node cannot be proven now, by name.
    kept:    time of a node's proof, by name.
    chain:   why the chain must be proven; empty if not.
    """

    due: tuple[Due, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    chain: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.due and not self.chain


def plan(
    nodes: Sequence[ProofNode],
    record: Record,
    chain: Mapping[str, str] | None,
    *,
    repeat: bool = False,
    denies: bool = False,
) -> ProofPlan:
    """chain: versions of its components; None to skip it. repeat: also prove what is recorded.

    denies: whether GPUs are only for pods that request them.
    """
    due: list[Due] = []
    waiting: dict[str, str] = {}
    kept: dict[str, str] = {}
    for node in nodes:
        entry = record.machines.get(node.machine)
        reason = REPEATED if repeat else _reason(node, entry, denies)
        if entry is not None and not reason:
            kept[node.name] = entry.at
            if node.provable > entry.gpus:
                waiting[node.name] = in_use(node, entry.gpus)
        elif obstacle := _obstacle(node):
            waiting[node.name] = obstacle
        else:
            due.append(Due(node, reason))
    return ProofPlan(tuple(due), waiting, kept, _chain_reason(record.chain, chain, repeat))


def in_use(node: ProofNode, proven: int) -> str:
    pods = f": {enumeration(node.users)}" if node.users else ""
    return f"{node.provable - proven} of {node.provable} GPUs are in use{pods}"


def _reason(node: ProofNode, entry: Entry | None, denies: bool) -> str:
    """Why it must be proven; empty if not. Devices that have become free must be proven, too."""
    if entry is None:
        return NEW
    if node.is_claimed:
        return CLAIMED
    if entry.error:
        return "failed before"
    if changes := entry.changes(node.versions):
        return ", ".join(changes)
    if min(node.asked, node.provable) > entry.gpus:
        return f"{node.provable - entry.gpus} of {node.provable} GPUs were not proven"
    if not entry.unrequested:
        return UNSEEN
    return SEEN if denies and entry.unrequested == VISIBLE else ""


def may_count(node: ProofNode, entry: Entry) -> bool:
    """Whether an earlier proof has not been refuted: at most values that its server reports are unknown in this run."""
    if entry.error or node.claimable:
        return False
    unread = GpuServer(node.name).reported.keys() - node.versions.keys() if node.server is None else ()
    known = {name: value for name, value in entry.versions.items() if name not in unread}
    return not replace(entry, versions=known).changes(node.versions)


def _obstacle(node: ProofNode) -> str:
    if not node.machine:
        return "the kubelet reports no machine ID"
    if not node.is_ready:
        return "the node is not ready"
    if node.is_claimed:
        return CLAIMED
    if node.is_offered_twice:
        return "its GPUs are offered twice, by a device plugin and a DRA driver"
    if not node.allocatable:
        return "it offers no GPU"
    return "" if node.free else in_use(node, 0)


def _chain_reason(entry: Entry | None, versions: Mapping[str, str] | None, repeat: bool) -> str:
    if versions is None:
        return ""
    if repeat:
        return REPEATED
    if entry is None:
        return NEW
    return "failed before" if entry.error else ", ".join(entry.changes(versions))
