# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Output of a program on a server, from a registered result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One run of a program. error: its stderr, or why it could not be started."""

    rc: int | None
    lines: tuple[str, ...] = ()
    error: str = ""

    @classmethod
    def of(cls, result: Mapping[str, Any] | None) -> Answer | None:
        """None for a task that did not run: it was skipped, or will run later."""
        if not result or result.get("skipped"):
            return None
        lines = tuple(str(result.get("stdout") or "").splitlines())
        error = str(result.get("stderr") or result.get("msg") or "").strip()
        return cls(result.get("rc"), lines, error)

    @property
    def words(self) -> str:
        """Its whole output on one line."""
        return " ".join(filter(None, ["; ".join(self.lines), self.error])) or "no answer"


def lines_of(answer: Answer | None) -> tuple[str, ...]:
    """None for values that were not queried."""
    return answer.lines if answer else ()
