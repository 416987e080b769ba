# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from ..errors import HopError
from .errors import ApiError

Item = TypeVar("Item")
Done = TypeVar("Done")

# Concurrent requests, each on a separate connection.
CONNECTIONS = 8


def in_parallel(action: Callable[[Item], Done], items: Sequence[Item]) -> list[Done | HopError | ApiError]:
    """Each item's result, or its HopError or ApiError, in the order of items.

    At most CONNECTIONS items run at once. After a connection failure the remaining items fail with the same
    error. Any other exception aborts immediately: running requests are abandoned, because their threads are daemons.
    """
    results: dict[int, Done | HopError | ApiError] = {}
    left = deque(enumerate(items))
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def work() -> None:
        try:
            for index, item in _taken(left):
                results[index] = _attempt(action, item)
                result = results[index]
                if isinstance(result, ApiError) and result.status == 0:
                    results.update((other, results[index]) for other, _item in _taken(left))
        except BaseException as err:
            ended.put(err)
        else:
            ended.put(None)

    threads = [Thread(target=work, daemon=True) for _number in range(min(CONNECTIONS, len(items)))]
    try:
        for thread in threads:
            thread.start()
        for _thread in threads:
            if (err := ended.get()) is not None:
                raise err
    finally:
        left.clear()
    return [results[index] for index in range(len(items))]


def all_in_parallel(action: Callable[[Item], Done], items: Sequence[Item]) -> list[Done]:
    """Like in_parallel, but raises the first error."""
    results = in_parallel(action, items)
    for result in results:
        if isinstance(result, (HopError, ApiError)):
            raise result
    return [result for result in results if not isinstance(result, (HopError, ApiError))]


def _taken(left: deque[tuple[int, Item]]) -> Iterator[tuple[int, Item]]:
    """Items of an iterator, for several threads."""
    while True:
        try:
            taken = left.popleft()
        except IndexError:
            return
        yield taken


def _attempt(action: Callable[[Item], Done], item: Item) -> Done | HopError | ApiError:
    try:
        return action(item)
    except (HopError, ApiError) as err:
        return err
