# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Records the parts of a cluster that could not be read, and the reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..cluster.errors import ApiError, QueryError
from ..cluster.rights import right_to
from ..errors import HopError


@dataclass
class UnreadParts:
    """Reasons why parts of the state could not be read.

    is_strict: only missing permissions make a part unavailable; other errors are raised.
    denied:    missing permissions.
    """

    is_strict: bool = False
    unavailable: dict[str, str] = field(default_factory=dict)
    denied: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, read: Callable[[], Any], empty: Any = ()) -> Any:
        """The result of `read`, or `empty` if the part does not exist or cannot be read.

        Raises: ApiError if the API server does not answer at all. If strict, any error except missing
        permissions.
        """
        return self.note(name, attempt(read), empty)

    def note(self, name: str, answer: Any, empty: Any = ()) -> Any:
        if isinstance(answer, Exception):
            if self._is_fatal(answer):
                raise answer
            self.lack(name, answer)
        return empty if answer is None or isinstance(answer, Exception) else answer

    def _is_fatal(self, err: Exception) -> bool:
        status = err.status if isinstance(err, ApiError) else None
        return status != 403 if self.is_strict else status == 0

    def lack(self, name: str, err: Exception) -> None:
        self.unavailable[name] = reason(err)
        if isinstance(err, ApiError) and err.status == 403:
            self.denied[name] = right_to(err.request)


def attempt(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (ApiError, HopError, QueryError) as err:
        return err


def reason(err: Exception) -> str:
    if isinstance(err, ApiError) and err.status == 401:
        return f"the credentials have expired or are wrong: {err}"
    if isinstance(err, ApiError) and err.status == 403:
        return f"no right to {right_to(err.request)}"
    return str(err)


def message_of(err: Exception) -> str:
    return err.message if isinstance(err, ApiError) else str(err)
