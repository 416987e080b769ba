"""What the tests' own metric chain does when one request of it goes wrong."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from control_plane import eventually
from kubernetes import client
from metric_chain import MONITORING, RuleLoader
from module_process import run_module
from prometheus_rules import GROUP, PLURAL, VERSION


class Reloads:
    """Prometheus' address for reloads: breaks off the first, refuses the second, takes all later ones."""

    def __init__(self) -> None:
        self.seen = 0
        reloads = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                reloads.seen += 1
                if reloads.seen > 1:
                    self.send_response(500 if reloads.seen == 2 else 200)
                    self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Requests are not worth a line."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()


@pytest.fixture
def reloads() -> Iterator[Reloads]:
    reloads = Reloads()
    yield reloads
    reloads.stop()


def test_rules_that_were_not_taken_are_offered_again(
    crd: None, kube: client.ApiClient, reloads: Reloads, tmp_path: Path
) -> None:
    labels = {"release": "kube-prometheus-stack"}
    rule = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "PrometheusRule",
        "metadata": {"name": "offered", "namespace": MONITORING, "labels": labels},
        "spec": {"groups": [{"name": "offered", "rules": [{"record": "offered", "expr": "1"}]}]},
    }
    client.CustomObjectsApi(kube).create_namespaced_custom_object(GROUP, VERSION, MONITORING, PLURAL, rule)
    loader = RuleLoader(tmp_path / "rules.yml", kube, reloads.port)
    loader.start()
    try:
        eventually(lambda: reloads.seen == 3, "the rules were offered until they were taken", 20)
    finally:
        loader.stop()
    assert '"record": "offered"' in (tmp_path / "rules.yml").read_text()
    assert reloads.seen == 3


def test_a_module_is_run_without_a_change_of_the_environment() -> None:
    """The loader's client reads all of it for each request: what comes and goes meanwhile ended the loader's thread."""
    changes: list[object] = []
    watched = [True]

    def look(event: str, what: tuple[object, ...]) -> None:  # a hook stays until Python ends
        if watched and event in ("os.putenv", "os.unsetenv"):
            changes.append((event, *what))

    sys.addaudithook(look)
    answer = run_module("gpu_autoscaler_info", {"kubeconfig": "/no-such-file"})
    watched.clear()

    assert answer["failed"]
    assert changes == []
