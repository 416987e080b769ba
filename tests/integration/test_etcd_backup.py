"""Backups of three real members of etcd and their restore, by the program and the plan of the role.

A stand-in of ctr mounts the image of etcd, and one of the kubelet starts and stops etcd by its manifest.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from control_plane import free_port
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from programs import program as compiled
from upkeep_servers import Failed, Refused, Servers, load

HOSTS = ("cp1", "cp2", "cp3")
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


class Authority:
    """The CA of etcd, as kubeadm makes it."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "etcd-ca")])

    def certify(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._issue(folder, "ca", self.key, True)
        for name in ("server", "healthcheck-client"):
            self._issue(folder, name, ec.generate_private_key(ec.SECP256R1()), False)

    def _issue(self, folder: Path, name: str, key: ec.EllipticCurvePrivateKey, is_ca: bool) -> None:
        now = datetime.datetime.now(datetime.UTC)
        subject = self.name if is_ca else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        addresses = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.TraditionalOpenSSL
        text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        (folder / f"{name}.key").write_bytes(text)


class Server:
    """A server below a folder, with a member of etcd that runs while its manifest is there."""

    process: subprocess.Popen[bytes] | None = None

    def __init__(self, root: Path, name: str, authority: Authority) -> None:
        self.root, self.name = root, name
        self.client, self.peer = (f"https://127.0.0.1:{free_port()}" for _ in range(2))
        self.pki = root / "etc/kubernetes/pki/etcd"
        self.manifest = root / "etc/kubernetes/manifests/etcd.yaml"
        authority.certify(self.pki)
        self.program = load(
            root, COMPONENTS=("etcd",), ENDPOINT=self.client, HEALTH={"etcd": f"{self.client}/health"}, COMPARE_WAIT=10
        )

    def create(self, initial_cluster: str) -> None:
        self.initial_cluster = initial_cluster
        text = (
            f"    - --data-dir=/var/lib/etcd\n    - --initial-advertise-peer-urls={self.peer}\n"
            f"    - --initial-cluster={initial_cluster}\n"
            f"    - --name={self.name}\n    image: registry.k8s.io/etcd:3.6.8-0\n"
        )
        for path, content in {
            self.manifest: text,
            self.root / "etc/kubernetes/kubegpu/cluster.json": json.dumps({"uid": "1234", "name": "prod"}),
            self.root / "etc/kubernetes/kubegpu/upkeep.json": json.dumps(
                {"backup_folder": f"{self.root}/backups", "backup_keep": 2}
            ),
            self.root / "run/x": "",
            self.root / "var/lib/etcd/x": "",
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def kubelet(self) -> None:
        if self.process and not self.manifest.exists():
            self.process.terminate()
            self.process.wait()
            self.process = None
        if not self.process and self.manifest.exists():
            urls = [f"--listen-client-urls={self.client}", f"--advertise-client-urls={self.client}"]
            peers = [f"--listen-peer-urls={self.peer}", f"--initial-advertise-peer-urls={self.peer}"]
            tls = [f"--cert-file={self.pki}/server.crt", f"--key-file={self.pki}/server.key", "--client-cert-auth"]
            tls += [f"--{key.replace('--', '--peer-', 1).lstrip('-')}" for key in tls]
            trust = [f"--{part}trusted-ca-file={self.pki}/ca.crt" for part in ("", "peer-")]
            data = [f"--name={self.name}", f"--data-dir={self.root}/var/lib/etcd", "--log-level=fatal"]
            words = [compiled("etcd"), *data, *urls, *peers, *tls, *trust, "--feature-gates=InitialCorruptCheck=true"]
            self.process = subprocess.Popen([*words, f"--initial-cluster={self.initial_cluster}"])

    def ctl(self, *words: str) -> str:
        login = [f"--cert={self.pki}/healthcheck-client.crt", f"--key={self.pki}/healthcheck-client.key"]
        command = [compiled("etcdctl"), f"--endpoints={self.client}", f"--cacert={self.pki}/ca.crt", *login, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def registry(self) -> str:
        """As this member has them, whoever leads."""
        return self.ctl("get", "/registry", "--prefix", "--keys-only", "--consistency=s")


class Etcd(Servers):
    """The members of one cluster."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self.servers = {name: Server(folder / name, name, authority) for name in HOSTS}
        members = ",".join(f"{server.name}={server.peer}" for server in self.servers.values())
        for server in self.servers.values():
            server.create(members)
        programs = {name: server.program for name, server in self.servers.items()}
        super().__init__(programs, folder / "controller", after=lambda host: self.servers[host].kubelet())
        self.cp1 = self.servers["cp1"]

    def healthy(self) -> None:
        for server in self.servers.values():
            server.kubelet()
        until = time.monotonic() + 60
        while not all(server.program.healthy("etcd") for server in self.servers.values()):
            assert time.monotonic() < until
            time.sleep(0.2)

    def back_up(self) -> list[str]:
        """The backup of each member, with a write between two: names."""
        made = []
        for host in HOSTS:
            made.append(Path(self.on(host, "backup")["backup"]).name)
            self.cp1.ctl("put", f"/registry/after-{host}", host)
        return made

    def hashes(self) -> set[tuple[str, str]]:
        """By etcdctl, at one revision."""
        found = [
            json.loads(s.ctl("endpoint", "status", "--write-out=json"))[0]["Status"] for s in self.servers.values()
        ]
        at = min(row["header"]["revision"] for row in found)
        rows = (s.ctl("endpoint", "hashkv", f"--rev={at}", "--write-out=json") for s in self.servers.values())
        hashes = [json.loads(row)[0]["HashKV"] for row in rows]
        return {(row["hash"], row["compact_revision"]) for row in hashes}


@pytest.fixture
def etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Etcd]:
    made = Etcd(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "ctr").write_text(CTR.format(programs=compiled("etcdutl").parent))
    (programs / "ctr").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    try:
        made.healthy()
        yield made
    finally:
        for server in made.servers.values():
            if server.process:
                server.process.kill()
                server.process.wait()


def test_members_have_one_hash_after_a_restore(etcd: Etcd) -> None:
    """Of the middle one of three snapshots, which differ by a write each."""
    names = etcd.back_up()
    etcd.cp1.ctl("put", "/registry/later", "yes")
    revision = json.loads(etcd.cp1.ctl("get", "/registry/later", "-w", "json"))["header"]["revision"]
    assert len(set(names)) == 3

    plan = etcd.restore(names[1])

    assert plan["copied_to"] == ["cp1", "cp3"]
    assert [server.registry().split() for server in etcd.servers.values()] == [["/registry/after-cp1"]] * 3
    assert len(etcd.hashes()) == 1
    etcd.servers["cp3"].ctl("put", "/registry/after", "yes")
    assert len(etcd.hashes()) == 1
    # Clients that watch from a revision before are told to list again.
    assert (
        json.loads(etcd.cp1.ctl("get", "/registry/after", "-w", "json"))["header"]["revision"] > revision + 100_000_000
    )
    for server in etcd.servers.values():
        assert not list((server.root / "run").glob("kubegpu-etcd-*"))
        assert not (server.root / "etc/kubernetes/kubegpu/restoring.json").exists()
        [before] = (server.root / "var/lib/etcd").glob(f"member.before-{names[1]}-*")
        assert (before / "snap/db").exists()
    # What was replaced is in a backup of each member, and can be restored.
    backups = etcd.on("cp1", "member", "--folder", "/backups")["backups"]
    # Names of backups made within one second have no order.
    [saved] = [row["name"] for row in backups if row["name"] not in names]
    etcd.restore(saved)
    assert "/registry/later" in etcd.servers["cp2"].registry()
    assert len(etcd.hashes()) == 1


def test_members_with_their_own_snapshots_do_not_count_as_restored(etcd: Etcd) -> None:
    """What a restore by a name alone did: healthy members, and each with other data."""
    names = etcd.back_up()
    members = ",".join(f"{server.name}={server.peer}" for server in etcd.servers.values())
    digests = {}
    for host, name in zip(HOSTS, names, strict=True):
        folder = etcd.servers[host].root / "backups"
        digests[host] = json.loads((folder / name / "backup.json").read_text())["snapshot"]["sha256"]
        (folder / name).rename(folder / "one-name")
    for step in ("prepare", "stop", "swap", "start"):
        more = ["--backup", "/backups/one-name", "--members", members] if step == "prepare" else []
        for host in HOSTS:
            etcd.on(host, f"restore-{step}", "--sha256", digests[host], *more)
    etcd.healthy()

    with pytest.raises(Failed, match="the members of etcd have different data"):
        etcd.on("cp2", "restore-end", "--sha256", digests["cp2"], "--members", members)
    assert len({server.registry() for server in etcd.servers.values()}) == 3


@pytest.mark.parametrize("answers", [True, False], ids=["etcd answers", "etcd is down in the run"])
def test_a_member_that_lives_outside_of_the_run_stays_the_only_cluster(etcd: Etcd, answers: bool) -> None:
    name = etcd.back_up()[0]
    if not answers:
        for host in ("cp1", "cp2"):
            process = etcd.servers[host].process
            assert process
            process.kill()
            process.wait()

    with pytest.raises(Refused, match=f"{'cp3'} at {etcd.servers['cp3'].peer} answers and is not in the run"):
        etcd.restore(name, hosts=("cp1", "cp2"))
    assert not [step for step, _ in etcd.ran if step.startswith("restore")]


def test_members_are_restored_without_one_that_is_lost(etcd: Etcd) -> None:
    name = etcd.back_up()[1]
    lost = etcd.servers.pop("cp3")
    assert lost.process
    lost.process.kill()
    lost.process.wait()

    etcd.restore(name, hosts=("cp1", "cp2"))

    assert {server.registry() for server in etcd.servers.values()} == {"/registry/after-cp1\n\n"}
    assert len(etcd.hashes()) == 1
