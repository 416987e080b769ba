# Written by kubegpu.autoscale
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Backups of etcd, its restore, renewed certificates, and metrics for alerts, on a node that kubeadm made.

Run by systemd timers and by the playbooks `backup`, `restore` and `certificates`. Uses Python's own library, kubeadm,
and containerd's `ctr`: etcdctl and etcdutl come from the image of etcd, so they always have etcd's release.
Reads its settings from SETTINGS. The file is private: backups have the keys of the cluster.
"""

from __future__ import annotations

import argparse
import calendar
import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path("/")
SETTINGS = "etc/kubernetes/kubegpu/upkeep.json"
IDENTITY = "etc/kubernetes/kubegpu/cluster.json"
RESTORING = "etc/kubernetes/kubegpu/restoring.json"
STOPPED = "etc/kubernetes/kubegpu/stopped"
BACKUP_TIMER = "etc/systemd/system/kubegpu-backup.timer"
STATUS = "var/lib/kubegpu/status.json"
KUBERNETES = "etc/kubernetes"
MANIFESTS = "etc/kubernetes/manifests"
PKI = "etc/kubernetes/pki"
ETCD = "etcd"
# Static pods in the order in which they start. The others use the first.
COMPONENTS = (ETCD, "kube-apiserver", "kube-controller-manager", "kube-scheduler")
ENDPOINT = "https://127.0.0.1:2379"
HEALTH = {
    ETCD: f"{ENDPOINT}/health",
    "kube-apiserver": "https://127.0.0.1:6443/readyz",
    "kube-controller-manager": "https://127.0.0.1:10257/healthz",
    "kube-scheduler": "https://127.0.0.1:10259/healthz",
}
NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
# The watch caches of all clients have to see newer revisions than those that they know from before a restore: etcd's
# documentation names a billion, which a cluster does not write between two backups.
REVISIONS = 1_000_000_000
WAIT = 300  # seconds
_MODULE = re.compile(r"nvidia(?:-current|-tesla(?:-[0-9]+)?)?(?:-open)?\.ko(?:\.(?:xz|zst|gz))?")


class Failure(Exception):
    """One sentence for the user, with the next step."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Backups, certificates and status of a node of kubegpu.autoscale")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("backup", help="back up etcd and /etc/kubernetes")
    renew = commands.add_parser("certificates", help="renew certificates that expire soon")
    renew.add_argument("--force", action="store_true", help="renew certificates that are valid for long, too")
    commands.add_parser("status", help="write the metrics")
    commands.add_parser("member", help="describe the member of etcd")
    for name, text in (
        ("restore-prepare", "write the data of a backup beside those of etcd"),
        ("restore-stop", "stop the control plane of this server"),
        ("restore-swap", "give etcd the data of the backup"),
        ("restore-start", "start the control plane of this server"),
        ("restore-end", "end the restore"),
    ):
        step = commands.add_parser(name, help=text)
        step.add_argument("--backup", required=True, help="folder of the backup")
        if name == "restore-prepare":
            step.add_argument("--members", required=True, help="NAME=URL of each member, with a comma between")
    given = parser.parse_args()
    os.umask(0o077)
    try:
        with alone():
            result = run_command(given)
    except Failure as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result, sort_keys=True))
    return 0


def run_command(given: argparse.Namespace) -> dict[str, Any]:
    settings = read_json(ROOT / SETTINGS)
    match given.command:
        case "backup":
            return with_status(settings, lambda: backup(settings))
        case "certificates":
            return with_status(settings, lambda: renew_certificates(settings, force=given.force))
        case "status":
            return write_status(settings)
        case "member":
            return member()
        case "restore-prepare":
            return prepare(Path(given.backup), given.members)
        case "restore-stop":
            return stop(Path(given.backup).name)
        case "restore-swap":
            return swap(Path(given.backup).name)
        case "restore-start":
            return start(Path(given.backup).name)
        case "restore-end":
            return end(settings, Path(given.backup).name)
    raise AssertionError(given.command)


def with_status(settings: dict[str, Any], act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Metrics tell of a failure as well: what should be newer is old."""
    try:
        return act()
    finally:
        with contextlib.suppress(Failure, OSError):
            write_status(settings)


# Files and programs.


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One at a time: a timer may start beside a playbook."""
    with (ROOT / "run/kubegpu-upkeep.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(*words: str | Path, timeout: float = 600) -> str:
    """Standard output. Its errors may name files, never their content."""
    try:
        done = subprocess.run([*map(str, words)], capture_output=True, encoding="utf-8", timeout=timeout, check=False)
    except FileNotFoundError as error:
        raise Failure(f"{words[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{words[0]} has not ended within {timeout:.0f} s") from error
    if done.returncode:
        raise Failure(f"{' '.join(map(str, words[:3]))} failed: {(done.stderr or done.stdout).strip()[-1000:]}")
    return done.stdout


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise Failure(f"{path} is not JSON: remove it and run `kubegpu.autoscale.cluster`") from error
    return found if isinstance(found, dict) else {}


def write_json(path: Path, document: dict[str, Any], mode: int = 0o600) -> None:
    write_text(path, json.dumps(document, indent=1, sort_keys=True) + "\n", mode)


def write_text(path: Path, text: str, mode: int = 0o600) -> None:
    """All of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.chmod(mode)
    partial.replace(path)


def digest(path: Path) -> str:
    with path.open("rb") as content:
        made = hashlib.sha256()
        while block := content.read(1 << 20):
            made.update(block)
        return made.hexdigest()


def wait_for(what: str, condition: Callable[[], bool], timeout: float = WAIT) -> None:
    until = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > until:
            raise Failure(f"{what} did not happen within {timeout:.0f} s; see `journalctl -u kubelet`")
        time.sleep(1)


# Static pods, and etcd's programs.


def manifest(component: str) -> str:
    """Of a static pod, which a restore may have stopped."""
    for folder in (MANIFESTS, STOPPED):
        path = ROOT / folder / f"{component}.yaml"
        if path.exists():
            return path.read_text(encoding="utf-8")
    raise Failure(f"/{MANIFESTS}/{component}.yaml is missing: this server has no {component} made by kubeadm")


def flag(text: str, name: str, default: str = "") -> str:
    found = re.search(rf"--{name}=(\S+)", text)
    return found[1].strip("\"'") if found else default


def image(text: str) -> str:
    found = re.search(r"^\s*-?\s*image:\s*(\S+)", text, re.MULTILINE)
    if not found:
        raise Failure("the manifest of etcd names no image")
    return found[1].strip("\"'")


@contextlib.contextmanager
def etcd_programs() -> Iterator[Path]:
    """Folder of etcdctl and etcdutl, of the image that etcd runs by. Nothing is downloaded."""
    release_mounts()
    folder = Path(tempfile.mkdtemp(prefix="kubegpu-etcd-", dir=ROOT / "run"))
    try:
        run("ctr", "--namespace", "k8s.io", "images", "mount", image(manifest(ETCD)), folder)
        yield folder / "usr/local/bin"
    finally:
        release_mounts()


def release_mounts() -> None:
    """Those of a killed run, too."""
    for folder in (ROOT / "run").glob("kubegpu-etcd-*"):
        with contextlib.suppress(Failure):
            run("ctr", "--namespace", "k8s.io", "images", "unmount", "--rm", folder)
        with contextlib.suppress(OSError):
            folder.rmdir()


def member() -> dict[str, Any]:
    """The member of etcd of this server, and a restore that has not ended."""
    text = manifest(ETCD)
    return {
        "name": flag(text, "name"),
        "peer": flag(text, "initial-advertise-peer-urls"),
        "identity": read_json(ROOT / IDENTITY),
        "restoring": read_json(ROOT / RESTORING).get("name", ""),
        "backups": [path.name for path in backups(Path(read_json(ROOT / SETTINGS)["backup_folder"]))],
    }


def data_folder() -> Path:
    return ROOT / flag(manifest(ETCD), "data-dir", "/var/lib/etcd").lstrip("/")


# Backups.


def backups(folder: Path) -> list[Path]:
    """Complete ones, the oldest first."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if NAME.fullmatch(path.name) and (path / "backup.json").is_file())


def backup(settings: dict[str, Any]) -> dict[str, Any]:
    """A folder with etcd.db.gz, kubernetes.tar (PKI, kubeconfigs, manifests) and backup.json. It is named last."""
    folder = Path(settings["backup_folder"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_partial(folder)
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    partial = folder / f".{name}.partial"
    partial.mkdir()
    text, pki = manifest(ETCD), ROOT / PKI / "etcd"
    with etcd_programs() as programs:
        snapshot = partial / "etcd.db"
        run(
            *(programs / "etcdctl", f"--endpoints={ENDPOINT}", f"--cacert={pki / 'ca.crt'}"),
            *(f"--cert={pki / 'healthcheck-client.crt'}", f"--key={pki / 'healthcheck-client.key'}"),
            *("snapshot", "save", snapshot),
        )
        status = json.loads(run(programs / "etcdutl", "snapshot", "status", snapshot, "--write-out=json"))
    checksum = digest(snapshot)
    packed = partial / "etcd.db.gz"
    with snapshot.open("rb") as plain, gzip.open(packed, "wb", compresslevel=1) as archive:
        shutil.copyfileobj(plain, archive, 1 << 20)
    packed.chmod(0o600)
    snapshot.unlink()
    pack(partial / "kubernetes.tar")
    record = {
        "format": 1,
        "name": name,
        "identity": read_json(ROOT / IDENTITY),
        "member": flag(text, "name"),
        "image": image(text),
        "created": int(time.time()),
        "snapshot": {**status, "sha256": checksum},
        "kubernetes": {"sha256": digest(partial / "kubernetes.tar")},
    }
    write_json(partial / "backup.json", record)
    copy_off(partial, name, settings)
    partial.rename(folder / name)
    os.sync()
    for old in backups(folder)[: -int(settings["backup_keep"])]:
        shutil.rmtree(old)
    return {"backup": str(folder / name), "keys": status.get("totalKey"), "bytes": status.get("totalSize")}


def pack(path: Path) -> None:
    """All of /etc/kubernetes: PKI, kubeconfigs, manifests, and what an administrator has put there, such as keys."""

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        left_out = entry.name.startswith("kubernetes/kubegpu/cache") or not (entry.isfile() or entry.isdir())
        return None if left_out else entry

    with tarfile.open(path, "w") as tar:
        tar.add(ROOT / KUBERNETES, "kubernetes", filter=wanted)
    path.chmod(0o600)


def remove_partial(folder: Path) -> None:
    for path in folder.glob(".*.partial"):
        shutil.rmtree(path)


def copy_off(partial: Path, name: str, settings: dict[str, Any]) -> None:
    """To another file system, which is not a copy off the server while it is not mounted."""
    if not settings.get("backup_copy"):
        return
    folder = Path(settings["backup_copy"])
    if not folder.is_dir() or folder.stat().st_dev == partial.stat().st_dev:
        raise Failure(
            f"backup -> {folder}: this is no mounted file system, so the backup is not off the server. "
            "Next: mount it, or change kubernetes_backup_copy"
        )
    mine = folder / flag(manifest(ETCD), "name")
    mine.mkdir(mode=0o700, exist_ok=True)
    remove_partial(mine)
    copied = mine / partial.name
    shutil.copytree(partial, copied, copy_function=shutil.copyfile)
    for path in copied.iterdir():
        path.chmod(0o600)
    copied.rename(mine / name)
    for old in backups(mine)[: -int(settings["backup_keep"])]:
        shutil.rmtree(old)


# A restore. Each step does nothing if it has been done, so a killed run continues; the playbook runs each on all
# control planes before the next one, because the members have to begin with the same data.


def began(name: str) -> dict[str, Any]:
    state = read_json(ROOT / RESTORING)
    if state.get("name") != name:
        raise Failure(f"no restore of {name} has begun on this server")
    return state


def step_done(state: dict[str, Any], step: str) -> dict[str, Any]:
    write_json(ROOT / RESTORING, {**state, "step": step})
    return {"step": step, "changed": True}


def prepare(folder: Path, members: str) -> dict[str, Any]:
    """The cluster still runs: what is wrong with the backup fails here."""
    state = read_json(ROOT / RESTORING)
    name = folder.name
    if state and state["name"] != name:
        raise Failure(f"restore -> {name}: the restore of {state['name']} has not ended; finish it first")
    if state:
        return {"step": state["step"], "changed": False}
    record = read_json(folder / "backup.json")
    packed = folder / "etcd.db.gz"
    if record.get("format") != 1 or not packed.is_file():
        raise Failure(f"restore -> {folder}: this is no backup of this collection")
    identity = read_json(ROOT / IDENTITY)
    if not identity.get("uid") or record["identity"].get("uid") != identity["uid"]:
        raise Failure(f"restore -> {name}: the backup is not of this server's cluster. Nothing was changed")
    text, data = manifest(ETCD), data_folder()
    partial = data / f"restored-{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    for old in data.glob("restored-*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    snapshot = data / f"restored-{name}.db.partial"
    unpack(packed, snapshot, record["snapshot"]["sha256"])
    with etcd_programs() as programs:
        run(
            *(programs / "etcdutl", "snapshot", "restore", snapshot, f"--data-dir={partial}"),
            *(f"--name={flag(text, 'name')}", f"--initial-cluster={members}"),
            f"--initial-advertise-peer-urls={flag(text, 'initial-advertise-peer-urls')}",
            # Members of the old cluster that still run somewhere do not join this one.
            f"--initial-cluster-token={name}",
            *(f"--bump-revision={REVISIONS}", "--mark-compacted"),
        )
    snapshot.unlink()
    # Only now, so that a damaged backup does not cost the data before the last restore.
    for old in data.glob("member.before-*"):
        shutil.rmtree(old)
    partial.rename(data / f"restored-{name}")
    return step_done({"name": name}, "prepared")


def unpack(packed: Path, snapshot: Path, checksum: str) -> None:
    try:
        with gzip.open(packed, "rb") as archive, snapshot.open("wb") as plain:
            shutil.copyfileobj(archive, plain, 1 << 20)
    except (EOFError, OSError) as error:
        snapshot.unlink(missing_ok=True)
        raise Failure(f"restore -> {packed}: it cannot be unpacked ({error}). Nothing was changed") from error
    if digest(snapshot) != checksum:
        snapshot.unlink()
        raise Failure(f"restore -> {packed}: it is damaged. Nothing was changed. Next: use another backup")


def stop(name: str) -> dict[str, Any]:
    state = began(name)
    if state["step"] not in ("prepared", "stopping"):
        return {"step": state["step"], "changed": False}
    step_done(state, "stopping")
    (ROOT / STOPPED).mkdir(exist_ok=True)
    for component in reversed(COMPONENTS):
        path = ROOT / MANIFESTS / f"{component}.yaml"
        if path.exists():
            path.replace(ROOT / STOPPED / path.name)
    wait_for("the end of the control plane's containers", lambda: not any(map(running, COMPONENTS)))
    return step_done(state, "stopped")


def swap(name: str) -> dict[str, Any]:
    """The data before stay beside it, until the next restore."""
    state = began(name)
    if state["step"] != "stopped":
        return {"step": state["step"], "changed": False}
    data = data_folder()
    restored, before, current = data / f"restored-{name}", data / f"member.before-{name}", data / "member"
    if (restored / "member").exists():
        if current.exists():
            current.rename(before)
        (restored / "member").rename(current)
    shutil.rmtree(restored, ignore_errors=True)
    return step_done(state, "swapped")


def start(name: str) -> dict[str, Any]:
    """etcd has its majority once most servers have done this, so it does not wait."""
    state = began(name)
    if state["step"] != "swapped":
        return {"step": state["step"], "changed": False}
    for component in COMPONENTS:
        path = ROOT / STOPPED / f"{component}.yaml"
        if path.exists():
            path.replace(ROOT / MANIFESTS / path.name)
    return step_done(state, "started")


def end(settings: dict[str, Any], name: str) -> dict[str, Any]:
    if read_json(ROOT / RESTORING).get("name") != name:
        return {"step": "ended", "changed": False}
    state = began(name)
    if state["step"] != "started":
        raise Failure(f"restore -> {name}: its last step on this server is {state['step']}")
    for component in COMPONENTS:
        wait_for(f"a healthy {component}", lambda component=component: healthy(component))  # type: ignore[misc]
    with contextlib.suppress(OSError):
        (ROOT / STOPPED).rmdir()
    (ROOT / RESTORING).unlink()
    with contextlib.suppress(Failure):
        write_status(settings)
    return {"step": "ended", "changed": True}


# Components.


def running(component: str) -> set[str]:
    """Containers of a static pod that run."""
    labels = f'labels."io.kubernetes.container.name"=={component}'
    known = set(run("ctr", "--namespace", "k8s.io", "containers", "list", "--quiet", labels).split())
    tasks = run("ctr", "--namespace", "k8s.io", "tasks", "list").splitlines()[1:]
    return known & {row.split()[0] for row in tasks if row.split()[-1] == "RUNNING"}


def restart(component: str) -> None:
    """The kubelet starts the container again. One that is not healthy then ends this, and the others still run."""
    before = running(component)
    for container in before:
        run("ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGTERM", container)
    wait_for(f"the restart of {component}", lambda: bool(running(component) - before))
    wait_for(f"a healthy {component}", lambda: healthy(component))


def context() -> ssl.SSLContext:
    """Of a client on this server: etcd wants a certificate, and addresses are local."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    pki = ROOT / PKI / "etcd"
    made.load_cert_chain(pki / "healthcheck-client.crt", pki / "healthcheck-client.key")
    return made


def healthy(component: str) -> bool:
    handler = urllib.request.HTTPSHandler(context=context())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)
    try:
        with opener.open(HEALTH[component], timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        return component != ETCD and error.code in (401, 403)  # it serves, and wants a login
    except OSError:
        return False


# Certificates.


def certificates() -> dict[str, int]:
    """Unix time of the end of each certificate that kubeadm renews."""
    if not (ROOT / PKI / "apiserver.crt").exists():
        return {}
    answer = json.loads(run("kubeadm", "certs", "check-expiration", "--output=json"))
    rows = [row for row in answer["certificates"] if not row.get("externallyManaged") and not row.get("missing")]
    return {row["name"]: unix_time(row["expirationDate"]) for row in rows}


def unix_time(text: str) -> int:
    """Of 2027-11-27T05:00:00Z."""
    return calendar.timegm(time.strptime(text.partition(".")[0].rstrip("Z"), "%Y-%m-%dT%H:%M:%S"))


def renew_certificates(settings: dict[str, Any], *, force: bool) -> dict[str, Any]:
    """Renewed certificates are served only by components that have started after that.

    A run that was killed between the two has left a mark, so the next one restarts the components.
    """
    mark = ROOT / "etc/kubernetes/kubegpu/renewing"
    ends = certificates()
    if not ends:
        raise Failure("this server has no certificates of kubeadm")
    first = min(ends.values())
    due = force or first - time.time() < int(settings["renew_days"]) * 86400
    if due:
        write_text(mark, "")
        run("kubeadm", "certs", "renew", "all")
    if mark.exists():
        for component in COMPONENTS:
            if (ROOT / MANIFESTS / f"{component}.yaml").exists():
                restart(component)
        prove_served()
        mark.unlink()
        due = True
    return {"renewed": due, "until": min(certificates().values()), "before": first}


def prove_served() -> None:
    """By a handshake with each server: the certificate that it presents is the file's."""
    for component, port, file in ((ETCD, 2379, "etcd/server.crt"), ("kube-apiserver", 6443, "apiserver.crt")):
        path = ROOT / PKI / file
        if path.exists() and (ROOT / MANIFESTS / f"{component}.yaml").exists() and presented(port) != first_of(path):
            raise Failure(
                f"certificates -> {component}: it serves another certificate than {path}; run `journalctl -u kubelet`"
            )


def presented(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain, context().wrap_socket(plain) as secure:
        return secure.getpeercert(binary_form=True) or b""


def first_of(path: Path) -> bytes:
    text = path.read_text(encoding="utf-8")
    end_line = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN") : text.index(end_line) + len(end_line)])


# Status: metrics in node-exporter's text format, and the same for the doctor.


def write_status(settings: dict[str, Any]) -> dict[str, Any]:
    status: dict[str, Any] = {"time": int(time.time()), "node": settings.get("node", "")}
    problem = ""
    if settings.get("is_control_plane"):
        try:
            status["certificates"] = certificates()
        except Failure as error:
            problem = str(error)
        if settings.get("backup"):
            made = backups(Path(settings["backup_folder"]))
            # Before the first one, since when there is a timer.
            timer = ROOT / BACKUP_TIMER
            since = int(timer.stat().st_mtime) if timer.exists() else 0
            status["backup"] = read_json(made[-1] / "backup.json")["created"] if made else since
    status |= driver_status(settings)
    write_json(ROOT / STATUS, status)
    folder = settings.get("metrics_folder")
    if folder:
        write_text(readable(ROOT / folder.lstrip("/")) / "kubegpu.prom", metrics(status), 0o644)
    if problem:
        raise Failure(problem)
    return status


def readable(folder: Path) -> Path:
    """Made where it is missing: node-exporter runs as another user."""
    for path in reversed((folder, *folder.parents)):
        if not path.exists():
            path.mkdir()
            path.chmod(0o755)
    return folder


def driver_status(settings: dict[str, Any]) -> dict[str, Any]:
    """Empty on a server without NVIDIA's driver."""
    version = ""
    with contextlib.suppress(OSError):
        version = (ROOT / "sys/module/nvidia/version").read_text(encoding="utf-8").strip()
    if not version:
        return {}
    branch = version.partition(".")[0]
    kernel = next_kernel()
    return {
        "branch": branch,
        "branch_end": settings.get("branch_ends", {}).get(branch, 0),
        "next_kernel": kernel,
        "next_kernel_has_module": not kernel or has_module(kernel),
    }


def next_kernel() -> str:
    """The newest kernel with an image in /boot, which the boot loader takes by default; empty without one."""
    folder = ROOT / "lib/modules"
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    bootable = [name for name in names if (ROOT / "boot" / f"vmlinuz-{name}").exists()]
    return max(bootable, key=lambda name: [int(part) for part in re.findall("[0-9]+", name)], default="")


def has_module(kernel: str) -> bool:
    return any(_MODULE.fullmatch(path.name) for path in (ROOT / "lib/modules" / kernel).rglob("nvidia*.ko*"))


def metrics(status: dict[str, Any]) -> str:
    node = json.dumps(status["node"])
    rows = [
        ("kubegpu_status_timestamp_seconds", "When this file was written.", [("", status["time"])]),
        (
            "kubegpu_certificate_end_timestamp_seconds",
            "When a certificate of the control plane expires.",
            [(f",certificate={json.dumps(name)}", end) for name, end in status.get("certificates", {}).items()],
        ),
        (
            "kubegpu_backup_timestamp_seconds",
            "When the newest complete backup of etcd was made, or the timer before the first one.",
            [("", status["backup"])] if "backup" in status else [],
        ),
        (
            "kubegpu_driver_branch_end_timestamp_seconds",
            "When NVIDIA ends the support of the loaded driver branch; 0 if unknown.",
            [(f",branch={json.dumps(status['branch'])}", status["branch_end"])] if "branch" in status else [],
        ),
        (
            "kubegpu_next_kernel_has_module",
            "Whether the kernel of the next boot has NVIDIA's module.",
            [(f",kernel={json.dumps(status['next_kernel'])}", int(status["next_kernel_has_module"]))]
            if status.get("next_kernel")
            else [],
        ),
    ]
    lines = []
    for name, help_text, samples in rows:
        if samples:
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{node={node}{labels}}} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
