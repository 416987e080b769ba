"""Send requests for GPU time to the sample service at random (Poisson), each on a new connection.

PUT /load?gpus=2.75   from now on, demand so many seconds of GPU time a second
GET /stats            counters since the start, as JSON
GET /metrics          those of requests, for Prometheus, as a gateway in front of the service would count them

The rate does not depend on the service: requests that are rejected or fail are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections import Counter
from urllib.parse import parse_qs, urlsplit

MOST_IN_FLIGHT = 500
TIMEOUT_S = 5.0


class Load:
    """The stream of requests.

    cost_ms: GPU time a request asks for.
    gpus:    GPU-seconds asked for a second, on average.
    seed:    of the times of requests.
    """

    def __init__(self, url: str, cost_ms: float, gpus: float, seed: int = 1) -> None:
        target = urlsplit(url)
        self._host, self._port = target.hostname, target.port or 80
        self._request = f"GET /work?ms={cost_ms:g} HTTP/1.0\r\nHost: {target.hostname}\r\n\r\n".encode()
        self._cost_s = cost_ms / 1000
        self._chance = random.Random(seed)
        self._changed = asyncio.Event()
        self._in_flight: set[asyncio.Task[None]] = set()
        self.gpus = gpus
        self.results: Counter[str] = Counter(served=0, rejected=0, failed=0)

    def demand(self, gpus: float) -> None:
        """Change the rate at once."""
        self.gpus = gpus
        self._changed.set()

    async def run(self) -> None:
        """Send requests for ever, each at its own time and not after the one before."""
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            pause = max(due - clock(), 0) if self.gpus else None
            try:
                await asyncio.wait_for(self._changed.wait(), pause)
                self._changed.clear()
                due = clock()
            except TimeoutError:
                if self.gpus:  # it may have become 0 just now; the next round sees that
                    due += self._chance.expovariate(self.gpus / self._cost_s)
                    self._send()

    def _send(self) -> None:
        if len(self._in_flight) >= MOST_IN_FLIGHT:
            self.results["failed"] += 1
            return
        task = asyncio.create_task(self._one())
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _one(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    writer.write(self._request)
                    status = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            status = b""
        outcome = {b"200": "served", b"503": "rejected"}.get(status[9:12], "failed")
        self.results[outcome] += 1

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request for /load or /stats."""
        method, target, *_version = (await reader.readline()).decode().split() or ("", "")
        while (await reader.readline()).strip():
            continue  # headers
        url = urlsplit(target)
        wanted = parse_qs(url.query).get("gpus", [""])[0]
        status, kind, body = "404 Not Found", "text/plain", "there is PUT /load?gpus=N, GET /stats and GET /metrics"
        if (method, url.path) == ("PUT", "/load"):
            status, body = "400 Bad Request", f"gpus is {wanted or 'missing'}; it has to be a number, 0 or more"
            if re.fullmatch(r"\d+(\.\d+)?", wanted):
                self.demand(float(wanted))
                status, kind, body = "200 OK", "application/json", json.dumps(self.stats())
        elif (method, url.path) == ("GET", "/stats"):
            status, kind, body = "200 OK", "application/json", json.dumps(self.stats())
        elif (method, url.path) == ("GET", "/metrics"):
            status, kind, body = "200 OK", "text/plain; version=0.0.4", self.metrics()
        head = f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body) + 1}\r\n\r\n"
        writer.write(f"{head}{body}\n".encode())
        await writer.drain()
        writer.close()

    def stats(self) -> dict[str, float]:
        """Counters since the start."""
        return {"gpus": self.gpus, "requests_per_s": self.gpus / self._cost_s, **self.results}

    def metrics(self) -> str:
        """In Prometheus' text format."""
        rows = (f'load_requests_total{{outcome="{outcome}"}} {count}' for outcome, count in self.results.items())
        return "\n".join(["# TYPE load_requests_total counter", *rows])


async def serve(arguments: argparse.Namespace) -> None:
    load = Load(arguments.url, arguments.cost_ms, arguments.gpus)
    async with await asyncio.start_server(load.control, port=arguments.port):
        print(f"listening on port {arguments.port}", flush=True)
        await load.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="the sample service")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--cost-ms", type=float, default=20.0, help="GPU time of a request (default: 20)")
    parser.add_argument("--gpus", type=float, default=0.0, help="GPU-seconds a second at the start (default: 0)")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
