"""The key of an apt repository by a proxy with a password, which nothing shows."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.kubegpu.autoscale.plugins.modules import server_info

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
LOGIN = b64encode(b"bob:hunter2").decode()


class Proxy(BaseHTTPRequestHandler):
    """A proxy, and the repository behind it."""

    seen: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Proxy-Authorization")))
        status = 404 if "gone" in self.path else 401 if "private" in self.path else 200
        self.send_response(status)
        self.end_headers()
        self.wfile.write(KEY.encode())

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    Proxy.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[dict[str, Any], str]]:
    def run(**options: Any) -> tuple[dict[str, Any], str]:
        with patch_module_args({"apt_key": options}), pytest.raises(SystemExit):
            server_info.main()
        printed = capsys.readouterr().out
        return json.loads(printed), printed

    return run


def test_a_proxy_with_a_password_is_used_and_not_shown(
    address: str, ask: Callable[..., tuple[dict[str, Any], str]]
) -> None:
    before = dict(os.environ)
    answer, printed = ask(url="http://packages.example/key", proxy=f"http://bob:hunter2@{address}")
    assert answer["result"]["content"] == KEY
    assert Proxy.seen == [("http://packages.example/key", f"Basic {LOGIN}")]
    assert "hunter2" not in printed
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("gone", {}, "http://{}/gone answers 404"),
        ("private", {}, "http://{}/private answers 401"),
        ("key", {"proxy": "http://bob:hunter2@127.0.0.1:1"}, "no answer from http://{}/key"),
    ],
)
def test_a_failure_names_the_address_and_no_login(
    address: str, ask: Callable[..., tuple[dict[str, Any], str]], path: str, options: dict[str, str], said: str
) -> None:
    answer, printed = ask(url=f"http://me:hunter2@{address}/{path}", **options)
    assert said.format(address) in answer["msg"]
    assert "hunter2" not in printed


def test_an_answer_that_asks_for_a_login_may_be_enough(
    address: str, ask: Callable[..., tuple[dict[str, Any], str]]
) -> None:
    answer, _printed = ask(url=f"http://{address}/private", allow_unauthorized=True)
    assert answer["result"]["content"] == ""
