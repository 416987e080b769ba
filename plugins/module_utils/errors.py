# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Items that a message lists before it counts the rest.
NAMED = 5


class HopError(Exception):
    """An error of a hop or an option, with evidence, cause and fix.

    result: additional output for the caller, for example the object as last seen.
    others: additional errors for the message.
    """

    def __init__(
        self,
        hop: str,
        seen: str,
        fix: str,
        result: Mapping[str, Any] | None = None,
        others: Sequence[HopError] = (),
        cause: str = "",
    ) -> None:
        named = [str(other) for other in others[: NAMED - 1]]
        more = [f"and {len(others) - len(named)} more"] if len(others) > len(named) else []
        why = f"\n  cause: {cause}" if cause else ""
        super().__init__("\n".join([f"{hop}: {seen}{why}\n  fix: {fix}", *named, *more]))
        self.hop = str(hop)
        self.seen = seen
        self.cause = cause
        self.fix = fix
        self.result = dict(result or {})

    def of(self, subject: str) -> HopError:
        """The same error, with the name of its subject."""
        return HopError(self.hop, f"{subject}: {self.seen}", self.fix, self.result, cause=self.cause)


def first_of_all(errors: Sequence[HopError]) -> HopError:
    """One error with all of them; its hop and fix are those of the first."""
    first, *others = errors
    return HopError(first.hop, first.seen, first.fix, first.result, others, first.cause)


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def enumeration(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
