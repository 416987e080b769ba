# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""When requests are sent, and what came of them: what of the load generator needs neither Locust nor a server.

It runs in the generator's pod, so it imports nothing of the collection.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any

SERVED, REJECTED, REFUSED_IN_STREAM, FAILED, TIMED_OUT = OUTCOMES = (
    "served",
    "rejected",
    "refused_in_stream",
    "failed",
    "timed_out",
)
# Codes by which a server reports that it is full, which is no failure. 529 is Dynamo's.
TOO_MUCH = (429, 503, 529)
# Of the reasons why requests failed, so many are kept: a server can invent a new one for each.
_MOST_REASONS = 20
_PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# Four times as many users that add less than this to the throughput are past the knee.
_GROWTH = 1.1
_REFINEMENTS = 3


def arrivals(stages: Sequence[Mapping[str, float]]) -> Iterator[float]:
    """When requests are due, in seconds from the first, independent of response times.

    stages: each with `seconds`, and `first` and `last`, its rates in requests per second, in a straight line between.
    A request is due whenever the integral of the rate reaches a whole number.
    """
    began_s = owed = 0.0
    for stage in stages:
        seconds, first, last = float(stage["seconds"]), float(stage["first"]), float(stage["last"])
        total = (first + last) / 2 * seconds
        slope = (last - first) / seconds
        # The remainder of binary fractions must not make a request more or fewer at the end of a stage.
        whole = ceil(owed - 1e-9)
        while whole - owed < total - 1e-9:
            ahead = max(0.0, whole - owed)
            root = first + sqrt(max(0.0, first * first + 2 * slope * ahead))
            yield began_s + (2 * ahead / root if root else 0.0)
            whole += 1
        owed += total
        began_s += seconds


@dataclass
class Tally:
    """Requests that were sent in some time. latency_ms, ttft_ms: of those that were served."""

    counts: Counter[str] = field(default_factory=Counter)
    latency_ms: array[float] = field(default_factory=lambda: array("f"))
    ttft_ms: array[float] = field(default_factory=lambda: array("f"))
    tokens: int = 0

    def add(self, answer: Answer) -> None:
        self.counts[answer.outcome] += 1
        if answer.outcome == SERVED:
            self.latency_ms.append(answer.latency_ms)
            self.tokens += answer.tokens
            if answer.ttft_ms is not None:
                self.ttft_ms.append(answer.ttft_ms)

    def figures(self) -> dict[str, Any]:
        """Requests by outcome, `latency_ms` and `ttft_ms` with p50, p95 and p99 or None, and `tokens`."""
        return {
            **{outcome: self.counts[outcome] for outcome in OUTCOMES},
            "latency_ms": percentiles(self.latency_ms),
            "ttft_ms": percentiles(self.ttft_ms),
            "tokens": self.tokens,
        }


@dataclass(frozen=True)
class Answer:
    """What came of a request.

    latency_ms: until the last byte. ttft_ms: until the first token of a stream. tokens: of its usage.
    reason:     why it failed.
    """

    outcome: str
    latency_ms: float = 0.0
    ttft_ms: float | None = None
    tokens: int = 0
    reason: str = ""


def percentiles(times_ms: Sequence[float]) -> dict[str, float] | None:
    """By the nearest rank: times that a request really took."""
    ordered = sorted(times_ms)
    if not ordered:
        return None
    return {name: round(ordered[ceil(share * len(ordered)) - 1], 1) for name, share in _PERCENTILES.items()}


class Reasons:
    """Why requests failed, and how many for each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, reason: str) -> None:
        if reason and (reason in self._counts or len(self._counts) < _MOST_REASONS):
            self._counts[reason] += 1

    def figures(self) -> dict[str, int]:
        return dict(self._counts.most_common(5))


@dataclass
class Stream:
    """Events of a stream as they arrive: server-sent ones, or a JSON object a line; or one answer that is no stream.

    has_token: the first one has come. error: its code, if there was one instead of an answer. tokens: of its usage.
    finish_reason: of the last event of an OpenAI API that has one, as JSON.
    """

    has_token: bool = False
    error: int | str | None = None
    tokens: int = 0
    finish_reason: bytes = b""
    kind: str = "a stream"

    @classmethod
    def of_whole(cls, text: bytes) -> Stream:
        """An answer in JSON that is no stream. One of no OpenAI API is only required not to be empty."""
        answer = cls(kind="an answer")
        answer.line(text)
        answer.has_token = answer.has_token or (bool(text.strip()) and b'"choices"' not in text)
        return answer

    def line(self, line: bytes) -> None:
        text = line.strip().removeprefix(b"data:").lstrip()
        if found := _FINISH.findall(text):
            self.finish_reason = ABORT if ABORT in found else found[0]
        # After the first token only these are of interest, and reading each event would cost more than sending it.
        if not text.startswith(b"{") or (self.has_token and b'"error"' not in text and b'"usage"' not in text):
            return
        try:
            event = json.loads(text)
        except ValueError:
            return
        if error := event.get("error"):
            self.error = error.get("code") if isinstance(error, dict) else str(error)
            self.error = "unknown" if self.error is None else self.error
            return
        if usage := event.get("usage"):
            self.tokens = int(usage.get("completion_tokens") or 0)
        self.has_token = self.has_token or _has_token(event)

    @property
    def outcome(self) -> str:
        if str(self.error) in map(str, TOO_MUCH):
            return REFUSED_IN_STREAM
        return FAILED if self.reason else SERVED

    @property
    def reason(self) -> str:
        """Why it is no answer though its protocol has ended. vLLM answers so while it ends, with status 200."""
        if self.error is not None:
            return f"error {self.error} in {self.kind}"
        if self.finish_reason in (b"null", ABORT):
            return f"{self.kind} that was cut off"
        return "" if self.has_token or self.finish_reason else f"{self.kind} without a token"


ABORT = b'"abort"'
_FINISH = re.compile(rb'"finish_reason"\s*:\s*(null|"\w*")')


def _has_token(event: Mapping[str, Any]) -> bool:
    """An OpenAI API begins a chat with a role, and ends it with its usage. What others send is taken as a token."""
    if "choices" not in event:
        return True
    for choice in event["choices"] or ():
        delta = choice.get("delta") or choice.get("message") or {}
        if choice.get("text") or any(value for key, value in delta.items() if key != "role"):
            return True
    return False


@dataclass(frozen=True)
class Level:
    """What came of so many users that send one request after the other.

    per_second: requests served. holds: whether the goals are met.
    """

    users: int
    per_second: float
    holds: bool


def next_users(done: Sequence[Level], most_users: int) -> int | None:
    """The number of users to try next; None once the goal and the knee are known well enough.

    Twice as many as before, until the goal is missed or more users add no throughput. Then between the last number that
    is good enough and the next one.
    """
    if not done:
        return 1
    levels = sorted(done, key=lambda level: level.users)
    # Numbers between two powers of two are none.
    doublings = [level for level in levels if level.users & (level.users - 1) == 0]
    refinements = len(levels) - len(doublings)
    top = doublings[-1]
    is_flat = len(doublings) > 2 and top.per_second < _GROWTH * doublings[-3].per_second
    goes_on = len(doublings) == 1 or (top.holds and not is_flat)  # one level alone does not show a knee
    if goes_on:
        return 2 * top.users if not refinements and 2 * top.users <= most_users else None
    low, high = _between(levels)
    return (low + high) // 2 if refinements < _REFINEMENTS and high - low > max(1, low // 8) else None


def _between(levels: Sequence[Level]) -> tuple[int, int]:
    """Where the goal is missed, or where the knee is: users of the last good level, and of the next."""
    misses = next((number for number, level in enumerate(levels) if not level.holds), None)
    if misses is None:
        highest = max(level.per_second for level in levels)
        misses = next(number for number, level in enumerate(levels) if _GROWTH * level.per_second >= highest)
    return (levels[misses - 1].users if misses else levels[0].users), levels[misses].users
