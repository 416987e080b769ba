# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from .errors import ApiError

RETRIES = 5
# Doubled for each retry. Each is shortened by up to a half, so that clients do not retry at the same time.
FIRST_PAUSE_S = 0.5
# Seconds after which nothing is sent again if the server grants no request at all.
PATIENCE_S = 30.0


class RetryingTransport:
    """Retries requests that the API server rejected temporarily: it is busy or restarts, or others write as well.

    For requests that may reach the server twice, such as reads, server-side apply and deletions. All requests share the
    time, so that a thousand of them do not wait for the same outage one after the other.

    Clock, sleep and jitter (0 to 1) are given in tests.
    """

    def __init__(
        self,
        send: Callable[..., Any],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._send = send
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._failing_since: float | None = None

    def __call__(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
        retry: bool = True,
        **more: Any,
    ) -> Any:
        if not retry:
            return self._send(method, path, query=query, body=body, content_type=content_type, **more)
        sent = 0
        while True:
            try:
                answer = self._send(method, path, query=query, body=body, content_type=content_type, **more)
            except ApiError as err:
                if sent and method == "DELETE" and err.is_not_found:
                    return {}  # the previous attempt deleted it, only the response was lost
                if err.status == 409 and _names_a_version(body):
                    raise  # it is another object, and will remain one
                self._pause_or_raise(err, sent)
                sent += 1
            else:
                self._failing_since = None
                return answer

    def _pause_or_raise(self, err: ApiError, sent: int) -> None:
        if not err.is_retryable:
            self._failing_since = None  # a permanent error is a response
            raise err
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        pause = self._pause_s(err, sent)
        if sent == RETRIES or now + pause > self._failing_since + PATIENCE_S:
            raise err
        self._sleep(pause)

    def _pause_s(self, err: ApiError, sent: int) -> float:
        if err.retry_after_s is not None:
            return err.retry_after_s
        return FIRST_PAUSE_S * 2**sent * (1 - self._jitter() / 2)


def _names_a_version(body: Any) -> bool:
    """Whether a request is for a certain object or version of it, not for any object with the name."""
    if not isinstance(body, Mapping):
        return False
    named = {**(body.get("metadata") or {}), **(body.get("preconditions") or {})}
    return bool(named.get("uid") or named.get("resourceVersion"))
