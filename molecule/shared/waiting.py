"""How tests of servers wait: for what is right, and never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen], is_right: Callable[[Seen], object], within_s: float) -> Seen:
    """What is seen as soon as it is right; else what was seen last."""
    deadline = time.monotonic() + within_s
    while not is_right(seen := look()) and time.monotonic() < deadline:
        time.sleep(1)
    return seen
