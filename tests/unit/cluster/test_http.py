"""Prometheus at its own address: real requests to a real server, with TLS and without."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError, QueryError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.http import HttpGetter
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus import PrometheusClient

ONE = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1, "2"]}]}}
WRONG = {"status": "error", "errorType": "bad_data", "error": "parse error"}


class Prometheus(BaseHTTPRequestHandler):
    """Behind a prefix, for those who have the token."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != "Bearer secret":
            self._answer(401, b"who are you")
        elif not self.path.startswith("/prometheus/api/v1/query?"):
            self._answer(404, b"not here")
        elif "wrong" in self.path:
            self._answer(400, json.dumps(WRONG).encode())
        else:
            self._answer(200, json.dumps(ONE).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


def serve(server: ThreadingHTTPServer) -> Iterator[int]:
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def port() -> Iterator[int]:
    yield from serve(ThreadingHTTPServer(("127.0.0.1", 0), Prometheus))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *kind.split(), *names], check=True, capture_output=True)
    return certificate


@pytest.fixture
def tls_port(certificate: Path) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    yield from serve(server)


def client(address: str, **login: str) -> PrometheusClient:
    return PrometheusClient.at(address, HttpGetter(address, **login))


def test_a_query_below_a_prefix_with_a_token(port: int) -> None:
    (series,) = client(f"http://127.0.0.1:{port}/prometheus/", bearer_token="secret").query("up")
    assert (series.labels, series.values) == ({"a": "b"}, (2.0,))


def test_what_prometheus_refuses(port: int) -> None:
    address = f"http://127.0.0.1:{port}/prometheus"
    with pytest.raises(QueryError, match="parse error"):
        client(address, bearer_token="secret").query("wrong")
    with pytest.raises(ApiError) as raised:
        client(address).query("up")
    assert (raised.value.status, raised.value.message) == (401, "who are you")
    assert "secret" not in str(raised.value)


def test_a_certificate_that_is_given_is_trusted_and_no_other(tls_port: int, certificate: Path) -> None:
    address = f"https://localhost:{tls_port}/prometheus"
    assert client(address, bearer_token="secret", ca_cert=str(certificate)).query("up")
    with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
        client(address, bearer_token="secret").query("up")


def test_a_login_in_the_address_is_not_shown(port: int) -> None:
    asked = client("http://bob:hunter2@127.0.0.1:1/prometheus")
    with pytest.raises(ApiError) as raised:
        asked.query("up")
    assert asked.name == "http://127.0.0.1:1/prometheus"
    assert "GET http://127.0.0.1:1/prometheus/api/v1/query" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_nobody_there(port: int) -> None:
    with pytest.raises(ApiError, match="no answer") as raised:
        client("http://127.0.0.1:1").query("up", retry=True)
    assert raised.value.status == 503
