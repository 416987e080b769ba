# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Results of checks of a server: as messages of a plan that fails or warns, and as findings for the doctor's report.

Checks create results with `seen_on`. Plans return `errors` and `warnings`, one sentence each, and `findings`, which
the role's examination hands to chain/checks/servers.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..diagnosis.check import Check, CheckResult, FindingType, S
from ..diagnosis.findings import results_of
from .survey.host import Host


def seen_on(server: Host, finding_type: FindingType, seen: str, /, **words: str) -> CheckResult:
    """words: variables for the texts of the type."""
    affected = frozenset({f"server {server.name}"})
    return CheckResult(finding_type, server.name, seen, affected=affected, template_vars=words)


def errors(checks: Iterable[Check[S]], state: S) -> list[str]:
    return list(_sentences(checks, state, "error"))


def warnings(checks: Iterable[Check[S]], state: S) -> list[str]:
    return list(_sentences(checks, state, "warning"))


def _sentences(checks: Iterable[Check[S]], state: S, severity: str) -> Iterator[str]:
    return (sentence(result) for result in results_of(checks, state) if result.type.severity == severity)


def sentence(result: CheckResult) -> str:
    """Location, what was seen, cause, whether anything was changed, and the next step."""
    unchanged = " Nothing was changed." if result.type.before else ""
    seen, cause, fix = (text.strip().rstrip(".") for text in (result.seen, result.cause, result.fix))
    return f"{result.type.hop}: {result.object} {seen}. Cause: {cause}.{unchanged} Next: {fix} ({result.type.doc})."


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
