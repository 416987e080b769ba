"""A service whose requests cost GPU time, so that its GPU's utilisation is what it was asked to do.

GET or POST /work?ms=20   keeps the pod's GPU busy for so many milliseconds. Requests take turns; beyond --queue of
                          them waiting, the answer is 503 with Retry-After: overload causes rejections, not waits.
GET /healthz              200 while the GPU works; 503 once it failed, and while the pod drains
GET /stats                counters since the start, as JSON
GET /metrics              the same for Prometheus

It listens once a first kernel has run. After SIGTERM it serves on until no request has come for a while: other nodes
learn of the pod's end later than the pod itself.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from cuda import CudaError, Gpu

LONGEST_MS = 10_000


class Worker:
    """The GPU and those who wait for it.

    queue: requests that may wait while one runs.
    """

    def __init__(self, gpu: Gpu, queue: int) -> None:
        self._gpu = gpu
        self._places = threading.BoundedSemaphore(1 + queue)
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._started = time.monotonic()
        self.last_request = self._started
        self.error = ""
        self.served = self.rejected = self.failed = 0
        self.busy_s = 0.0

    def work(self, milliseconds: float) -> HTTPStatus:
        """Run the kernel in turn. Returns 200, 503 if too many wait, or 500 if the GPU failed (see `error`)."""
        self.last_request = time.monotonic()
        if not self._places.acquire(blocking=False):
            with self._counting:
                self.rejected += 1
            return HTTPStatus.SERVICE_UNAVAILABLE
        try:
            with self._turn:
                self._gpu.use()
                self._gpu.spin(milliseconds)
                self.served += 1
                self.busy_s += milliseconds / 1000
            return HTTPStatus.OK
        except CudaError as error:
            self.error = str(error)
            with self._counting:
                self.failed += 1
            return HTTPStatus.INTERNAL_SERVER_ERROR
        finally:
            self._places.release()

    def stats(self) -> dict[str, float | str]:
        """Counters since the start; times in seconds."""
        return {
            "device": self._gpu.name,
            "uuid": self._gpu.uuid,
            "uptime_s": round(time.monotonic() - self._started, 3),
            "served": self.served,
            "rejected": self.rejected,
            "failed": self.failed,
            "busy_s": round(self.busy_s, 3),
        }

    def metrics(self) -> str:
        """The counters in Prometheus' text format."""
        outcomes = {"served": self.served, "rejected": self.rejected, "failed": self.failed}
        requests = (f'sample_requests_total{{outcome="{outcome}"}} {count}' for outcome, count in outcomes.items())
        busy = ["# TYPE sample_gpu_busy_seconds_total counter", f"sample_gpu_busy_seconds_total {self.busy_s:.3f}"]
        return "\n".join(["# TYPE sample_requests_total counter", *requests, *busy])


class Server(ThreadingHTTPServer):
    """Serves a worker until it must drain."""

    daemon_threads = False  # server_close() waits for requests that are being answered
    request_queue_size = 256

    def __init__(self, port: int, worker: Worker) -> None:
        self.worker = worker
        self.draining = threading.Event()
        super().__init__(("", port), Handler)

    def drain(self, quiet_s: float, longest_s: float) -> None:
        """Stop once no request has come for `quiet_s`, at the latest after `longest_s`."""
        self.draining.set()
        began = time.monotonic()
        while time.monotonic() < min(began + longest_s, max(began, self.worker.last_request) + quiet_s):
            time.sleep(0.1)
        self.shutdown()


class Handler(BaseHTTPRequestHandler):
    """One request, one connection, so that the load is spread anew with each."""

    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        worker = self.server.worker
        if url.path == "/work":
            self._work(parse_qs(url.query).get("ms", [""])[0])
        elif url.path == "/healthz":
            trouble = worker.error or ("draining" if self.server.draining.is_set() else "")
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK, trouble or "ok")
        elif url.path == "/stats":
            self._answer(HTTPStatus.OK, json.dumps(worker.stats()), kind="application/json")
        elif url.path == "/metrics":
            self._answer(HTTPStatus.OK, worker.metrics(), kind="text/plain; version=0.0.4")
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there is /work?ms=N, /healthz, /stats and /metrics")

    do_POST = do_GET

    def _work(self, text: str) -> None:
        try:
            milliseconds = float(text)
        except ValueError:
            milliseconds = 0.0
        if not 0 < milliseconds <= LONGEST_MS:
            seen = text or "missing"
            self._answer(HTTPStatus.BAD_REQUEST, f"ms is {seen}; it has to be a number above 0, at most {LONGEST_MS}")
            return
        status = self.server.worker.work(milliseconds)
        self._answer(status, self.server.worker.error or status.phrase)

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain") -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """A line a request would cost more than the request."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--queue", type=int, default=8, help="requests that may wait for the GPU (default: 8)")
    parser.add_argument("--drain-quiet", type=float, default=2.0, help="seconds without a request that end a drain")
    parser.add_argument("--drain-longest", type=float, default=20.0, help="seconds that end it in any case")
    arguments = parser.parse_args()
    try:
        gpu = Gpu()
        gpu.spin(1)
    except CudaError as error:
        sys.exit(f"sample_service: {error}")
    with Server(arguments.port, Worker(gpu, arguments.queue)) as server:

        def drain(*_: object) -> None:
            # Not in this thread: it is the one that serves.
            threading.Thread(target=server.drain, args=(arguments.drain_quiet, arguments.drain_longest)).start()

        signal.signal(signal.SIGTERM, drain)
        signal.signal(signal.SIGINT, drain)
        print(f"serving on port {server.server_port} with {gpu.name} ({gpu.uuid})", flush=True)
        server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main()
