from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.retry import (
    FIRST_PAUSE_S,
    PATIENCE_S,
    RETRIES,
    RetryingTransport,
)
from fake_cluster import FakeTransport, refusal

CHAT = "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"
BUSY = refusal(503, "apiserver is shutting down")
OPTIMISTIC_LOCK = refusal(409, "the object has been modified", reason="Conflict")
QUOTA = refusal(409, "the quota has been modified", reason="Conflict", details={"causes": [{"reason": "Other"}]})
CUT_OFF = ApiError(0, "Connection reset by peer", "a request", is_cut_off=True)
FIELD_CONFLICT = refusal(
    409,
    "Apply failed with 1 conflict",
    reason="Conflict",
    details={"causes": [{"reason": "FieldManagerConflict", "message": "conflict", "field": ".spec"}]},
)


class Cluster:
    """A transport with an API server behind it that gives these answers, one after the other; sleeping takes no time.

    jitter: 0, so that pauses have their full length.
    """

    def __init__(self, *answers: Any) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        given: Iterator[Any] = iter(answers)
        self.fake = FakeTransport({f"{method} {CHAT}": given for method in ("GET", "PATCH", "DELETE")})
        self._send = RetryingTransport(self.fake, clock=lambda: self.now, sleep=self._sleep, jitter=lambda: 0)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def ask(self, method: str = "GET", *, retry: bool = True) -> Any:
        return self._send(method, CHAT, query={"a": "b"}, retry=retry)


def test_an_answer_is_not_waited_for() -> None:
    cluster = Cluster({"kind": "Deployment"})
    assert cluster.ask() == {"kind": "Deployment"}
    assert cluster.pauses == []


@pytest.mark.parametrize(
    "passing",
    [*(refusal(status, "busy") for status in (429, 500, 502, 503, 504)), OPTIMISTIC_LOCK, QUOTA, CUT_OFF],
    ids=lambda err: f"{err.status} {err.message}",
)
def test_what_passes_is_sent_again_as_it_was(passing: ApiError) -> None:
    cluster = Cluster(passing, passing, {"spec": {}})
    assert cluster.ask("PATCH") == {"spec": {}}
    assert cluster.fake.requests == [cluster.fake.requests[0]] * 3


@pytest.mark.parametrize(
    "final",
    [
        refusal(400, "unknown field"),
        refusal(403, "forbidden"),
        refusal(404, "not found"),
        refusal(409, "already exists", reason="AlreadyExists"),
        FIELD_CONFLICT,
        ApiError(0, "certificate verify failed", "a request"),
    ],
    ids=lambda err: err.message,
)
def test_what_does_not_pass_is_raised_at_once(final: ApiError) -> None:
    cluster = Cluster(final, {})
    with pytest.raises(ApiError) as caught:
        cluster.ask("PATCH")
    assert caught.value is final
    assert cluster.pauses == []


def test_pauses_double_up_to_a_number_of_retries() -> None:
    cluster = Cluster(*repeat(BUSY, RETRIES + 1), {})
    with pytest.raises(ApiError, match="shutting down"):
        cluster.ask()
    assert cluster.pauses == [FIRST_PAUSE_S * 2**retry for retry in range(RETRIES)]


def test_a_server_that_wants_to_be_asked_at_once_is_not_asked_for_ever() -> None:
    cluster = Cluster(*repeat(ApiError(429, "too many requests", "a request", retry_after_s=0), 100))
    with pytest.raises(ApiError, match="too many requests"):
        cluster.ask()
    assert len(cluster.fake.requests) == 1 + RETRIES


def test_jitter_shortens_a_pause_by_up_to_a_half() -> None:
    pauses: list[float] = []
    fake = FakeTransport({f"GET {CHAT}": iter([BUSY, BUSY, {}])})
    RetryingTransport(fake, sleep=pauses.append, jitter=iter([0.5, 1.0]).__next__)("GET", CHAT, query={})
    assert pauses == [FIRST_PAUSE_S * 0.75, FIRST_PAUSE_S]


def test_the_server_says_when_to_come_back() -> None:
    cluster = Cluster(ApiError(429, "too many requests", "a request", retry_after_s=7), {})
    cluster.ask()
    assert cluster.pauses == [7]


def test_a_server_that_wants_more_time_than_there_is_is_not_waited_for() -> None:
    cluster = Cluster(ApiError(429, "too many requests", "a request", retry_after_s=PATIENCE_S + 1), {})
    with pytest.raises(ApiError, match="too many requests"):
        cluster.ask()
    assert cluster.pauses == []


def test_requests_share_the_patience_with_a_server_that_grants_nothing() -> None:
    cluster = Cluster(*repeat(BUSY, 100))
    for _ in range(50):
        with pytest.raises(ApiError):
            cluster.ask()
    assert sum(cluster.pauses) <= PATIENCE_S


def test_an_answer_restores_the_patience() -> None:
    cluster = Cluster(BUSY, {}, BUSY, {})
    cluster.ask()
    cluster.now += 2 * PATIENCE_S
    cluster.ask()
    assert len(cluster.pauses) == 2


def test_a_refusal_for_good_is_an_answer_too() -> None:
    cluster = Cluster(BUSY, refusal(403, "forbidden"), BUSY, {})
    with pytest.raises(ApiError, match="forbidden"):
        cluster.ask()
    cluster.now += 2 * PATIENCE_S
    cluster.ask()
    assert len(cluster.pauses) == 2


def test_what_the_lost_attempt_has_deleted_counts_as_deleted() -> None:
    cluster = Cluster(CUT_OFF, refusal(404, "not found"))
    assert cluster.ask("DELETE") == {}


def test_what_was_never_there_is_not_found() -> None:
    cluster = Cluster(refusal(404, "not found"))
    with pytest.raises(ApiError, match="not found"):
        cluster.ask("DELETE")


def test_what_is_to_be_asked_once_is_asked_once() -> None:
    cluster = Cluster(BUSY, {})
    with pytest.raises(ApiError, match="shutting down"):
        cluster.ask(retry=False)
    assert cluster.pauses == []


@pytest.mark.parametrize("names", [{"metadata": {"resourceVersion": "7"}}, {"preconditions": {"uid": "1"}}])
def test_what_is_about_one_version_is_not_tried_on_another(names: dict[str, Any]) -> None:
    fake = FakeTransport({f"PATCH {CHAT}": iter([OPTIMISTIC_LOCK, {}])})
    with pytest.raises(ApiError):
        RetryingTransport(fake, sleep=lambda _: None)("PATCH", CHAT, query={}, body=names)
    assert len(fake.requests) == 1
