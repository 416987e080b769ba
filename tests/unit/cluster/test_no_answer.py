"""Servers that do not answer and will not, against real sockets: each is named at once, with the next step."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.survey_cluster import survey_cluster
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.no_answer import LastingFailure
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.transport import connect


@contextmanager
def listening(tls: Path | None = None) -> Iterator[int]:
    """A port that answers each connection with TLS of that certificate, or with plain HTTP."""
    server = socket.create_server(("127.0.0.1", 0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if tls:
        context.load_cert_chain(tls / "cert.pem", tls / "key.pem")

    def serve() -> None:
        while True:
            try:
                connection, _address = server.accept()
            except OSError:
                return
            try:
                if tls:
                    context.wrap_socket(connection, server_side=True).close()
                else:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    connection.close()
            except OSError:
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", folder / "key.pem", "-out", folder / "cert.pem")
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1")
    subprocess.run([*new, *files, *subject], check=True, capture_output=True)
    return folder


def survey(host: str, **auth: Any) -> tuple[str, float, int]:
    """The error, and the seconds and pauses that it took, of 60 seconds that a cluster has to answer."""
    pauses: list[float] = []
    began = time.monotonic()
    with pytest.raises(LastingFailure) as caught:
        survey_cluster(
            lambda: KubeClient(connect({"host": host, "api_key": "x", **auth}, sleep=lambda _seconds: None)),
            host,
            "prod",
            Deadline(60, sleep=pauses.append),
        )
    return str(caught.value), time.monotonic() - began, len(pauses)


def test_a_certificate_that_is_not_trusted(certificate: Path) -> None:
    with listening(certificate) as port:
        said, seconds, pauses = survey(f"https://127.0.0.1:{port}")
    assert f"the certificate of https://127.0.0.1:{port} is not valid for the kubeconfig: self-signed" in said
    assert (seconds < 5, pauses) == (True, 0)


def test_a_port_without_tls() -> None:
    with listening() as port:
        said, seconds, pauses = survey(f"https://127.0.0.1:{port}")
    assert f"https://127.0.0.1:{port} does not speak TLS" in said
    assert (seconds < 5, pauses) == (True, 0)


def test_a_host_name_that_is_unknown() -> None:
    said, seconds, pauses = survey("https://cluster.invalid:6443")
    assert "the host name of https://cluster.invalid:6443 cannot be resolved" in said
    assert "getent hosts cluster.invalid" in said
    assert (seconds < 10, pauses) == (True, 0)


def test_a_proxy_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for name in ("https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    said, seconds, pauses = survey("https://192.0.2.1:6443", proxy=f"http://127.0.0.1:{port}")
    assert "the proxy of HTTPS_PROXY does not lead to https://192.0.2.1:6443" in said
    assert (seconds < 5, pauses) == (True, 0)


def test_a_closed_port_is_asked_for_as_long_as_an_api_server_restarts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    said, _seconds, pauses = survey(f"https://127.0.0.1:{port}")
    assert f"nothing listens at https://127.0.0.1:{port}: Connection refused" in said
    assert pauses == 10
