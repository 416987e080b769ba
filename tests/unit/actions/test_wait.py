from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline, wait_until


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def counter() -> Iterator[int]:
    yield from range(1000)


def test_what_is_there_at_once_costs_no_time(clock: Clock) -> None:
    numbers = counter()
    deadline = Deadline(10, clock=clock, sleep=clock.sleep)
    assert wait_until(lambda: next(numbers), lambda seen: seen == 0, deadline) == 0
    assert clock.now == 100


def test_waits_until_it_is_there(clock: Clock) -> None:
    numbers = counter()
    deadline = Deadline(10, clock=clock, sleep=clock.sleep)
    assert wait_until(lambda: next(numbers), lambda seen: seen == 3, deadline, poll_s=2) == 3
    assert clock.now == 106


def test_gives_what_was_seen_last_when_the_time_is_over(clock: Clock) -> None:
    numbers = counter()
    deadline = Deadline(5, clock=clock, sleep=clock.sleep)
    assert wait_until(lambda: next(numbers), lambda _seen: False, deadline, poll_s=2) == 3
    assert clock.now == 105
