# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


class Deadline:
    """A moment `seconds` from now. Clock and sleep are given in tests."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._end = clock() + seconds

    def pause(self, seconds: float) -> bool:
        """Sleep, at most until the deadline. Returns False at once if it is over."""
        left = self._end - self._clock()
        if left <= 0:
            return False
        self._sleep(min(seconds, left))
        return True


def wait_until(
    probe: Callable[[], Seen],
    done: Callable[[Seen], bool],
    deadline: Deadline,
    *,
    poll_s: float = 1.0,
    longest_poll_s: float | None = None,
) -> Seen:
    """Probe until `done` returns true or the deadline is over; returns the last result.

    longest_poll_s: pauses grow from `poll_s` up to this many seconds; None keeps them constant.
    """
    seen = probe()
    while not done(seen) and deadline.pause(poll_s):
        seen = probe()
        poll_s = min(poll_s * 1.5, longest_poll_s or poll_s)
    return seen
