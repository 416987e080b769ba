# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Results of checks of a server."""

from __future__ import annotations

from ...diagnosis.check import CheckResult, FindingType
from ..host import Host


def seen_on(server: Host, finding_type: FindingType, seen: str, /, **words: str) -> CheckResult:
    """words: variables for the texts of the type."""
    affected = frozenset({f"server {server.name}"})
    return CheckResult(finding_type, server.name, seen, affected=affected, template_vars=words)
