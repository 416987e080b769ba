# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Turns check results into findings: causes and their consequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import NAMED, HopError, enumeration
from ..formats.times import timestamp
from ..hops import SERVER_TITLES, TITLES
from .check import ALL, SERVER, Check, CheckResult, FindingType, S


@dataclass
class Finding:
    """A cause: equal results, and their consequences."""

    results: list[CheckResult]
    consequences: list[CheckResult] = field(default_factory=list)

    @property
    def type(self) -> FindingType:
        return self.results[0].type

    @property
    def object(self) -> str:
        return enumeration(list(dict.fromkeys(result.object for result in self.results)))

    def __str__(self) -> str:
        """Text of a warning."""
        first = self.results[0]
        return f"{self.type.hop}: {self.object}: {first.seen} (cause: {first.cause}; fix: {first.fix})"

    def describe(self, now_s: float) -> dict[str, Any]:
        """In the format of the report. now_s: Unix seconds, from which ages count back."""
        first = self.results[0]
        ages = [result.age_s for result in self.results if result.age_s is not None]
        return {
            "id": self.type.id,
            "hop": self.type.hop,
            "severity": self.type.severity,
            "object": self.object,
            "servers": list(dict.fromkeys(name for result in self.results for name in result.servers)),
            "seen": _first_few(result.seen for result in self.results),
            "since": timestamp(now_s - max(ages)) if ages else None,
            "cause": first.cause,
            "fix": first.fix,
            "doc": self.type.doc,
            "consequences": _first_few(
                f"{(TITLES | SERVER_TITLES)[result.type.hop]}: {result.object}: {result.seen}"
                for result in self.consequences
            ),
            "grace_s": max(result.grace_s for result in self.results),
        }

    def error(self) -> HopError:
        first = self.results[0]
        seen = _first_few(result.seen for result in self.results)
        return HopError(self.type.hop, f"{self.object}: {'; '.join(seen)}", first.fix, cause=first.cause)


def results_of(checks: Iterable[Check[S]], state: S) -> Iterator[CheckResult]:
    """Results of all checks that can run, in their order."""
    return (result for check in checks if not check.obstacles(state) for result in check.judge(state))


def first_causes(results: Iterable[CheckResult], *, grace: bool = True) -> list[Finding]:
    """From left to right: a result that an error explains is its consequence, not another finding.

    A result within its grace period is no finding, and neither are its consequences.
    """
    settling, causes = _Explanations(), _Explanations()
    findings: dict[FindingType, Finding] = {}
    for result in results:
        if grace and (result.is_settling or settling.of(result)):
            settling.add(result)
        elif cause := causes.of(result):
            findings[cause.type].consequences.append(result)
        else:
            findings.setdefault(result.type, Finding([])).results.append(result)
            causes.add(result)
    return list(findings.values())


class _Explanations:
    """The first error by what it affects."""

    def __init__(self) -> None:
        self._by_affected: dict[str, tuple[int, CheckResult]] = {}

    def add(self, result: CheckResult) -> None:
        if result.type.severity == "error":
            for name in result.affected:
                self._by_affected.setdefault(name, (len(self._by_affected), result))

    def of(self, result: CheckResult) -> CheckResult | None:
        """The first error that explains a result. An error of the same type is not the cause, but another case."""
        if not (result.type.is_consequence or result.is_cut_off):
            return None
        # A server's result is explained only by the server itself: errors of the whole cluster may be unrelated.
        affected = {name for name in result.affected if name.startswith(SERVER)} or {ALL, *result.affected}
        errors = [self._by_affected[name] for name in affected if name in self._by_affected]
        explaining = [
            (place, error)
            for place, error in errors
            if error.type.id != result.type.id and _may_explain(error.type, result.type)
        ]
        return min(explaining, key=lambda pair: pair[0], default=(0, None))[1]


def _may_explain(error: FindingType, explained: FindingType) -> bool:
    return not explained.explained_by or error.hop in explained.explained_by


def _first_few(texts: Iterable[str]) -> list[str]:
    unique: Sequence[str] = list(dict.fromkeys(texts))
    rest = len(unique) - NAMED
    return [*unique[:NAMED], *([f"and {rest} more"] if rest > 0 else [])]
