# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Findings about a server as data, which the doctor reports beside those of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..diagnosis.check import Check, CheckResult, S
from ..diagnosis.findings import results_of
from .host import Host


def findings(host: Host, checks: Iterable[Check[S]], state: S) -> list[dict[str, Any]]:
    return [_described(host, result) for result in results_of(checks, state)]


def _described(host: Host, result: CheckResult) -> dict[str, Any]:
    """is_consequence, explained_by: of the type; the doctor uses them to find the cause."""
    return {
        "id": result.type.id,
        "hop": str(result.type.hop),
        "server": host.name,
        "severity": result.type.severity,
        "seen": result.seen,
        "cause": result.cause,
        "fix": result.fix,
        "doc": result.type.doc,
        "is_consequence": result.type.is_consequence,
        "explained_by": [str(hop) for hop in result.type.explained_by],
    }
