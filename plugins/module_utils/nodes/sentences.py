# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Formats findings about a server as one sentence each, so that a run reports all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..diagnosis.check import Check, CheckResult, S
from ..diagnosis.findings import results_of


def errors(checks: Iterable[Check[S]], state: S) -> list[str]:
    return list(_sentences(checks, state, "error"))


def warnings(checks: Iterable[Check[S]], state: S) -> list[str]:
    return list(_sentences(checks, state, "warning"))


def sentence(result: CheckResult) -> str:
    """Location, what was seen, cause, whether anything was changed, and the next step."""
    unchanged = " Nothing was changed." if result.type.before else ""
    seen, cause, fix = (text.strip().rstrip(".") for text in (result.seen, result.cause, result.fix))
    return f"{result.type.hop}: {result.object} {seen}. Cause: {cause}.{unchanged} Next: {fix} ({result.type.doc})."


def _sentences(checks: Iterable[Check[S]], state: S, severity: str) -> Iterator[str]:
    return (sentence(result) for result in results_of(checks, state) if result.type.severity == severity)
