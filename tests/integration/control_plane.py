"""A real control plane as processes on this machine: no node, no container, no GPU."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kubernetes import client, config
from programs import program

Seen = TypeVar("Seen")
STARTUP_S = 300
_GIVEN: set[int] = set()
WRITES = ("create", "update", "patch", "delete", "deletecollection")


# Requests of those who have only the rights that a test grants.
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": ["guest", "looker"]}, {"level": "None"}],
}


class Request(NamedTuple):
    """In the words of a rule of RBAC; no namespace and no name where it has none."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str

    @classmethod
    def of(cls, event: dict[str, Any]) -> Request:
        asked = event["objectRef"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        return cls(
            event["verb"], asked.get("apiGroup", ""), resource, asked.get("namespace", ""), asked.get("name", "")
        )


class ControlPlane:
    """etcd, kube-apiserver and the HPA controller. Its programs are compiled ones.

    Pods are objects only: nothing schedules or runs them, tests set their status.
    controllers: more of kube-controller-manager that are to run.
    sync_s:      between two looks at each HPA.
    gates:       feature gates of both, as in their flag; empty for the defaults.
    """

    def __init__(self, work: Path, *controllers: str, sync_s: int = 1, gates: str = "") -> None:
        self.work, self._sync_s = work, sync_s
        self._gates = [f"--feature-gates={gates}"] if gates else []
        self._controllers = ("horizontal-pod-autoscaler-controller", "namespace-controller", *controllers)
        self.kubeconfig = work / "kubeconfig"
        self.address = _address()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        for name in ("kube-apiserver", "kube-controller-manager"):
            (work / name).symlink_to(program("kube"))

    def start(self) -> client.ApiClient:
        etcd, peer, api, manager = (free_port() for _ in range(4))
        self._keys()
        self.run(
            "etcd", program("etcd"), f"--data-dir={self.work}/etcd", "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
        )  # fmt: skip
        users = {"admin": "1,system:masters", "guest": "2", "looker": "3"}
        rows = [f"{token_of(name)},{name},{rest}\n" for name, rest in users.items()]
        (self.work / "tokens.csv").write_text("".join(rows))
        (self.work / "audit.yml").write_text(json.dumps(AUDIT))
        self.run(
            "kube-apiserver", self.work / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key",
            "--service-account-issuer=https://kubernetes", "--token-auth-file=tokens.csv",
            "--audit-policy-file=audit.yml", "--audit-log-path=audit.log",
            "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
            "--cert-dir=certs", f"--secure-port={api}",
            "--service-cluster-ip-range=10.96.0.0/16", f"--advertise-address={self.address}",
            "--enable-aggregator-routing=true", "--requestheader-client-ca-file=proxy.crt",
            "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--proxy-client-cert-file=proxy.crt",
            "--proxy-client-key-file=proxy.key", *self._gates,
        )  # fmt: skip
        certificate = self.work / "certs" / "apiserver.crt"
        self.kubeconfig.write_text(_kubeconfig(f"https://{self.address}:{api}", certificate))
        eventually(certificate.is_file, "the API server has a certificate", STARTUP_S)
        kube = config.new_client_from_config(str(self.kubeconfig))
        eventually(self._is_ready, "the API server is ready", STARTUP_S)
        self.run(
            "kube-controller-manager", self.work / "kube-controller-manager", "--kubeconfig=kubeconfig",
            f"--secure-port={manager}", "--cert-dir=certs", "--leader-elect=false",
            f"--controllers={','.join(self._controllers)}",
            f"--horizontal-pod-autoscaler-sync-period={self._sync_s}s", "--vmodule=horizontal=4",
            # Some hundred HPAs are looked at each second.
            "--kube-api-qps=500", "--kube-api-burst=500", *self._gates,
        )  # fmt: skip
        return kube

    def kubeconfig_of(self, user: str) -> Path:
        """For `guest` or `looker`, who have no right but what a test grants."""
        settings = json.loads(self.kubeconfig.read_text())
        settings["users"] = [{"name": "admin", "user": {"token": token_of(user)}}]
        path = self.kubeconfig.with_name(f"kubeconfig-{user}")
        path.write_text(json.dumps(settings))
        return path

    def allowed_requests(self, user: str) -> list[Request]:
        """What `guest` or `looker` has asked for until now, and was allowed to."""
        events = map(json.loads, (self.work / "audit.log").read_text().splitlines())
        return [
            Request.of(event)
            for event in events
            if event["user"]["username"] == user
            and "objectRef" in event
            and event["annotations"]["authorization.k8s.io/decision"] == "allow"
        ]

    def written_objects(self, user: str) -> set[str]:
        """Objects that `guest` or `looker` has created, changed or deleted until now, titled as in `cluster_dump`."""
        requests = {
            Request.of(event)
            for event in map(json.loads, (self.work / "audit.log").read_text().splitlines())
            if event["user"]["username"] == user
            and event["verb"] in WRITES
            and event["responseStatus"]["code"] < HTTPStatus.MULTIPLE_CHOICES
            and "dryRun" not in event["requestURI"]
        }
        return {f"{request.resource} {request.namespace}/{request.name}" for request in requests}

    def get(self, path: str) -> Any:
        """What the API server answers to the administrator at `path`."""
        return json.loads(self._text(path))

    def _is_ready(self) -> bool:
        """With its own roles: what everybody may read is among these."""
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} ended: {(self.work / f'{name}.log').read_text()[-1000:]}"
        with suppress(OSError):
            return self._text("/readyz") == b"ok" and self._text("/api/v1/namespaces/default") != b""
        return False

    def _text(self, path: str) -> bytes:
        cluster = json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]
        request = urllib.request.Request(
            cluster["server"] + path, headers={"Authorization": f"Bearer {token_of('admin')}"}
        )
        trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        with urllib.request.urlopen(request, context=trust) as answer:
            return answer.read()

    def run(self, name: str, *command: object) -> None:
        # A run that is killed leaves none of them: without etcd the API server would not even end when it is told to.
        self._commands[name] = ["setpriv", "--pdeathsig", "KILL", *map(str, command)]
        self.again(name)

    def again(self, name: str) -> None:
        """Start a process again that `run` has started and that has ended."""
        log = (self.work / f"{name}.log").open("ab")
        # Memory is there, and to collect garbage rarely saves a fifth of the processor that they take.
        environment = {**os.environ, "GOGC": "400"}
        self._processes[name] = subprocess.Popen(
            self._commands[name], cwd=self.work, env=environment, stdout=log, stderr=subprocess.STDOUT
        )

    def runs(self, name: str) -> bool:
        return self._processes[name].poll() is None

    def end(self, name: str) -> None:
        """Kill one process that `run` has started."""
        process = self._processes[name]
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()  # nothing here is worth a graceful end, which takes the API server a minute
            process.wait()

    def _keys(self) -> None:
        # Of elliptic curves: to find primes for RSA takes 0.4 s of a processor.
        for command in (
            "ecparam -name prime256v1 -genkey -noout -out sa.key",
            "ec -in sa.key -pubout -out sa.pub",
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout proxy.key -out proxy.crt "
            "-subj /CN=proxy -days 2",
        ):
            subprocess.run(["openssl", *command.split()], cwd=self.work, check=True, capture_output=True)


@contextmanager
def running(
    work: Path, *controllers: str, sync_s: int = 1, gates: str = ""
) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    """A control plane, and a client of its administrator; it stops at the end, also where it did not start."""
    plane = ControlPlane(work, *controllers, sync_s=sync_s, gates=gates)
    try:
        yield plane, plane.start()
    finally:
        plane.stop()


def free_port() -> int:
    """An unused port that was not returned before, because the system may return one twice in a row."""
    while True:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        if port not in _GIVEN:
            _GIVEN.add(port)
            return port


def eventually(probe: Callable[[], Seen], what: str, timeout_s: float) -> Seen:
    """Wait until `probe` gives something true, and return that: a second look may find another state."""
    end = time.monotonic() + timeout_s
    while not (seen := probe()):
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.2)
    return seen


def _address() -> str:
    """An address of this machine that is not loopback: the API server forwards to no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


def token_of(user: str) -> str:
    """Not the name alone: kubernetes.core 6.6 masks tokens of a kubeconfig in every output, also inside a word."""
    return f"token-of-{user}"


def _kubeconfig(server: str, authority: Path) -> str:
    cluster = {"server": server, "certificate-authority": str(authority)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token_of("admin")}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
    )
