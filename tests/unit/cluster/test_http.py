"""Prometheus at its own address: real requests to a real server, with TLS and without."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError, QueryError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.http_getter import (
    HttpGetter,
    is_readable_by_others,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient

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


class Redirect(BaseHTTPRequestHandler):
    """Sends each request on, and keeps the headers that it came with."""

    target = ""
    seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        self.send_response(302)
        self.send_header("Location", f"{self.target}{self.path}")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


class Login(Redirect):
    """A login page of another host: whatever is sent there is kept."""

    seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(ONE).encode())


@pytest.fixture
def redirect() -> Iterator[Callable[[str], int]]:
    """Its port; it sends to an address that may have {port} of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    running = serve(server)
    port = next(running)

    def to(target: str) -> int:
        Redirect.target, Redirect.seen[:] = target.format(port=port), []
        return port

    yield to
    next(running, None)


@pytest.fixture
def login_page() -> Iterator[str]:
    running = serve(ThreadingHTTPServer(("127.0.0.1", 0), Login))
    yield f"http://localhost:{next(running)}"
    next(running, None)


@pytest.mark.parametrize(
    ("login", "options"), [("", {"bearer_token": "hunter2"}), ("bob:hunter2@", {})], ids=["token", "login"]
)
def test_no_credential_follows_a_redirect_to_another_host(
    redirect: Callable[[str], int], login_page: str, login: str, options: dict[str, str]
) -> None:
    Login.seen.clear()
    with pytest.raises(ApiError, match="the credential was not sent") as raised:
        client(f"http://{login}127.0.0.1:{redirect(login_page)}", **options).query("up")
    assert Login.seen == []
    assert login_page in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_redirect_of_the_same_server_is_followed_with_the_token(redirect: Callable[[str], int]) -> None:
    port = redirect("http://127.0.0.1:{port}/more")
    with pytest.raises(ApiError, match="more than 3 redirects"):
        client(f"http://127.0.0.1:{port}", bearer_token="hunter2").query("up")
    assert Redirect.seen == ["Bearer hunter2"] * 3


def test_a_redirect_without_a_credential_is_followed(redirect: Callable[[str], int], login_page: str) -> None:
    assert client(f"http://127.0.0.1:{redirect(login_page)}").query("up")


@pytest.mark.parametrize(
    ("address", "readable"),
    [
        ("https://metrics.example", False),
        ("http://metrics.example:9090", True),
        ("http://10.0.0.7:9090", True),
        ("http://127.0.0.1:9090", False),
        ("http://[::1]:9090", False),
        ("http://localhost:9090", False),
        ("http://prometheus.monitoring.svc:9090", False),
        ("http://prometheus.monitoring.svc.cluster.local:9090", False),
        ("http://evil.example/.svc", True),
    ],
)
def test_where_others_could_read_a_credential(address: str, readable: bool) -> None:
    assert is_readable_by_others(address) is readable


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
