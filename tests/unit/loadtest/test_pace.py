"""When the generator sends requests, and what it makes of answers."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import pytest
from collection import ROOT
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(ROOT / "roles" / "gpu_loadtest" / "files"))
from pace import Answer, Level, Reasons, Stream, Tally, arrivals, next_users, percentiles


def stage(seconds: float, first: float, last: float | None = None) -> dict[str, float]:
    return {"seconds": seconds, "first": first, "last": first if last is None else last}


def test_requests_are_due_at_even_distances_whatever_the_answers_take() -> None:
    assert list(arrivals([stage(2, 2)])) == [0, 0.5, 1, 1.5]
    assert list(arrivals([stage(1, 2), stage(1, 4)])) == [0, 0.5, 1, 1.25, 1.5, 1.75]


def test_a_rate_that_rises_and_falls_in_a_straight_line() -> None:
    due_s = list(arrivals([stage(4, 0, 4)]))  # the integral is t * t / 2
    assert due_s == pytest.approx([0, 2**0.5, 2, 6**0.5, 8**0.5, 10**0.5, 12**0.5, 14**0.5])
    falling = list(arrivals([stage(4, 4, 0)]))
    assert falling == pytest.approx([0, *(4 - at for at in reversed(due_s[1:]))])


def test_rates_below_one_add_up_over_stages() -> None:
    assert list(arrivals([stage(3, 0.5), stage(3, 0.5)])) == [0, 2, 4]
    assert list(arrivals([stage(5, 0), stage(1, 1)])) == [5]
    assert list(arrivals([stage(5, 0)])) == []


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0, 200), st.floats(0, 200)), min_size=1, max_size=4))
def test_as_many_requests_as_the_rates_make(rows: list[tuple[int, float, float]]) -> None:
    stages = [stage(*row) for row in rows]
    due_s = list(arrivals(stages))
    total = sum((row["first"] + row["last"]) / 2 * row["seconds"] for row in stages)
    assert abs(len(due_s) - total) <= 1
    assert all(earlier <= later + 1e-6 for earlier, later in pairwise(due_s))
    assert not due_s or (due_s[0] >= 0 and due_s[-1] <= sum(row["seconds"] for row in stages) + 1e-6)


def test_a_percentile_is_a_time_that_a_request_took() -> None:
    assert percentiles(range(1, 101)) == {"p50": 50, "p95": 95, "p99": 99}
    assert percentiles([7.04]) == {"p50": 7.0, "p95": 7.0, "p99": 7.0}
    assert percentiles([]) is None


def test_only_served_requests_have_times() -> None:
    tally = Tally()
    answers = [Answer("served", 20, 5, tokens=3), Answer("served", 40), Answer("rejected", 1), Answer("timed_out")]
    for answer in answers:
        tally.add(answer)
    assert tally.figures() == {
        "served": 2,
        "rejected": 1,
        "refused_in_stream": 0,
        "failed": 0,
        "timed_out": 1,
        "latency_ms": {"p50": 20, "p95": 40, "p99": 40},
        "ttft_ms": {"p50": 5, "p95": 5, "p99": 5},
        "tokens": 3,
    }


def test_a_server_that_invents_reasons_does_not_fill_the_log() -> None:
    reasons = Reasons()
    for number in range(100):
        reasons.add(f"error {number}")
        reasons.add("status 500")
        reasons.add("")
    assert len(reasons.figures()) == 5
    assert next(iter(reasons.figures().items())) == ("status 500", 100)


def streamed(*lines: str) -> Stream:
    stream = Stream()
    for line in lines:
        stream.line(line.encode() + b"\r\n")
    return stream


def finished(reason: str) -> str:
    return f'data: {{"choices": [{{"delta": {{}}, "finish_reason": {reason}}}]}}'


ROLE = 'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}'
TOKEN = 'data: {"choices": [{"delta": {"content": "Hello"}}]}'
USAGE = 'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 16}}'
FULL = 'data: {"error": {"message": "The engine is currently busy", "code": 503}}'


@pytest.mark.parametrize(
    ("lines", "has_token", "tokens", "outcome"),
    [
        pytest.param([ROLE], False, 0, "failed", id="a role is no token"),
        pytest.param([ROLE, finished('"stop"')], False, 0, "served", id="an empty answer"),
        pytest.param([TOKEN, finished("null"), finished('"length"'), USAGE], True, 16, "served", id="finished"),
        pytest.param([TOKEN, finished("null"), "data: [DONE]"], True, 0, "failed", id="cut off"),
        pytest.param([TOKEN, finished("null"), finished('"abort"')], True, 0, "failed", id="aborted"),
        pytest.param(["data: [DONE]"], False, 0, "failed", id="nothing"),
        pytest.param([ROLE, "", TOKEN], True, 0, "served", id="chat"),
        pytest.param(['data: {"choices": [{"text": "Hello"}]}'], True, 0, "served", id="completion"),
        pytest.param(['data: {"choices": [{"delta": {"reasoning_content": "Hm"}}]}'], True, 0, "served", id="thought"),
        pytest.param(['data: {"choices": [{"delta": {"tool_calls": [{}]}}]}'], True, 0, "served", id="tool"),
        pytest.param([TOKEN, USAGE, "data: [DONE]"], True, 16, "served", id="usage"),
        pytest.param(['{"response": "Hello", "done": false}'], True, 0, "served", id="a line of JSON"),
        pytest.param(['data: {"token": {"text": "Hello"}}'], True, 0, "served", id="TGI"),
        pytest.param([FULL], False, 0, "refused_in_stream", id="full"),
        pytest.param([TOKEN, FULL], True, 0, "refused_in_stream", id="full later"),
        pytest.param([FULL.replace("503", '"529"')], False, 0, "refused_in_stream", id="a code as text"),
        pytest.param([FULL.replace("503", "400")], False, 0, "failed", id="an error"),
        pytest.param(['data: {"error": "out of memory"}'], False, 0, "failed", id="an error as text"),
        pytest.param(['data: {"error": {"message": "?"}}'], False, 0, "failed", id="an error without a code"),
        pytest.param([TOKEN.replace("Hello", 'the \\"error\\" was mine')], True, 0, "served", id="a word"),
        pytest.param([": comment", "event: ping", "data: {broken"], False, 0, "failed", id="none of ours"),
    ],
)
def test_what_a_stream_says(lines: list[str], has_token: bool, tokens: int, outcome: str) -> None:
    stream = streamed(*lines)
    assert (stream.has_token, stream.tokens, stream.outcome) == (has_token, tokens, outcome)


CHAT = '{"choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}'


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (CHAT, "served"),
        (CHAT.replace("Hello", ""), "served"),
        (CHAT.replace("Hello", '\\"finish_reason\\": \\"abort\\"'), "served"),
        (CHAT.replace('"stop"', '"abort"'), "failed"),
        (
            CHAT.replace("[{", CHAT[CHAT.index("[{") : -2].replace("stop", "length") + ", {").replace("stop", "abort"),
            "failed",
        ),
        ('{"choices": []}', "failed"),
        ("", "failed"),
        (FULL.removeprefix("data: "), "refused_in_stream"),
        ('{"outputs": [1]}', "served"),
        ("[]", "served"),
    ],
)
def test_what_an_answer_in_json_that_is_no_stream_says(text: str, outcome: str) -> None:
    answer = Stream.of_whole(text.encode())
    assert answer.outcome == outcome, answer
    assert "stream" not in answer.reason


def searched(capacity: float, goal_users: int, *, most_users: int = 1000) -> list[int]:
    """The numbers of users that are tried, in their order, if so many fill the pod and so many still hold the goal."""
    done: list[Level] = []
    while (users := next_users(done, most_users)) is not None:
        done.append(Level(users, min(users, capacity), holds=users <= goal_users))
        assert len(done) < 20, done
    return [level.users for level in done]


@pytest.mark.parametrize(
    ("capacity", "goal_users", "options", "users"),
    [
        pytest.param(16, 17, {}, [1, 2, 4, 8, 16, 32, 24, 20, 18], id="the goal is beyond the knee"),
        pytest.param(64, 11, {}, [1, 2, 4, 8, 16, 12, 10, 11], id="the goal comes first"),
        pytest.param(13, 1000, {}, [1, 2, 4, 8, 16, 32, 64, 12, 10, 11], id="no number of users misses it"),
        pytest.param(1, 0, {}, [1, 2], id="one user misses it"),
        pytest.param(1, 2, {}, [1, 2, 4, 3], id="one at a time"),
        pytest.param(1000, 1000, {"most_users": 10}, [1, 2, 4, 8], id="no more users"),
    ],
)
def test_which_numbers_of_users_are_tried(
    capacity: float, goal_users: int, options: dict[str, Any], users: list[int]
) -> None:
    assert searched(capacity, goal_users, **options) == users
