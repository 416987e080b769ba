"""A backup of a real etcd and its restore, by the program that servers get. A stand-in of ctr mounts its image."""

from __future__ import annotations

import datetime
import importlib.util
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType

import pytest
from collection import ROOT
from control_plane import free_port
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from programs import program as compiled

PROGRAM = ROOT / "roles/kubernetes/files/etc/kubegpu_upkeep.py"
# As ctr mounts an image: its folder usr/local/bin has etcd's programs.
CTR = """#!/bin/sh
case $* in
*" images mount "*)
    for folder; do :; done
    mkdir -p $folder/usr/local/bin
    ln -s {programs}/etcdctl {programs}/etcdutl $folder/usr/local/bin ;;
*" images unmount "*) for folder; do :; done; rm -r $folder/usr ;;
*" tasks list"*) echo TASK PID STATUS ;;
esac
"""


def certify(folder: Path) -> None:
    """The files that kubeadm makes for etcd, of one CA."""
    folder.mkdir(parents=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "etcd-ca")])
    now = datetime.datetime.now(datetime.UTC)

    def issue(name: str, key: ec.EllipticCurvePrivateKey, is_ca: bool) -> None:
        subject = ca_name if is_ca else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.TraditionalOpenSSL
        text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        (folder / f"{name}.key").write_bytes(text)

    issue("ca", ca_key, True)
    for name in ("server", "healthcheck-client"):
        issue(name, ec.generate_private_key(ec.SECP256R1()), False)


class Server:
    """A server below a folder, with one member of etcd."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.client, self.peer = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.pki = root / "etc/kubernetes/pki/etcd"
        certify(self.pki)
        # What the program reads of etcd's manifest. The folder is below the root, as the path of kubeadm is.
        text = (
            f"    - --data-dir=/var/lib/etcd\n    - --initial-advertise-peer-urls=http://{self.peer}\n"
            "    - --name=cp1\n    image: registry.k8s.io/etcd:3.6.8-0\n"
        )
        for path, content in {
            "etc/kubernetes/manifests/etcd.yaml": text,
            "etc/kubernetes/kubegpu/cluster.json": json.dumps({"uid": "1234", "name": "prod"}),
            "run/x": "",
            "var/lib/etcd/x": "",
        }.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)

    @contextmanager
    def etcd(self) -> Iterator[None]:
        urls = [f"--listen-client-urls=https://{self.client}", f"--advertise-client-urls=https://{self.client}"]
        peers = [f"--listen-peer-urls=http://{self.peer}", f"--initial-advertise-peer-urls=http://{self.peer}"]
        tls = [f"--cert-file={self.pki}/server.crt", f"--key-file={self.pki}/server.key", "--client-cert-auth"]
        command = [
            *(compiled("etcd"), "--name=cp1", f"--data-dir={self.root}/var/lib/etcd", *urls, *peers, *tls),
            *(f"--trusted-ca-file={self.pki}/ca.crt", f"--initial-cluster=cp1=http://{self.peer}", "--log-level=error"),
        ]
        with subprocess.Popen(command) as process:
            try:
                until = time.monotonic() + 60
                while subprocess.run(self._etcdctl("endpoint", "health"), capture_output=True).returncode:
                    assert time.monotonic() < until
                    time.sleep(0.2)
                yield
            finally:
                process.terminate()

    def ctl(self, *words: str) -> str:
        return subprocess.run(self._etcdctl(*words), capture_output=True, text=True, check=True).stdout

    def _etcdctl(self, *words: str) -> list[str | Path]:
        login = [f"--cert={self.pki}/healthcheck-client.crt", f"--key={self.pki}/healthcheck-client.key"]
        return [
            compiled("etcdctl"),
            f"--endpoints=https://{self.client}",
            f"--cacert={self.pki}/ca.crt",
            *login,
            *words,
        ]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "root")


@pytest.fixture
def upkeep(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kubegpu_upkeep", PROGRAM)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ctr").write_text(CTR.format(programs=compiled("etcdutl").parent))
    (programs / "ctr").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setattr(module, "ROOT", server.root)
    monkeypatch.setattr(module, "COMPONENTS", ("etcd",))
    monkeypatch.setattr(module, "ENDPOINT", f"https://{server.client}")
    monkeypatch.setattr(module, "HEALTH", {"etcd": f"https://{server.client}/health"})
    return module


def test_etcd_has_the_data_of_the_backup_again(server: Server, upkeep: ModuleType, tmp_path: Path) -> None:
    settings = {"backup_folder": str(tmp_path / "backups"), "backup_keep": 2}
    with server.etcd():
        server.ctl("put", "/registry/kept", "yes")
        made = Path(upkeep.backup(settings)["backup"])
        server.ctl("del", "/registry/kept")
        server.ctl("put", "/registry/later", "yes")
        revision = json.loads(server.ctl("get", "/registry/later", "-w", "json"))["header"]["revision"]
        upkeep.prepare(made, f"cp1=http://{server.peer}")
    upkeep.stop(made.name)
    upkeep.swap(made.name)
    upkeep.start(made.name)

    with server.etcd():
        assert upkeep.end({}, made.name) == {"step": "ended", "changed": True}
        assert server.ctl("get", "/registry", "--prefix").split() == ["/registry/kept", "yes"]
        # Clients that watch from a revision before are told to list again.
        found = json.loads(server.ctl("get", "/registry/kept", "-w", "json"))["header"]["revision"]
        assert found > revision + 100_000_000
    assert not list((server.root / "run").glob("kubegpu-etcd-*"))
    record = json.loads((made / "backup.json").read_text())
    assert record["snapshot"]["totalKey"] >= 1
