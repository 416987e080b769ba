"""One model on a GPU, behind a queue: requests take turns, and Prometheus sees how many wait.

POST or GET /v2/models/NAME/infer     occupies the GPU for what the model costs, and answers with how long it took.
                                      Where the queue is full it answers 503 with Retry-After.
GET /healthz                          200 while the GPU works
GET /metrics                          what waits, runs and was served, in Prometheus' text format

After SIGTERM it answers the requests that it has, and ends. The pod's preStop hook delays the signal until no other
requests come.
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

from cuda import CudaError, Gpu

METRICS = """\
# HELP model_requests_waiting Requests in the queue, without the one that runs.
# TYPE model_requests_waiting gauge
model_requests_waiting{{model="{name}"}} {waiting}
# HELP model_requests_total Requests by how they ended.
# TYPE model_requests_total counter
model_requests_total{{model="{name}",result="served"}} {served}
model_requests_total{{model="{name}",result="refused"}} {refused}
# HELP model_gpu_seconds_total Time for which the model has occupied its GPU.
# TYPE model_gpu_seconds_total counter
model_gpu_seconds_total{{model="{name}"}} {busy_s:.3f}
"""


class Model:
    """milliseconds: of the GPU that a request costs. queue: requests that may wait."""

    def __init__(self, name: str, gpu: Gpu, milliseconds: float, queue: int) -> None:
        self.name = name
        self._gpu, self._milliseconds, self._queue = gpu, milliseconds, queue
        self._turn, self._counting = threading.Lock(), threading.Lock()
        self._inside = self._served = self._refused = 0
        self._busy_s = 0.0
        self.error = ""

    def infer(self) -> HTTPStatus:
        """Wait for the GPU and use it. 503 if too many wait, 500 if the GPU failed (then `error` says how)."""
        with self._counting:
            if self._inside > self._queue:
                self._refused += 1
                return HTTPStatus.SERVICE_UNAVAILABLE
            self._inside += 1
        try:
            with self._turn:
                self._gpu.use()
                self._gpu.spin(self._milliseconds)
        except CudaError as error:
            self.error = str(error)
            return HTTPStatus.INTERNAL_SERVER_ERROR
        finally:
            with self._counting:
                self._inside -= 1
        with self._counting:
            self._served += 1
            self._busy_s += self._milliseconds / 1000
        return HTTPStatus.OK

    def metrics(self) -> str:
        with self._counting:
            return METRICS.format(
                name=self.name,
                waiting=max(0, self._inside - 1),
                served=self._served,
                refused=self._refused,
                busy_s=self._busy_s,
            )


class Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close() waits for requests that are being answered
    request_queue_size = 256

    def __init__(self, port: int, model: Model) -> None:
        self.model = model
        super().__init__(("", port), Handler)


class Handler(BaseHTTPRequestHandler):
    """One request, one connection, so that a Service spreads the load anew with each."""

    server: Server

    def do_GET(self) -> None:
        model = self.server.model
        if self.path == f"/v2/models/{model.name}/infer":
            began = time.monotonic()
            status = model.infer()
            answer = {"model": model.name, "seconds": round(time.monotonic() - began, 4)}
            self._answer(status, json.dumps(answer) if status is HTTPStatus.OK else model.error or status.phrase)
        elif self.path == "/healthz":
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE if model.error else HTTPStatus.OK, model.error or "ok")
        elif self.path == "/metrics":
            self._answer(HTTPStatus.OK, model.metrics(), "text/plain; version=0.0.4")
        else:
            self._answer(HTTPStatus.NOT_FOUND, f"there is /v2/models/{model.name}/infer, /healthz and /metrics")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def _answer(self, status: HTTPStatus, text: str, kind: str = "application/json") -> None:
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
    parser.add_argument("model", help="its name in the address")
    parser.add_argument("--milliseconds", type=float, required=True, help="of the GPU that a request costs")
    parser.add_argument("--queue", type=int, default=64, help="requests that may wait (default: 64)")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    try:
        gpu = Gpu()
        gpu.spin(1)
    except CudaError as error:
        sys.exit(f"serve: {error}")
    with Server(arguments.port, Model(arguments.model, gpu, arguments.milliseconds, arguments.queue)) as server:
        # Not in this thread: it is the one that serves. A first process ignores the signal unless it handles it.
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        print(f"model {arguments.model} on port {server.server_port} with {gpu.name}", flush=True)
        server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main()
