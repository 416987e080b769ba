from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.parallel import CONNECTIONS, in_parallel
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import Hop
from fake_cluster import refusal

PATIENCE_S = 20


def test_results_keep_the_order_of_the_items() -> None:
    last_is_done = threading.Event()

    def action(item: int) -> int:
        if item == CONNECTIONS - 1:
            last_is_done.set()
        assert last_is_done.wait(PATIENCE_S)
        return item * item

    assert in_parallel(action, range(100)) == [item * item for item in range(100)]


def test_no_more_than_connections_at_once() -> None:
    full = threading.Barrier(CONNECTIONS)
    lock = threading.Lock()
    under_way, most = 0, 0

    def action(_item: int) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        full.wait(PATIENCE_S)
        with lock:
            under_way -= 1

    in_parallel(action, range(3 * CONNECTIONS))
    assert most == CONNECTIONS


def test_a_refusal_stands_in_place_of_the_result() -> None:
    refused, broken = refusal(400, "unknown field"), HopError(Hop.API_SERVER, seen="a conflict", fix="none")

    def action(item: str) -> str:
        raised: dict[str, ApiError | HopError] = {"b": refused, "d": broken}
        if item in raised:
            raise raised[item]
        return item.upper()

    assert in_parallel(action, "abcde") == ["A", refused, "C", broken, "E"]


def test_a_server_that_falls_silent_is_not_asked_a_thousand_times() -> None:
    silence = ApiError(0, "connection refused", "a request")
    asked: list[int] = []

    def action(item: int) -> int:
        asked.append(item)
        if item >= 10:
            raise silence
        return item

    assert in_parallel(action, range(1000)) == [*range(10), *[silence] * 990]
    assert len(asked) < 10 + 2 * CONNECTIONS


def test_nothing_to_do() -> None:
    assert in_parallel(str, []) == []


def fail() -> None:
    raise ZeroDivisionError("a bug")


def interrupt() -> None:
    """As Ctrl-C does."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.fixture
def listening() -> Iterator[None]:
    """To an interrupt, also where the tests run in the background of a shell, which has them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("act", "raised"), [(fail, ZeroDivisionError), (interrupt, KeyboardInterrupt)])
def test_anything_else_ends_it_without_waiting_for_the_others(
    listening: None, act: Callable[[], None], raised: type[BaseException]
) -> None:
    stuck = threading.Event()
    threads: list[threading.Thread] = []

    def action(item: int) -> None:
        threads.append(threading.current_thread())
        if item == 3:
            act()
        assert stuck.wait(PATIENCE_S), "in_parallel() waits for the others"

    with pytest.raises(raised):
        in_parallel(action, range(1000))
    stuck.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert thread.daemon  # the program may end while it is stuck
    assert len(threads) <= CONNECTIONS
