"""The load generator as a process: Locust itself, which sends real requests to servers on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.job import Generator, manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.request_schedule import load_plan, sweep_plan
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.shapes import stages_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.stage_results import scale_downs
from collection import ROOT
from control_plane import free_port
from model_servers import sample_server

FILES = ROOT / "roles" / "gpu_loadtest" / "files"
TOKEN = "a-secret-token"
ROLE = 'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
WORD = 'data: {"choices": [{"delta": {"content": "Hello "}}]}\n\n'
USAGE = 'data: {"choices": [], "usage": {"completion_tokens": 4}}\n\ndata: [DONE]\n\n'
CUT_OFF = 'data: {"choices": [{"text": "Hello", "finish_reason": null}]}\n\ndata: [DONE]\n\n'
PROXIES = {
    "envoy": "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
    "envoy-none": "no healthy upstream",
    "traefik": "no available server\n",
    "nginx": "<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body></body></html>\r\n",
}
CHAT = '{"choices": [{"message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}'
ANSWERS = {"chat": CHAT, "abort": CHAT.replace("stop", "abort"), "empty": ""}
# What users lose while a pod ends, by path, as a stream and not as one.
LOSSES = [f"/{kind}{ending}" for kind in ("", "stream-") for ending in (*PROXIES, "abort", "empty", "hang")]
FULL = 'data: {"error": {"message": "The engine is currently busy", "code": 503}}\n\n'


class Handler(BaseHTTPRequestHandler):
    """An answer by its path: /slow takes half a second, /hang never ends, /404, /three serves three at a time; those of
    PROXIES whose pods have gone, and of ANSWERS in JSON; and the streams of an OpenAI API, of which /stream-broken ends
    between two chunks, /stream-empty has no token, and /stream-cut-off no finish_reason.
    """

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, Any, bytes]] = []
    places = threading.BoundedSemaphore(3)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.seen.append((self.path, dict(self.headers), body))
        if self.path == "/slow":
            time.sleep(0.5)
        if self.path.endswith("hang"):
            time.sleep(5)
        if self.path.startswith("/stream") and self.path.removeprefix("/stream-") not in PROXIES:
            self._stream()
            return
        status = int(self.path[1:]) if self.path[1:].isdecimal() else 200
        if self.path == "/three":
            status = self._taking_a_place()
        proxied = PROXIES.get(self.path[1:].removeprefix("stream-"), "")
        text = (proxied or ANSWERS.get(self.path[1:], "")).encode()
        self.send_response(503 if proxied else status)
        if self.path[1:] in ANSWERS:
            self.send_header("Content-Type", "application/json")
        if status == 301:
            self.send_header("Location", "/slow")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST

    def _taking_a_place(self) -> int:
        if not self.places.acquire(blocking=False):
            return 429
        time.sleep(0.3)
        self.places.release()
        return 200

    def _stream(self) -> None:
        """The headers at once, the role after 0.1 s, a token each 0.1 s from 0.3 s on."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.path == "/stream-full":
            self._chunks(0.05, FULL)
        elif self.path == "/stream-cut-off":
            self._chunks(0.05, CUT_OFF)
        elif self.path == "/stream-abort":
            self._chunks(0.05, WORD, CUT_OFF.replace("null", '"abort"'))
        elif self.path == "/stream-empty":
            self._chunks(0.05, "data: [DONE]\n\n")
        else:
            self._chunks(0.1, ROLE)
            time.sleep(0.1)
            self._chunks(0.1, WORD, WORD, WORD, WORD, USAGE)
        if self.path == "/stream-broken":
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _chunks(self, each_s: float, *texts: str) -> None:
        for text in texts:
            time.sleep(each_s)
            self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def sample(folder: Path) -> Iterator[str]:
    port = free_port()
    with sample_server(folder, port):
        yield f"http://127.0.0.1:{port}/work?ms=20"


def locust(folder: Path, plan: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """What the generator prints in the end, and all of its log, by the arguments that its Job has."""
    given = {"method": "GET", "body": "", "headers": {}, "timeout_s": 5, "most_users": 100}
    (folder / "plan.json").write_text(json.dumps(given | plan))
    for name in ("locustfile.py", "pace.py"):
        (folder / name).write_text((FILES / name).read_text())
    job = manifests(Generator("load", "ml", "default", "locust", {}, seconds=1, start_timeout=1))[0]
    [container] = job["spec"]["template"]["spec"]["containers"]
    arguments = [argument.replace("/plan/", f"{folder}/") for argument in container["args"]]
    command = [sys.executable, "-m", "locust", *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("kubegpu-loadtest figures {"), done.stdout
    return json.loads(last.removeprefix("kubegpu-loadtest figures ")), done.stdout


def loaded(folder: Path, url: str, high: float = 20, hold_s: int = 3, **options: Any) -> tuple[dict[str, Any], str]:
    stages = stages_of("step", low=0, high=high, settle_s=0, fall_s=0, hold_s=hold_s)
    given = {"url": url, "timeout_s": 5, "most_users": 100, **options}
    return locust(folder, load_plan(given, stages))


def test_it_is_the_version_of_the_image() -> None:
    pinned = yaml.safe_load((ROOT / "roles/_common/defaults/main/versions.yml").read_text())["kubegpu_pinned_versions"]
    assert pinned["images"]["locust"].endswith(f":{version('locust')}")


def test_a_slow_server_gets_as_many_requests_as_a_fast_one(tmp_path: Path, server: str) -> None:
    figures, log = loaded(tmp_path, f"{server}/slow")
    [load, settled] = figures["parts"]
    assert (load["served"], settled["served"], figures["dropped"]) == (60, 30, 0)
    assert load["latency_ms"]["p50"] >= 500
    assert load["ttft_ms"] is None
    lines = log.splitlines()
    assert "kubegpu-loadtest begins" in lines
    # Twenty a second that take half a second each: none waits for the answer to another.
    assert max(map(int, re.findall(r"in flight (\d+)", log))) >= 8
    assert figures["late_ms"] < 2000


def test_requests_that_no_user_is_free_for_are_counted(tmp_path: Path, server: str) -> None:
    """Five users, half a second each: ten requests a second of twenty."""
    figures, _log = loaded(tmp_path, f"{server}/slow", most_users=5)
    load = figures["parts"][0]
    assert load["served"] + figures["dropped"] == 60
    assert 15 <= load["served"] <= 35


def test_a_stream_is_read_while_it_arrives(tmp_path: Path, server: str) -> None:
    """Its headers come at once, the first token after 0.3 s, the last byte after 0.7 s."""
    body = json.dumps({"stream": True})
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    figures, log = loaded(tmp_path, f"{server}/stream", method="POST", body=body, headers=headers)
    load = figures["parts"][0]
    assert (load["served"], load["tokens"]) == (60, 240)
    first_ms, whole_ms = load["ttft_ms"]["p50"], load["latency_ms"]["p50"]
    assert first_ms >= 290
    assert whole_ms >= 690
    assert whole_ms - first_ms >= 250  # four more tokens and the usage
    path, sent, text = Handler.seen[-1]
    assert (path, sent["Authorization"], text) == ("/stream", f"Bearer {TOKEN}", body.encode())
    assert TOKEN not in log


@pytest.mark.parametrize(
    ("path", "outcome", "reason"),
    [
        ("/429", "rejected", None),
        ("/503", "rejected", None),
        ("/529", "rejected", None),
        ("/stream-full", "refused_in_stream", None),
        ("/stream-broken", "failed", "a stream ended without its last chunk"),
        ("/stream-empty", "failed", "a stream without a token"),
        ("/stream-cut-off", "failed", "a stream that was cut off"),
        ("/chat", "served", None),
        ("/abort", "failed", "an answer that was cut off"),
        ("/empty", "failed", "an answer without a token"),
        ("/404", "failed", "status 404"),
        ("/301", "failed", "status 301, which is not followed: use the address that it leads to"),
        ("/hang", "timed_out", None),
    ],
)
def test_what_came_of_requests(tmp_path: Path, server: str, path: str, outcome: str, reason: str | None) -> None:
    figures, _log = loaded(tmp_path, server + path, high=10, hold_s=1, timeout_s=1)
    load = figures["parts"][0]
    assert {name: load[name] for name in load if load[name] and name != "latency_ms"} == {outcome: 10}
    assert figures["reasons"] == ({reason: 10} if reason else {})
    lost_at = figures["lost_at"]
    assert sum(many for _sent, _known, many in lost_at) == (10 if outcome in ("failed", "timed_out") else 0)
    assert all(0 <= sent <= known <= 4 for sent, known, _many in lost_at)


@pytest.mark.parametrize("path", LOSSES)
def test_each_loss_is_counted_once_in_the_scale_down_that_it_was_sent_in(
    tmp_path: Path, server: str, path: str
) -> None:
    """Pods end while the requests are sent, and others, which may have their names, when their time is out."""
    figures, _log = loaded(tmp_path, server + path, high=10, hold_s=1, timeout_s=4)
    assert figures["parts"][0]["served"] == 0
    for names in ("chat-0", "chat-0"), ("chat-0", "chat-1"):
        ends = [
            {"uid": str(number), "name": name, "began_s": began_s, "seen_s": began_s + 1, "ended_s": began_s + 1}
            for number, (name, began_s) in enumerate(zip(names, (0, 4.5), strict=True))
        ]
        rows = scale_downs({"began_s": 0, "samples": [], "ends": ends, "requests": figures})
        assert [(row["pods"], row["lost"]) for row in rows] == [([names[0]], 10), ([names[1]], 0)]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    figures, _log = loaded(tmp_path, f"http://127.0.0.1:{free_port()}/", high=10, hold_s=1)
    assert figures["parts"][0]["failed"] == 10
    [reason] = figures["reasons"]
    assert "refused" in reason


def test_the_sample_service_under_more_than_it_can_do(tmp_path: Path) -> None:
    """It does some 50 requests a second, and lets eight wait."""
    with sample(tmp_path) as url:
        figures, _log = loaded(tmp_path, url, high=100, hold_s=4)
    load = figures["parts"][0]
    assert load["served"] + load["rejected"] == 400
    assert 50 <= load["served"] <= 215
    assert load["latency_ms"]["p95"] >= 150


def test_users_are_raised_until_the_goal_is_missed(tmp_path: Path, server: str) -> None:
    """The server takes 0.3 s for each request, and rejects a fourth one at a time."""
    plan = sweep_plan({"url": f"{server}/three", "timeout_s": 5, "most_users": 100}, {}, settle_s=0.5, level_s=1)
    figures, log = locust(tmp_path, plan)
    levels = figures["levels"]
    assert [level["users"] for level in levels] == [1, 2, 4, 3]
    assert [level["rejected"] > 0 for level in levels] == [False, False, True, False]
    assert all(level["served"] > 0 and level["latency_ms"]["p50"] >= 300 for level in levels)
    # Three times its second: none has a hundred requests in that.
    assert all(level["ended_s"] - level["began_s"] >= 3 for level in levels)
    assert levels[0]["began_s"] >= 0.5
    assert log.count("kubegpu-loadtest level {") == len(levels)
