from __future__ import annotations

import threading

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.clients import CONNECTIONS, ApiError, in_parallel
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import API_SERVER, HopError
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
    refused, broken = refusal(400, "unknown field"), HopError(API_SERVER, seen="a conflict", fix="none")

    def action(item: str) -> str:
        raised: dict[str, ApiError | HopError] = {"b": refused, "d": broken}
        if item in raised:
            raise raised[item]
        return item.upper()

    assert in_parallel(action, "abcde") == ["A", refused, "C", broken, "E"]


def test_nothing_to_do() -> None:
    assert in_parallel(str, []) == []


@pytest.mark.parametrize("raised", [KeyError, KeyboardInterrupt])
def test_anything_else_ends_it_without_waiting_for_the_others(raised: type[BaseException]) -> None:
    stuck = threading.Event()
    begun: list[int] = []

    def action(item: int) -> None:
        begun.append(item)
        if item == 3:
            raise raised
        stuck.wait()  # for good: in_parallel() returns while it does

    with pytest.raises(raised):
        in_parallel(action, range(1000))
    stuck.set()
    assert len(begun) <= CONNECTIONS
