"""The load of all workloads of the benchmark, and who serves it: requests are played here, not sent.

Each workload follows a trace of GPU-seconds a second. Its requests come at random (Poisson) and go to a random ready
pod, as kube-proxy sends them. A pod serves one at a time and lets some wait, as the sample service does. What is more
is rejected. The API server says which pods are ready, in EndpointSlices. Each pod is told how long its GPU was busy,
and does that.

PUT /traces    {workload: [[time, GPUs], ...]}: Unix times that ascend; between two of them the load goes in a line
PUT /requests  [time, ...]: Unix times of requests that each workload gets beside those of its trace, in ascending order
GET /record    {workload: {"ready": [[time, pods], ...], "counts": [[time, offered, served, rejected], ...],
               "latencies": [[time, served within a quarter of a request's cost, between that and two quarters, ...],
               ...]}} since then; each is a counter
GET /metrics   the counters, for Prometheus
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import socket
import ssl
import threading
import time
import urllib.request
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

TICK_S = 0.2
RECORD_S = 1.0
# GPU time of a request, and the steps in which its time in the queue and on the GPU is recorded.
COST_MS, STEPS_OF_COST = 20.0, 4
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PLAYERS = "kubegpu.autoscale/bench=player"


def load_at(trace: Sequence[Sequence[float]], now: float) -> float:
    """GPUs at a time; before the first point and after the last as there."""
    place = bisect_right(trace, now, key=lambda point: point[0])
    if place == 0:
        return trace[0][1] if trace else 0.0
    if place == len(trace):
        return trace[-1][1]
    (begin, low), (end, high) = trace[place - 1], trace[place]
    return low + (high - low) * (now - begin) / (end - begin)


class Workload:
    """One service: its trace, its pods and what became of its requests.

    cost_s: GPU time of a request. places: requests that a pod holds, the one that it serves among them.
    """

    def __init__(self, cost_s: float, places: int, chance: random.Random) -> None:
        self._cost_s, self._places, self._chance = cost_s, places, chance
        self._free: dict[str, float] = {}  # by pod: when it has served all that it took
        self.trace: Sequence[Sequence[float]] = []
        self.offered = self.served = self.rejected = 0
        self.latencies = [0] * (places * STEPS_OF_COST)
        self.requests: Sequence[float] = []

    def set_pods(self, pods: set[str], now: float) -> None:
        self._free = {pod: self._free.get(pod, now) for pod in pods}

    def tick(self, begin: float, end: float) -> dict[str, float]:
        """Play the requests of this time. Returns: by pod, the seconds for which its GPU was busy."""
        pods = sorted(self._free)
        carried = {pod: max(self._free[pod] - begin, 0.0) for pod in pods}
        taken = dict.fromkeys(pods, 0.0)
        for now in self._arrivals(begin, end):
            self.offered += 1
            pod = self._chance.choice(pods) if pods else None
            if pod is None or self._free[pod] - now > (self._places - 1) * self._cost_s:
                self.rejected += 1
                continue
            self.served += 1
            self._free[pod] = max(self._free[pod], now) + self._cost_s
            self.latencies[ceil((self._free[pod] - now) / self._cost_s * STEPS_OF_COST - 1e-6) - 1] += 1
            taken[pod] += self._cost_s
        return {pod: carried[pod] + taken[pod] - max(self._free[pod] - end, 0.0) for pod in pods}

    def _arrivals(self, begin: float, end: float) -> list[float]:
        given = list(self.requests[bisect_left(self.requests, begin) : bisect_left(self.requests, end)])
        rate, now = load_at(self.trace, begin) / self._cost_s, begin
        while rate and (now := now + self._chance.expovariate(rate)) < end:
            given.append(now)
        return sorted(given)


class Balancer:
    """All workloads; the watch and the clock are two threads."""

    def __init__(self, cost_s: float, places: int, port: int) -> None:
        self._cost_s, self._places, self._port = cost_s, places, port
        self._workloads: dict[str, Workload] = {}
        self._slices: dict[str, dict[str, Any]] = {}
        self._record: dict[str, dict[str, list[list[float]]]] = {}
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def set_traces(self, traces: dict[str, list[list[float]]]) -> None:
        """Follow these from now on, and record anew."""
        with self._lock:
            self._record = {}
            for name, trace in traces.items():
                self._workload(name).trace = trace
            for name in self._workloads:
                self._record[name] = {"ready": [], "counts": [], "latencies": []}
                self._note_ready(name)

    def set_requests(self, times: list[float]) -> None:
        with self._lock:
            for workload in self._workloads.values():
                workload.requests = times

    def _workload(self, name: str) -> Workload:
        if name not in self._workloads:
            self._workloads[name] = Workload(self._cost_s, self._places, random.Random(name))
        return self._workloads[name]

    # ---- who is ready

    def watch(self) -> None:
        """Follow the EndpointSlices; anew after whatever goes wrong."""
        while True:
            try:
                self._follow()
            except (OSError, ValueError) as trouble:
                print(f"balancer: the watch of EndpointSlices ended: {trouble}; again in a second", flush=True)
                time.sleep(1)

    def _follow(self) -> None:
        listed = json.loads(b"".join(self._ask("")))
        with self._lock:
            self._slices = {found["metadata"]["name"]: found for found in listed["items"]}
            self._apply()
        for line in self._ask(f"&watch=1&timeoutSeconds=600&resourceVersion={listed['metadata']['resourceVersion']}"):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            with self._lock:
                if event["type"] == "DELETED":
                    self._slices.pop(event["object"]["metadata"]["name"], None)
                else:
                    self._slices[event["object"]["metadata"]["name"]] = event["object"]
                self._apply()

    def _ask(self, query: str) -> Iterator[bytes]:
        namespace = (ACCOUNT / "namespace").read_text()
        url = f"https://kubernetes.default.svc/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        request = urllib.request.Request(f"{url}?labelSelector={PLAYERS.replace('/', '%2F')}{query}")
        request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text()}")
        trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        with urllib.request.urlopen(request, context=trusted, timeout=700) as answer:
            yield from answer

    def _apply(self) -> None:
        ready: dict[str, set[str]] = {name: set() for name in self._workloads}
        for found in self._slices.values():
            pods = ready.setdefault(found["metadata"]["labels"]["kubernetes.io/service-name"], set())
            for endpoint in found.get("endpoints") or []:
                if endpoint["conditions"].get("ready"):
                    pods.update(endpoint["addresses"])
        for name, pods in ready.items():
            self._workload(name).set_pods(pods, time.time())
            self._note_ready(name)

    def _note_ready(self, name: str) -> None:
        if (record := self._record.get(name)) is not None:
            count = len(self._workloads[name]._free)
            if not record["ready"] or record["ready"][-1][1] != count:
                record["ready"].append([time.time(), count])

    # ---- the load

    def play(self) -> None:
        """Tick for ever. A tick that is late is as long as it was."""
        begin, noted = time.time(), 0.0
        while True:
            time.sleep(max(begin + TICK_S - time.time(), 0.0))
            end = time.time()
            with self._lock:
                for workload in self._workloads.values():
                    for pod, busy_s in workload.tick(begin, end).items():
                        if busy_s > 0:
                            self._tell(pod, busy_s)
                if end - noted >= RECORD_S:
                    noted = end
                    for name, record in self._record.items():
                        of = self._workloads[name]
                        record["counts"].append([end, of.offered, of.served, of.rejected])
                        record["latencies"].append([end, *of.latencies])
            begin = end

    def _tell(self, pod: str, busy_s: float) -> None:
        with contextlib.suppress(OSError):  # a pod that has just gone
            self._socket.sendto(f"{busy_s:.4f}".encode(), (pod, self._port))

    # ---- what it says

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        length = next(
            (int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")), 0
        )
        body = await reader.readexactly(length)
        status, kind, text = "404 Not Found", "text/plain", "PUT /traces or /requests, GET /record or /metrics\n"
        if (method, path) == ("PUT", "/traces"):
            self.set_traces(json.loads(body))
            status, kind, text = "200 OK", "application/json", "{}"
        elif (method, path) == ("PUT", "/requests"):
            self.set_requests(json.loads(body))
            status, kind, text = "200 OK", "application/json", "{}"
        elif (method, path) == ("GET", "/record"):
            with self._lock:
                status, kind, text = "200 OK", "application/json", json.dumps(self._record)
        elif (method, path) == ("GET", "/metrics"):
            status, kind, text = "200 OK", "text/plain; version=0.0.4", self.metrics()
        told = text.encode()
        writer.write(
            f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(told)}\r\n\r\n".encode() + told
        )
        await writer.drain()
        writer.close()

    def metrics(self) -> str:
        with self._lock:
            rows = [
                f'load_requests_total{{workload="{name}",outcome="{outcome}"}} {count}'
                for name, of in self._workloads.items()
                for outcome, count in (("served", of.served), ("rejected", of.rejected))
            ]
        return "\n".join(["# TYPE load_requests_total counter", *rows, ""])


async def serve(balancer: Balancer, port: int) -> None:
    async with await asyncio.start_server(balancer.answer, port=port) as server:
        print(f"listening on port {port}", flush=True)
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--cost-ms", type=float, default=COST_MS, help="GPU time of a request (default: %(default)g)")
    parser.add_argument("--queue", type=int, default=8, help="requests that may wait for a GPU (default: 8)")
    arguments = parser.parse_args()
    balancer = Balancer(arguments.cost_ms / 1000, 1 + arguments.queue, arguments.port)
    for work in (balancer.watch, balancer.play):
        threading.Thread(target=work, daemon=True).start()
    asyncio.run(serve(balancer, arguments.port))


if __name__ == "__main__":
    main()
