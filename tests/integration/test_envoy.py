"""Envoy itself counts requests: what the selectors of `envoy_gateway` find is what its clients saw.

Its clusters have the names that Envoy Gateway gives those of an HTTPRoute's rules. Envoy Gateway itself does not run.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.request_counters import COUNTERS
from control_plane import eventually, free_port
from programs import program

# `make test` does not install it: its own target does.
pytestmark = pytest.mark.skipif(
    not (shutil.which("envoy") or os.environ.get("ENVOY")), reason="`make test-envoy` installs it"
)

CHAT, IDLE = "httproute/ml/chat/rule/0", "httproute/ml/idle/rule/0"
SEEN_S = 60
TIMEOUT_S = 1


class Model(BaseHTTPRequestHandler):
    """Answers /chat/N with the status N, and /chat/slow when it is too late."""

    def do_GET(self) -> None:
        code = self.path.rpartition("/")[2]
        if code == "slow":
            time.sleep(2 * TIMEOUT_S)
        self.send_response(int(code) if code.isdigit() else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Requests are not worth a line."""


class Envoy:
    def __init__(self, work: Path) -> None:
        self.work, self._model = work, ThreadingHTTPServer(("127.0.0.1", 0), Model)
        self.port, self._admin, self._prometheus = free_port(), free_port(), free_port()
        threading.Thread(target=self._model.serve_forever, daemon=True).start()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        (self.work / "envoy.json").write_text(json.dumps(self._config()))
        self._run("envoy", "--config-path", "envoy.json", "--log-level", "warn", "--use-dynamic-base-id")
        scrape = {"job_name": "envoy", "scrape_interval": "1s", "metrics_path": "/stats/prometheus"}
        scrape["static_configs"] = [{"targets": [f"127.0.0.1:{self._admin}"]}]
        (self.work / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))
        listen = f"--web.listen-address=127.0.0.1:{self._prometheus}"
        self._run("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", listen)
        eventually(lambda: self.text(), "Envoy answers", SEEN_S)
        eventually(lambda: self.sum("up") == 1, "Prometheus scrapes Envoy", SEEN_S)

    def ask(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SEEN_S)
        connection.request("GET", path)
        return connection.getresponse().status

    def text(self) -> str:
        """What it gives to Prometheus; nothing while it starts."""
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self._admin}/stats/prometheus").read().decode()
        except OSError:
            return ""

    def sum(self, *selectors: str) -> float:
        """Over all selectors, of the last scrape; 0 while Prometheus starts."""
        query = urllib.parse.quote(f"sum({' or '.join(selectors)})")
        try:
            answer = urllib.request.urlopen(f"http://127.0.0.1:{self._prometheus}/api/v1/query?query={query}")
        except OSError:
            return 0
        result = json.load(answer)["data"]["result"]
        return float(result[0]["value"][1]) if result else 0

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._model.shutdown()

    def _run(self, name: str, *words: str) -> None:
        with (self.work / f"{name}.log").open("wb") as log:
            argv = ["setpriv", "--pdeathsig", "KILL", program(name), *words]
            self._processes.append(subprocess.Popen(argv, cwd=self.work, stdout=log, stderr=log))

    def _config(self) -> dict[str, Any]:
        def address(port: int) -> dict[str, Any]:
            return {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}

        def route(prefix: str, cluster: str) -> dict[str, Any]:
            return {"match": {"prefix": prefix}, "route": {"cluster": cluster, "timeout": f"{TIMEOUT_S}s"}}

        def cluster(name: str, *ports: int) -> dict[str, Any]:
            endpoints = [{"endpoint": address(port)} for port in ports]
            assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}
            return {"name": name, "type": "STATIC", "load_assignment": assignment}

        extensions = "type.googleapis.com/envoy.extensions.filters"
        router = {"name": "router", "typed_config": {"@type": f"{extensions}.http.router.v3.Router"}}
        hosts = [{"name": "all", "domains": ["*"], "routes": [route("/chat", CHAT), route("/idle", IDLE)]}]
        manager = {
            "@type": f"{extensions}.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "http",
            "route_config": {"name": "routes", "virtual_hosts": hosts},
            "http_filters": [router],
        }
        filters = [{"name": "http", "typed_config": manager}]
        return {
            "admin": address(self._admin),
            "static_resources": {
                "listeners": [{"name": "public", **address(self.port), "filter_chains": [{"filters": filters}]}],
                "clusters": [cluster(CHAT, self._model.server_address[1]), cluster(IDLE)],
            },
        }


@pytest.fixture
def envoy(tmp_path: Path) -> Iterator[Envoy]:
    made = Envoy(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_what_a_demand_reads_is_what_clients_saw(envoy: Envoy) -> None:
    counter = COUNTERS["envoy_gateway"]
    paths = [*["/chat/200"] * 5, *["/chat/429"] * 2, "/chat/404", "/chat/500", "/chat/503", "/chat/slow"]
    seen = Counter(envoy.ask(path) for path in paths)
    assert seen == {200: 5, 429: 2, 404: 1, 500: 1, 503: 1, 504: 1}
    served = seen[200] + seen[504]
    offered = served + seen[429] + seen[503]

    eventually(lambda: envoy.sum(*counter.offered("ml", "chat")) == offered, "Prometheus has all offered", SEEN_S)
    assert envoy.sum(*counter.served("ml", "chat")) == served


def test_a_workload_without_a_pod_is_offered_what_it_cannot_serve(envoy: Envoy) -> None:
    counter = COUNTERS["envoy_gateway"]
    assert {envoy.ask("/idle/200") for _request in range(3)} == {503}

    eventually(lambda: envoy.sum(*counter.offered("ml", "idle")) == 3, "Prometheus has what Envoy refused", SEEN_S)
    assert envoy.sum(*counter.served("ml", "idle")) == 0


def test_the_labels_are_those_of_the_cases_of_promtool(envoy: Envoy) -> None:
    """tests/rules/test_demand_rules.py judges the rules on such samples."""
    envoy.ask("/chat/200")
    lines = re.findall(r"^(envoy_cluster_upstream_rq\{.*?\}) ", envoy.text(), re.MULTILINE)

    assert f'envoy_cluster_upstream_rq{{envoy_response_code="200",envoy_cluster_name="{CHAT}"}}' in lines
