"""connect() against a server that speaks HTTP: what FakeTransport leaves out."""

from __future__ import annotations

import json
import multiprocessing
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import CRDS, HPAS, KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.parallel import CONNECTIONS, in_parallel
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.transport import connect
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from kubernetes.client import Configuration

PATIENCE_S = 20
HPA = {"kind": "HorizontalPodAutoscaler", "metadata": {"namespace": "ml", "name": "chat"}, "spec": {}}
DISCOVERY = {
    "/version": {"gitVersion": "v1.30.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "groups": []},
}
CUT_OFF = object()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def _answer(self) -> None:
        path = urlsplit(self.path).path  # a proxy is asked for a whole address
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if path in DISCOVERY:
            self._send(403 if self.server.is_closed else 200, self.server.is_closed or DISCOVERY[path])
            return
        self.server.seen.append((f"{self.command} {self.path}", dict(self.headers), body))
        self.server.together()
        answer = next(self.server.answers, {})
        if answer is CUT_OFF:
            self.close_connection = True
            return
        self._send(*(answer if isinstance(answer, tuple) else (200, answer)))

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def log_message(self, *_args: object) -> None:
        """Not worth a line."""


class Server(ThreadingHTTPServer):
    """Gives `answers` one after the other, a body or (status, body, headers), then {}; notes what it saw."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: Iterator[Any] = iter(())
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0
        self.is_closed: dict[str, str] = {}  # what it answers to who asks what it serves
        self.together = lambda: None
        self.address = f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where kubernetes.core keeps what it discovers
    server = Server()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def kube(server: Server) -> KubeClient:
    return KubeClient(connect({"host": server.address, "api_key": "secret"}, sleep=lambda _seconds: None))


def test_a_request_as_the_server_sees_it(server: Server) -> None:
    server.answers = iter([HPA])
    assert kube(server).apply(HPAS, HPA) == HPA
    request, headers, body = server.seen[0]
    assert request == f"PATCH {HPAS.path('ml', 'chat')}?fieldManager=kubegpu.autoscale&fieldValidation=Strict"
    assert headers["authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/apply-patch+yaml"
    assert json.loads(body) == {**HPA, "metadata": {**HPA["metadata"], "resourceVersion": "1"}}


def test_the_body_of_a_deletion_is_an_object_and_no_text(server: Server) -> None:
    kube(server).delete(HPAS, {**HPA, "metadata": {**HPA["metadata"], "uid": "1"}}, bool)
    _request, headers, body = server.seen[0]
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body)["preconditions"] == {"uid": "1"}


def test_a_question_with_a_body_is_json_once(server: Server) -> None:
    server.answers = iter([{"status": {"userInfo": {"username": "chris"}}}])
    assert kube(server).user() == "chris"
    request, headers, body = server.seen[0]
    assert request == "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body)["kind"] == "SelfSubjectReview"


def kubeconfig(folder: Path, **cluster: str) -> str:
    """Path of one whose cluster has these settings, by their names with - for _."""
    settings = {name.replace("_", "-"): value for name, value in cluster.items()}
    parts = {"cluster": "there", "user": "me"}
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "there", "cluster": settings}],
                "users": [{"name": "me", "user": {"token": "secret"}}],
                "contexts": [{"name": "there", "context": parts}],
                "current-context": "there",
            }
        )
    )
    return str(path)


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of this machine. A kubeconfig that is loaded becomes the library's default: not beyond this test."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Configuration, "_default", None)


def test_the_proxy_of_the_kubeconfig_is_asked(server: Server, tmp_path: Path, unset: None) -> None:
    """For a cluster that only the proxy knows."""
    server.answers = iter([HPA])
    path = kubeconfig(tmp_path, server="http://cluster.invalid:6443", proxy_url=server.address)
    client = KubeClient(connect({"kubeconfig": path}, sleep=lambda _seconds: None))
    assert client.get(HPAS, "chat", "ml") == HPA
    assert server.seen[0][0] == f"GET http://cluster.invalid:6443{HPAS.path('ml', 'chat')}"


@pytest.mark.parametrize("name", ["kubernetes.example", "another.example", ""])
def test_the_name_of_the_certificate_may_be_in_the_kubeconfig(
    server: Server, tmp_path: Path, unset: None, name: str
) -> None:
    """As where a tunnel or a load balancer stands before the API server: its address is not in the certificate."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    kind = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=kubernetes -addext subjectAltName=DNS:kubernetes.example"
    )
    subprocess.run(["openssl", *kind.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.answers = iter([HPA])
    settings = {"server": f"https://127.0.0.1:{server.server_address[1]}", "certificate_authority": str(certificate)}
    path = kubeconfig(tmp_path, **settings, **({"tls_server_name": name} if name else {}))

    def ask() -> Any:
        return KubeClient(connect({"kubeconfig": path}, sleep=lambda _seconds: None)).get(HPAS, "chat", "ml")

    if name == "kubernetes.example":
        assert ask() == HPA
    else:
        with pytest.raises(ApiError, match="certificate"):
            ask()


def test_a_selector_is_escaped(server: Server) -> None:
    server.answers = iter([{"items": []}])
    kube(server).list(CRDS, label_selector="a in (b,c)")
    assert server.seen[0][0] == f"GET {CRDS.path()}?labelSelector=a%20in%20%28b%2Cc%29&limit=500"


def test_a_refusal_with_its_body(server: Server) -> None:
    server.answers = iter([(403, {"message": "nobody may", "reason": "Forbidden"}, {})])
    with pytest.raises(ApiError, match="403: nobody may") as caught:
        kube(server).get(HPAS, "chat", "ml")
    assert caught.value.status == 403


@pytest.mark.parametrize(
    "passing", [(429, {"message": "too many"}, {"Retry-After": "0"}), CUT_OFF], ids=["429", "cut off"]
)
@pytest.mark.parametrize("method", ["get", "apply", "delete"])
def test_what_passes_is_asked_again(server: Server, passing: Any, method: str) -> None:
    server.answers = iter([passing, HPA])
    client = kube(server)
    calls = {
        "get": lambda: client.get(HPAS, "chat", "ml"),
        "apply": lambda: client.apply(HPAS, HPA),
        "delete": lambda: client.delete(HPAS, {"metadata": {"name": "chat", "namespace": "ml"}}, bool),
    }
    assert calls[method]()
    assert len(server.seen) == 2


def test_what_is_behind_the_server_is_asked_once_even_if_it_says_when(server: Server) -> None:
    server.answers = iter([(503, {"message": "no endpoints available"}, {"Retry-After": "0"})])
    with pytest.raises(ApiError, match="no endpoints") as caught:
        kube(server).get_raw("/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query")
    assert caught.value.retry_after_s == 0
    assert len(server.seen) == 1


def test_nobody_at_that_address(server: Server) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(ApiError) as caught:
        kube(server)
    assert caught.value.status == 0


def kubeconfig_with_exec(folder: Path, server: Server, **plugin: Any) -> dict[str, Any]:
    """The authentication options for a kubeconfig whose user logs in with a program."""
    path = Path(kubeconfig(folder, server=server.address))
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **plugin}}
    path.write_text(json.dumps(config))
    return {"kubeconfig": str(path)}


def test_a_login_plugin_that_is_not_installed_is_named(server: Server, tmp_path: Path, unset: None) -> None:
    auth = kubeconfig_with_exec(tmp_path, server, command="no-such-aws", installHint="See https://example.com/aws.")
    with pytest.raises(HopError) as caught:
        connect(auth)
    assert caught.value.seen == f"{auth['kubeconfig']} logs in with `no-such-aws`, which is not in the PATH"
    assert caught.value.fix == (
        "install no-such-aws, or add its folder to the PATH of ansible-playbook. See https://example.com/aws."
    )


def test_the_path_of_a_login_plugin_that_is_missing_is_named(server: Server, tmp_path: Path, unset: None) -> None:
    with pytest.raises(HopError) as caught:
        connect(kubeconfig_with_exec(tmp_path, server, command=f"{tmp_path}/aws"))
    assert caught.value.seen == (
        f"{tmp_path}/kubeconfig logs in with `{tmp_path}/aws`, which is missing or not executable"
    )
    assert caught.value.fix == f"install {tmp_path}/aws"


@pytest.mark.parametrize(
    ("prints", "seen"),
    [
        ("echo 'the SSO session has expired' >&2; exit 255", "process returned 255. the SSO session has expired"),
        ("echo '{}'", "missing key 'apiVersion'"),
    ],
)
def test_a_login_plugin_that_gives_no_login_is_quoted(
    server: Server, tmp_path: Path, unset: None, prints: str, seen: str
) -> None:
    plugin = tmp_path / "login"
    plugin.write_text(f"#!/bin/sh\n{prints}\n")
    plugin.chmod(0o755)
    with pytest.raises(HopError) as caught:
        connect(kubeconfig_with_exec(tmp_path, server, command=str(plugin)))
    assert caught.value.seen.startswith(
        f"{tmp_path}/kubeconfig logs in with `{plugin}`, which returned no credentials: "
    )
    assert seen in caught.value.seen
    assert f"log in with {plugin} again" in caught.value.fix


def test_a_login_plugin_is_named_before_what_the_server_says_to_a_stranger(
    server: Server, tmp_path: Path, unset: None
) -> None:
    server.is_closed = {"message": 'forbidden: User "system:anonymous" cannot get path "/api"'}
    with pytest.raises(HopError, match="`no-such-aws`, which is not in the PATH"):
        connect(kubeconfig_with_exec(tmp_path, server, command="no-such-aws"))
    server.shutdown()
    server.server_close()
    with pytest.raises(HopError, match="`no-such-aws`, which is not in the PATH"):
        connect(kubeconfig_with_exec(tmp_path, server, command="no-such-aws"))


def test_the_login_of_a_plugin_is_sent(server: Server, tmp_path: Path, unset: None) -> None:
    plugin = tmp_path / "login"
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "fresh"}}
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o755)
    server.answers = iter([HPA])
    transport = connect(kubeconfig_with_exec(tmp_path, server, command=str(plugin)), sleep=lambda _seconds: None)
    assert KubeClient(transport).get(HPAS, "chat", "ml") == HPA
    assert server.seen[0][1]["authorization"] == "Bearer fresh"


def test_a_connection_each_and_none_thrown_away(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "cpu_count", lambda: 1)  # the library keeps five connections a processor
    client = kube(server)
    before = server.connections
    server.together = threading.Barrier(CONNECTIONS, timeout=PATIENCE_S).wait
    for _ in range(2):
        in_parallel(lambda _number: client.get(HPAS, "chat", "ml"), range(CONNECTIONS))
    assert len(server.seen) == 2 * CONNECTIONS
    assert server.connections - before == CONNECTIONS
