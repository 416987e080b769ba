# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks whether the GPU operator has set up all GPU nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]
# Until node-feature-discovery has labelled a node, the operator knows of no GPU, creates nothing, and reports `ready`.
_UNLABELLED = "NFDLabelsMissing"
# Type and status of the condition with the operator's reason: OperandNotReady, DriverNotReady, ReconcileFailed.
_ERROR = ("Error", "True")


@dataclass(frozen=True)
class OperatorStatus:
    """verdict: the state of the ClusterPolicy. valid: validators that are ready. nodes: ready nodes with a GPU."""

    verdict: str
    valid: int
    nodes: int

    @property
    def ready(self) -> bool:
        return self.verdict == "ready" and self.valid >= self.nodes


def operator_status(
    policies: Sequence[Object], validators: Sequence[Object], nodes: Sequence[Object]
) -> OperatorStatus:
    """policies: of kind ClusterPolicy. validators: the operator's DaemonSet of that name, if it exists."""
    return OperatorStatus(
        verdict=_verdict(policies),
        valid=sum(int((validator.get("status") or {}).get("numberReady") or 0) for validator in validators),
        nodes=sum(_is_ready(node) for node in nodes),
    )


def _verdict(policies: Sequence[Object]) -> str:
    if not policies:
        return "no ClusterPolicy"
    state = (policies[0].get("status") or {}).get("state") or "none yet"
    rows = [row for policy in policies for row in _conditions(policy)]
    if _UNLABELLED in [row.get("reason") for row in rows if row["type"] == "Ready"]:
        return f"{state}, without a label of node-feature-discovery"
    errors = [f"{row.get('reason')}: {row.get('message')}" for row in rows if (row["type"], row["status"]) == _ERROR]
    return " ".join((state, *(f"({error})" for error in errors))) if state != "ready" else str(state)


def _is_ready(node: Object) -> bool:
    return any(row["type"] == "Ready" and row["status"] == "True" for row in _conditions(node))


def _conditions(found: Object) -> Sequence[Object]:
    return (found.get("status") or {}).get("conditions") or ()
