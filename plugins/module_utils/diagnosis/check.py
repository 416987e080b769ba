# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A check is a question to a state, declared with the findings that it can report.

The state is that of a cluster or a server: checks, findings and their order are the same for both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Generic, Literal, Protocol, TypeVar

from ..errors import HopError
from ..hops import Hop

# A finding that affects everything.
ALL = "*"
# Prefix of a server's name in `affected`.
SERVER = "server "


@dataclass(frozen=True)
class Evidence:
    """A more specific cause and fix, if the evidence matches.

    pattern: regular expression, searched in `reported`, ignoring case.
    """

    pattern: str
    cause: str
    fix: str


@dataclass(frozen=True)
class FindingType:
    """One way in which the chain can break.

    cause, fix:     may contain {variables} of a result.
    grace_s:        a younger condition is temporary in a healthy cluster: in a start, a rolling update.
    is_consequence: an error further left, or earlier in its hop, can explain it.
    explained_by:   only errors of these hops explain it; empty: of any hop.
    evidence:       the first match has the cause and fix.
    before:         effect of the finding before a change: it fails the change, or warns. With "await" it fails, but
                    only warns in check mode, because an earlier task may fix it. None: not checked.
    """

    id: str
    hop: Hop
    severity: Literal["error", "warning"]
    cause: str
    fix: str
    grace_s: int = 0
    is_consequence: bool = False
    explained_by: tuple[Hop, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    before: Literal["refuse", "await", "warn"] | None = None

    @property
    def doc(self) -> str:
        return f"docs/doctor/{self.hop}.md#{self.id.lower()}"


@dataclass(frozen=True)
class FindingTypes:
    """Declares the finding types of one hop. Arguments are fields of FindingType."""

    hop: Hop

    def error(self, id: str, cause: str, fix: str, **more: Any) -> FindingType:
        return FindingType(id, self.hop, "error", cause, fix, **more)

    def warning(self, id: str, cause: str, fix: str, **more: Any) -> FindingType:
        return FindingType(id, self.hop, "warning", cause, fix, **more)


@dataclass(frozen=True)
class CheckResult:
    """One result of a check.

    affected:      what it concerns, and so what it can explain further right: `server <name>`, `node <name>`,
                   `autoscaler <namespace>/<name>`, or ALL.
    age_s:         its age in seconds. None if unknown, and then it counts.
    more_grace_s:  additional grace for an interval of this cluster.
    template_vars: variables for the texts of the type.
    is_cut_off:    its object runs on nodes that do not report, so a finding about these nodes explains it.
    reported:      what Kubernetes wrote about it, without names and logs of users; None: all that was seen.
    """

    type: FindingType
    object: str
    seen: str
    affected: frozenset[str] = frozenset()
    age_s: float | None = None
    more_grace_s: float = 0
    template_vars: Mapping[str, str] = field(default_factory=dict)
    is_cut_off: bool = False
    reported: str | None = None

    def error(self) -> HopError:
        return HopError(self.type.hop, self.seen, self.fix, cause=self.cause)

    @property
    def servers(self) -> list[str]:
        """Names of the servers that it concerns."""
        return sorted(name.removeprefix(SERVER) for name in self.affected if name.startswith(SERVER))

    @property
    def grace_s(self) -> int:
        return round(self.type.grace_s + self.more_grace_s)

    @property
    def is_settling(self) -> bool:
        return self.age_s is not None and self.age_s < self.grace_s

    @property
    def cause(self) -> str:
        return self._text.cause.format(**self.template_vars)

    @property
    def fix(self) -> str:
        return self._text.fix.format(**self.template_vars)

    @property
    def _text(self) -> FindingType | Evidence:
        text = self.seen if self.reported is None else self.reported
        matching = (evidence for evidence in self.type.evidence if re.search(evidence.pattern, text, re.IGNORECASE))
        return next(matching, self.type)


class Readable(Protocol):
    """A state, as far as it could be read.

    unavailable: why a field could not be read, by its name.
    """

    @property
    def unavailable(self) -> Mapping[str, str]: ...


S = TypeVar("S", bound=Readable)
Judge = Callable[[S], Iterator[CheckResult]]


@dataclass(frozen=True)
class Check(Generic[S]):
    """One check of the state.

    needs: required fields of the state.
    """

    name: str
    types: tuple[FindingType, ...]
    judge: Judge[S]
    needs: tuple[str, ...] = ()

    @property
    def hop(self) -> Hop:
        return self.types[0].hop

    @property
    def is_asked_before(self) -> bool:
        """Whether it can run before a change."""
        return any(finding_type.before for finding_type in self.types)

    def obstacles(self, state: S) -> list[str]:
        """Why it cannot run."""
        return [state.unavailable[need] for need in self.needs if need in state.unavailable]


def check(name: str, *types: FindingType, needs: tuple[str, ...] = ()) -> Callable[[Judge[S]], Check[S]]:
    """Turn a function into a check. types: all its findings, in the order of the documentation."""
    return lambda judge: Check(name, types, judge, needs)


def checks_in(*modules: ModuleType) -> tuple[Check[Any], ...]:
    """The checks that modules declare, in their order."""
    return tuple(found for module in modules for found in vars(module).values() if isinstance(found, Check))
