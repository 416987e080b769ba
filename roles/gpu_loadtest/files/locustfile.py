# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sends the requests of plan.json, counts what came of them, and prints it as JSON when it ends.

Locust runs it with one user. That sends at the plan's rates, independent of response times, or raises a number of users
that each send one request after the other. `plan.json` and `pace.py` lie beside it.
"""

from __future__ import annotations

import gc
import http.client
import json
import random
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gevent
import gevent.event
from gevent.pool import Pool
from locust import User, events, task

sys.path.insert(0, str(Path(__file__).parent))
from pace import (
    FAILED,
    OUTCOMES,
    REJECTED,
    SERVED,
    TIMED_OUT,
    TOO_MUCH,
    Answer,
    Level,
    Reasons,
    Stream,
    Tally,
    arrivals,
    next_users,
)

PLAN: dict[str, Any] = json.loads((Path(__file__).parent / "plan.json").read_text())
URL = urlsplit(PLAN["url"])
TIMEOUT_S = float(PLAN["timeout_s"])
MOST_USERS = int(PLAN["most_users"])
HEADERS = {"User-Agent": "kubegpu-loadtest", **{str(key): str(value) for key, value in PLAN["headers"].items()}}
BODY = PLAN["body"].encode() or None
STREAMS = ("text/event-stream", "application/x-ndjson", "application/jsonlines")
# Proxies answer 503 for pods that are gone, which is no rejection by a full server: Envoy (two), Traefik, nginx.
BROKEN_UPSTREAM = (
    b"upstream connect error",
    b"no healthy upstream",
    b"no available server",
    b"503 Service Temporarily Unavailable",
)
BEGINS, FIGURES = "kubegpu-loadtest begins", "kubegpu-loadtest figures"
# A name is resolved again after so long, as addresses behind it may change. Pods of a cluster have five search domains.
RESOLVED_S = 5.0
# Users that are rejected wait before they try again: else a full server would answer nothing but that.
PAUSE_S = 0.5
# Requests of a level of users, so that its 95th percentile means something; it lasts so many times as long at most.
ENOUGH, LONGEST = 100, 3


class Address:
    """What the URL's host name leads to: one of its addresses, another one for each request."""

    def __init__(self) -> None:
        self._tls = ssl.create_default_context() if URL.scheme == "https" else None
        self._until_s, self._found = 0.0, []

    def connection(self) -> http.client.HTTPConnection:
        """A new one for each request: pods added later would get no share of existing ones."""
        port = URL.port or (443 if self._tls else 80)
        if time.monotonic() >= self._until_s:
            self._found = socket.getaddrinfo(URL.hostname, port, type=socket.SOCK_STREAM)
            self._until_s = time.monotonic() + RESOLVED_S
        connection = http.client.HTTPConnection(URL.hostname, port)
        family, kind, protocol, _name, address = random.choice(self._found)
        raw = socket.socket(family, kind, protocol)
        try:
            raw.connect(address)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = self._tls.wrap_socket(raw, server_hostname=URL.hostname) if self._tls else raw
        except BaseException:
            raw.close()
            raise
        return connection


ADDRESS = Address()


def ask() -> Answer:
    """Send one request, and read its answer to the last byte."""
    began_s = time.perf_counter()
    connection, limit = None, gevent.Timeout(TIMEOUT_S)
    limit.start()
    try:
        connection = ADDRESS.connection()
        path = f"{URL.path or '/'}{f'?{URL.query}' if URL.query else ''}"
        connection.request(PLAN["method"], path, body=BODY, headers={**HEADERS, "Connection": "close"})
        with connection.getresponse() as response:
            return _answer(response, began_s)
    except gevent.Timeout as timeout:
        if timeout is not limit:
            raise
        return Answer(TIMED_OUT)
    except (OSError, http.client.HTTPException) as error:
        return Answer(FAILED, reason=f"{type(error).__name__}: {error}"[:200])
    finally:
        limit.close()
        if connection:
            connection.close()


def _answer(response: http.client.HTTPResponse, began_s: float) -> Answer:
    status = response.status
    if not 200 <= status < 300:
        text = response.read()
        if status in TOO_MUCH and not any(words in text for words in BROKEN_UPSTREAM):
            return Answer(REJECTED)
        hint = ", which is not followed: use the address that it leads to" if 300 <= status < 400 else ""
        return Answer(FAILED, reason=f"status {status}{hint}")
    kind = response.headers.get("Content-Type") or ""
    if not kind.startswith(STREAMS):
        text = response.read()
        whole = Stream.of_whole(text) if kind.startswith("application/json") else None
        reason = whole.reason if whole else ""
        return Answer(whole.outcome if whole else SERVED, _ms_since(began_s), reason=reason)
    stream, ttft_ms = Stream(), None
    while line := response.readline():
        stream.line(line)
        if stream.has_token and ttft_ms is None:
            ttft_ms = _ms_since(began_s)
    # The client takes a connection that is closed between two chunks for the end of the answer.
    if response.chunked and response.chunk_left is not None:
        return Answer(FAILED, reason="a stream ended without its last chunk")
    reason = stream.reason if stream.outcome == FAILED else ""
    return Answer(stream.outcome, _ms_since(began_s), ttft_ms, stream.tokens, reason)


def _ms_since(began_s: float) -> float:
    return (time.perf_counter() - began_s) * 1000


class Watched:
    """What came of all requests, for a line each second."""

    def __init__(self) -> None:
        self.reasons, self.second, self.in_flight, self.dropped = Reasons(), Tally(), 0, 0
        self.lost_at: Counter[tuple[int, int]] = Counter()
        self.began_s = time.monotonic()

    def ask(self, *tallies: Tally) -> Answer:
        self.in_flight += 1
        began_s, sent_s = time.perf_counter(), int(time.monotonic() - self.began_s)
        try:
            answer = ask()
        finally:
            self.in_flight -= 1
        for tally in (self.second, *tallies):
            tally.add(answer)
        self.reasons.add(answer.reason)
        if answer.outcome in (FAILED, TIMED_OUT):
            self.lost_at[sent_s, int(time.monotonic() - self.began_s)] += 1
        events.request.fire(
            request_type=PLAN["method"],
            name=URL.path or "/",
            response_time=answer.latency_ms or _ms_since(began_s),
            response_length=0,
            exception=None if answer.outcome == SERVED else answer.outcome,
            context={},
        )
        return answer

    def print_each_second(self) -> None:
        while True:
            gevent.sleep(1)
            seen, self.second = self.second.figures(), Tally()
            came = ", ".join(f"{outcome.replace('_', ' ')} {seen[outcome]}" for outcome in OUTCOMES)
            times = "".join(
                f", {label} p95 {seen[key]['p95']:.0f} ms"
                for label, key in (("latency", "latency_ms"), ("first token", "ttft_ms"))
                if seen[key]
            )
            late = f", not sent {self.dropped}" if self.dropped else ""
            passed_s = time.monotonic() - self.began_s
            print(f"{passed_s:7.1f} s  {came}, in flight {self.in_flight}{late}{times}", flush=True)


def play_stages(watched: Watched) -> dict[str, Any]:
    """Send at the rates of the stages. Returns what came of each, of the whole, and of the parts that the plan names.

    `dropped`: requests that were due while all users waited for answers. `late_ms`: by how much a request was sent late
    at most, because this process was not served.
    """
    users, began_s, late_s = Pool(MOST_USERS), time.monotonic(), 0.0
    tallies = [Tally() for _part in PLAN["parts"]]
    for due_s in arrivals(PLAN["stages"]):
        # At least once for each request: else none would be answered while this process catches up.
        gevent.sleep(max(0.0, began_s + due_s - time.monotonic()))
        late_s = max(late_s, time.monotonic() - began_s - due_s)
        if users.free_count() <= 0:
            watched.dropped += 1
            continue
        parts = zip(PLAN["parts"], tallies, strict=True)
        users.spawn(watched.ask, *(tally for part, tally in parts if part["begins_s"] <= due_s < part["ends_s"]))
    gevent.sleep(max(0.0, began_s + sum(stage["seconds"] for stage in PLAN["stages"]) - time.monotonic()))
    users.join()
    found = [tally.figures() for tally in tallies]
    return {"parts": found, "dropped": watched.dropped, "late_ms": round(late_s * 1000, 1)}


def play_levels(watched: Watched) -> dict[str, Any]:
    """Raise the number of users until the goal and the knee are known. Returns what came of each number.

    `began_s` and `ended_s` of a level are in seconds from the line BEGINS: clocks of machines differ.
    """
    plan, found, done = PLAN["sweep"], [], []
    wanted = list(plan["users"])
    while users := (wanted.pop(0) if wanted else 0 if plan["users"] else next_users(done, MOST_USERS)):
        level = _play_level(watched, users, float(plan["settle_s"]), float(plan["level_s"]))
        found.append(level)
        done.append(Level(users, level["per_second"], _holds(level, plan["goals"])))
        print(f"kubegpu-loadtest level {json.dumps(level)}", flush=True)
    return {"levels": found}


def _play_level(watched: Watched, users: int, settle_s: float, level_s: float) -> dict[str, Any]:
    tally, pool = Tally(), Pool(users)
    counted: list[Tally] = []
    is_over = gevent.event.Event()

    def user() -> None:
        # Not all at once: their requests would stay in step.
        is_over.wait(random.random() * min(1.0, settle_s))
        while not is_over.is_set():
            if watched.ask(*counted).outcome != SERVED:
                is_over.wait(PAUSE_S)

    for _user in range(users):
        pool.spawn(user)
    gevent.sleep(settle_s)
    counted.append(tally)
    from_s = time.monotonic()
    while (passed_s := time.monotonic() - from_s) < level_s or (
        tally.counts[SERVED] < ENOUGH and passed_s < LONGEST * level_s
    ):
        gevent.sleep(0.1)
    counted.clear()
    figures, began_s = tally.figures(), from_s - watched.began_s
    # Each gets its last answer: a request that is broken off would be an error of the server.
    is_over.set()
    pool.join()
    return {
        "users": users,
        "began_s": round(began_s, 2),
        "ended_s": round(began_s + passed_s, 2),
        "per_second": round(figures["served"] / passed_s, 3),
        "tokens_per_second": round(figures.pop("tokens") / passed_s, 1),
        **figures,
    }


def _holds(level: Mapping[str, Any], goals: Mapping[str, float]) -> bool:
    sent = sum(level[outcome] for outcome in OUTCOMES)
    rejected = 100 * (sent - level[SERVED]) / sent if sent else 100.0
    if rejected > goals["rejected_percent"]:
        return False
    times = {"p95_ms": level["latency_ms"], "ttft_p95_ms": level["ttft_ms"]}
    return all(times[name] and times[name]["p95"] <= goal for name, goal in goals.items() if name in times)


class Load(User):
    """All of them, to Locust: who they are is decided here."""

    fixed_count = 1

    @task
    def play(self) -> None:
        environment = self.environment
        watched = Watched()
        print(BEGINS, flush=True)
        # Collecting all that Locust has imported takes 30 ms, in which no request is sent.
        gc.freeze()
        printing = gevent.spawn(watched.print_each_second)
        figures = play_levels(watched) if PLAN.get("sweep") else play_stages(watched)
        printing.kill()
        figures["reasons"] = watched.reasons.figures()
        # Requests without an answer, by the seconds in which they were sent and in which that was known, counted from
        # the line BEGINS.
        figures["lost_at"] = [(*seconds, many) for seconds, many in sorted(watched.lost_at.items())]
        environment.events.quit.add_listener(lambda **_: print(f"{FIGURES} {json.dumps(figures)}", flush=True))
        # Requests that failed are figures, not an error of this process.
        environment.process_exit_code = 0
        gevent.spawn(environment.runner.quit)
        gevent.sleep(60)
