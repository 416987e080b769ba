"""Alertmanager itself: alerts of this collection arrive where `prometheus_stack_receivers` sends them.

Prometheus has the rules of the role gpu_alerts, and Alertmanager the configuration that prometheus_stack makes.
Its secrets are files in a folder, as the operator mounts them, and it waits a second where it waits half a minute.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.receivers import alertmanager_values
from collection import ROOT
from control_plane import eventually, free_port
from metric_chain import Exporter
from programs import FOLDER, program

# `make test` does not compile it: its own target does.
COMPILED = (FOLDER / "alertmanager").exists() or bool(os.environ.get("ALERTMANAGER"))
pytestmark = pytest.mark.skipif(not COMPILED, reason="`make test-alertmanager` compiles it")

RULES = ROOT / "roles" / "gpu_alerts" / "files"
MOUNTED = "/etc/alertmanager/secrets"
ARRIVES_S = 60
HARDWARE, PROGRAM = 79, 13  # Xid errors of a GPU and of a program


class Webhook:
    """What was sent to it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                webhook.messages.append(json.loads(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """A message is kept, and not logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/gpus"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()

    def told(self, status: str) -> set[tuple[str, str]]:
        """Alert and node of each message of this status."""
        alerts = [alert for message in self.messages if message["status"] == status for alert in message["alerts"]]
        return {(alert["labels"]["alertname"], alert["labels"]["node"]) for alert in alerts}


class MailServer:
    """A mail server that takes mail over TLS from who logs in; `mails` has login, recipients and text."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.mails: list[tuple[str, list[str], str]] = []
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # Alertmanager is killed in the end, maybe while it sends.
            with connection, suppress(OSError):
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        """One client. Its commands are answered as RFC 5321, 3207 and 4954 say."""
        connection.sendall(b"220 mail.test\r\n")
        lines, login, to = connection.makefile("rb"), "", list[str]()
        while line := lines.readline().decode().strip():
            verb, _, rest = line.partition(" ")
            answer = "250 ok"
            if verb == "EHLO":
                answer = "250-mail.test\r\n250 " + (
                    "AUTH PLAIN" if isinstance(connection, ssl.SSLSocket) else "STARTTLS"
                )
            elif verb == "STARTTLS":
                connection.sendall(b"220 go on\r\n")
                connection = self._tls.wrap_socket(connection, server_side=True)
                lines = connection.makefile("rb")
                continue
            elif verb == "AUTH":
                login, answer = base64.b64decode(rest.split()[1]).decode().replace("\0", " ").strip(), "235 ok"
            elif verb == "RCPT":
                to.append(rest.removeprefix("TO:").strip("<>"))
            elif verb == "DATA":
                connection.sendall(b"354 go on\r\n")
                text = b"".join(iter(lines.readline, b".\r\n")).decode()
                self.mails.append((login, to, text))
            connection.sendall(f"{answer if verb != 'QUIT' else '221 bye'}\r\n".encode())
            if verb == "QUIT":
                return


class Alerting:
    """An exporter, Prometheus with the rules, Alertmanager, and where it sends."""

    def __init__(self, work: Path) -> None:
        self.work, self.exporter, self.webhook = work, Exporter(), Webhook()
        words = (
            "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout mail.key -out mail.crt -subj /CN=localhost"
        )
        argv = ["openssl", "req", "-x509", *words.split(), "-addext", "subjectAltName=DNS:localhost"]
        subprocess.run(argv, cwd=work, check=True, capture_output=True)
        self.mail = MailServer(work / "mail.crt", work / "mail.key")
        self._prometheus, self._alertmanager = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        receivers = [
            {"name": "pager", "type": "webhook", "secret": {"name": "pager", "key": "url"}},
            {
                "name": "team",
                "type": "mail",
                "severities": ["critical"],
                "to": "gpus@test",
                "from": "alerts@test",
                "smarthost": f"localhost:{self.mail.port}",
                "secret": {"name": "smtp", "key": "password"},
            },
        ]
        for secret, text in (("pager/url", self.webhook.url), ("smtp/password", "of the test")):
            (file := self.work / "secrets" / secret).parent.mkdir(parents=True)
            file.write_text(text)
        config = alertmanager_values(receivers)["config"]
        config["route"] |= {"group_wait": "1s", "group_interval": "1s"}
        text = yaml.safe_dump(config).replace(MOUNTED, str(self.work / "secrets"))
        (self.work / "alertmanager.yml").write_text(text)
        self._run(
            "alertmanager", "--config.file=alertmanager.yml", "--storage.path=data", "--cluster.listen-address=",
            f"--web.listen-address=127.0.0.1:{self._alertmanager}",
        )  # fmt: skip
        targets = [{"targets": [f"127.0.0.1:{self.exporter.port}"]}]
        self._write("prometheus.yml", {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [{"job_name": "dcgm-exporter", "honor_labels": True, "static_configs": targets}],
            "rule_files": ["records.yml", "gpus.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self._alertmanager}"]}]}]},
        })  # fmt: skip
        for name in ("records.yml", "gpus.yml"):
            self._write(name, yaml.safe_load((RULES / name).read_text()))
        self._run(
            "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb",
            f"--web.listen-address=127.0.0.1:{self._prometheus}",
        )  # fmt: skip
        eventually(lambda: self.amtool("config", "show"), "Alertmanager answers", ARRIVES_S)
        eventually(lambda: len(self._recorded()) == 2, "both GPUs are recorded", ARRIVES_S)

    def xid(self, **of_node: int) -> None:
        """The last error of one GPU of each node."""
        self.exporter.text = "".join(
            f'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="GPU-{node}",Hostname="{node}"}} {number}\n'
            for node, number in of_node.items()
        )

    def amtool(self, *words: str) -> str:
        argv = [program("amtool"), f"--alertmanager.url=http://127.0.0.1:{self._alertmanager}", *words]
        return subprocess.run(argv, capture_output=True, text=True).stdout.strip()

    def firing(self) -> set[tuple[str, str]]:
        return {(alert["labels"]["alertname"], alert["labels"]["node"]) for alert in self._ask("alerts")["alerts"]}

    def _recorded(self) -> list[Any]:
        """Errors that Prometheus knows; none while it starts."""
        try:
            return self._ask("query?query=gpu:xid:last")["result"]
        except OSError:
            return []

    def _ask(self, path: str) -> Any:
        url = f"http://127.0.0.1:{self._prometheus}/api/v1/{path}"
        return json.load(urllib.request.urlopen(url))["data"]

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.exporter.stop()
        self.webhook.stop()
        self.mail.stop()

    def _write(self, name: str, what: Any) -> None:
        (self.work / name).write_text(yaml.safe_dump(what))

    def _run(self, name: str, *words: str) -> None:
        environment = os.environ | {"SSL_CERT_FILE": str(self.work / "mail.crt")}
        with (self.work / f"{name}.log").open("wb") as log:
            argv = ["setpriv", "--pdeathsig", "KILL", program(name), *words]
            self._processes.append(subprocess.Popen(argv, cwd=self.work, env=environment, stdout=log, stderr=log))


@pytest.fixture
def alerting(tmp_path: Path) -> Iterator[Alerting]:
    made = Alerting(tmp_path)
    try:
        made.xid(node1=0, node2=0)
        made.start()
        yield made
    finally:
        made.stop()


def test_an_alert_arrives_and_its_end(alerting: Alerting) -> None:
    alert = ("GpuXidHardware", "node1")

    alerting.xid(node1=HARDWARE, node2=0)
    eventually(lambda: alerting.webhook.told("firing") == {alert}, "the webhook has the alert", ARRIVES_S)
    eventually(lambda: alerting.mail.mails, "the mail server has the alert", ARRIVES_S)
    alerting.xid(node1=0, node2=0)
    eventually(lambda: alerting.webhook.told("resolved") == {alert}, "the webhook has its end", ARRIVES_S)

    login, to, text = alerting.mail.mails[0]
    assert (login, to) == ("alerts@test of the test", ["gpus@test"])
    assert "GpuXidHardware" in text


def test_a_silence_holds_until_it_ends(alerting: Alerting) -> None:
    silenced, told = ("GpuXidHardware", "node1"), ("GpuXidHardware", "node2")
    silence = alerting.amtool("silence", "add", "node=node1", "--duration=1h", "--comment=repair", "--author=test")

    alerting.xid(node1=HARDWARE, node2=0)
    eventually(lambda: silenced in alerting.firing(), "the silenced alert fires", ARRIVES_S)
    # That of another node comes later, and arrives: so would the silenced one have done.
    alerting.xid(node1=HARDWARE, node2=HARDWARE)
    eventually(lambda: told in alerting.webhook.told("firing"), "the other alert arrives", ARRIVES_S)
    assert silenced not in alerting.webhook.told("firing")

    alerting.amtool("silence", "expire", silence)
    eventually(lambda: silenced in alerting.webhook.told("firing"), "it arrives after the silence", ARRIVES_S)


def test_a_receiver_gets_its_severities_alone(alerting: Alerting) -> None:
    """An error of a program is `info`, which neither receiver asks for."""
    alerting.xid(node1=PROGRAM, node2=0)
    eventually(lambda: ("GpuXidProgram", "node1") in alerting.firing(), "the alert of severity info fires", ARRIVES_S)
    alerting.xid(node1=PROGRAM, node2=HARDWARE)
    eventually(lambda: alerting.webhook.told("firing"), "an alert arrives", ARRIVES_S)

    assert alerting.webhook.told("firing") == {("GpuXidHardware", "node2")}
