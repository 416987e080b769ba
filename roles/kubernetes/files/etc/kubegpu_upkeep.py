# Written by kubegpu.autoscale
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Backups of etcd, its restore, renewed certificates, and metrics for alerts, on a node that kubeadm made.

Run by systemd timers and by the playbooks `backup`, `restore` and `certificates`. Uses Python's own library, kubeadm,
and containerd's `ctr`: etcdctl and etcdutl come from the image of etcd, so they always have etcd's release.
Reads its settings from SETTINGS. The file is private: backups have the keys of the cluster.
The plan on the controller decides what a restore does. `list` and `prune` run on the controller as well.
"""

from __future__ import annotations

import argparse
import calendar
import contextlib
import fcntl
import gzip
import hashlib
import http.client
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
from typing import IO, Any

ROOT = Path("/")
SETTINGS = "etc/kubernetes/kubegpu/upkeep.json"
IDENTITY = "etc/kubernetes/kubegpu/cluster.json"
MACHINE_ID = "etc/machine-id"
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
# Reads admin.conf, which is renewed with the others, once. A restore does not change it, because it has no data.
KUBE_VIP = "kube-vip"
ENDPOINT = "https://127.0.0.1:2379"
HEALTH = {
    ETCD: f"{ENDPOINT}/health",
    "kube-apiserver": "https://127.0.0.1:6443/readyz",
    "kube-controller-manager": "https://127.0.0.1:10257/healthz",
    "kube-scheduler": "https://127.0.0.1:10259/healthz",
}
# When it was made, and the first digits of its snapshot's digest: one name is one snapshot.
NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}")
RECORD = "backup.json"  # written last: without it, a copy is incomplete
SNAPSHOT = "etcd.db.gz"
FILES = (SNAPSHOT, "kubernetes.tar")
RESERVE = 256 << 20  # bytes that stay free: etcd often has the same disk
DAY = 86400  # seconds
# The watch caches of all clients have to see newer revisions than those that they know from before a restore: etcd's
# documentation names a billion, which a cluster does not write between two backups.
REVISIONS = 1_000_000_000
WAIT = 300  # seconds
LOCK_WAIT = 120
COPY_WAIT = 1800
COMPARE_WAIT = 60
_MODULE = re.compile(r"nvidia(?:-current|-tesla(?:-[0-9]+)?)?(?:-open)?\.ko(?:\.(?:xz|zst|gz))?")


class Failure(Exception):
    """One sentence for the user, with the next step."""


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Backups, certificates and status of a node of kubegpu.autoscale")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str, *options: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text)
        for option in options:
            made.add_argument(option, required=True)
        return made

    command("backup", "back up etcd and /etc/kubernetes")
    command("certificates", "renew certificates that expire soon").add_argument(
        "--force", action="store_true", help="renew certificates that are valid for long, too"
    )
    command("restart-kube-vip", "have kube-vip read a renewed certificate")
    command("status", "write the metrics")
    command("list", "list the backups below a folder", "--folder").add_argument("--check", default="", help="a name")
    command("prune", "remove old backups", "--folder", "--keep", "--made")
    command("copy", "copy a backup to a mounted file system", "--folder", "--keep", "--backup")
    member_of = command("member", "describe the member of etcd", "--folder")
    member_of.add_argument("--check", default="", help="name of a backup of which the digest is computed")
    member_of.add_argument("--ask", default="", help="peer URLs to query if etcd does not answer, with a comma between")
    command("restore-prepare", "write a backup's data beside those of etcd", "--backup", "--sha256", "--members")
    command("restore-save", "back up what is replaced", "--sha256")
    command("restore-stop", "stop the control plane of this server", "--sha256")
    command("restore-swap", "give etcd the data of the backup", "--sha256")
    command("restore-start", "start the control plane of this server", "--sha256")
    command("restore-end", "compare the members of etcd and end the restore", "--sha256", "--members")
    command("restore-abort", "discard what is prepared")
    return parser


def main(words: list[str] | None = None) -> int:
    given = arguments().parse_args(words)
    os.umask(0o077)
    try:
        with contextlib.nullcontext() if given.command in READS else alone(given.command):
            result = run_command(given)
    except (Failure, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result, sort_keys=True))
    if result.get("failed"):
        print(result["failed"], file=sys.stderr)
    return int("failed" in result)


# These write nothing of the server's, or one file at once. `copy` may wait for a mount, and its parent has the lock.
READS = ("status", "list", "prune", "copy", "member")


def run_command(given: argparse.Namespace) -> dict[str, Any]:
    settings = read_json(ROOT / SETTINGS) if given.command not in ("list", "prune", "copy", "member") else {}
    acts: dict[str, Callable[[], dict[str, Any]]] = {
        "backup": lambda: with_status(settings, lambda: backup(settings)),
        "certificates": lambda: with_status(settings, lambda: renew_certificates(settings, force=given.force)),
        "restart-kube-vip": lambda: {"restarted": restart_existing(KUBE_VIP)},
        "status": lambda: write_status(settings),
        "list": lambda: {"backups": rows(Path(given.folder), given.check)},
        "prune": lambda: prune(Path(given.folder), int(given.keep), given.made),
        "copy": lambda: copy(Path(given.backup), Path(given.folder), int(given.keep)),
        "member": lambda: member(Path(given.folder), given.check, given.ask),
        "restore-prepare": lambda: prepare(Path(given.backup), given.sha256, given.members),
        "restore-save": lambda: save(settings, given.sha256),
        "restore-stop": lambda: stop(given.sha256),
        "restore-swap": lambda: swap(given.sha256),
        "restore-start": lambda: start(given.sha256),
        "restore-end": lambda: end(settings, given.sha256, given.members),
        "restore-abort": abort,
    }
    return acts[given.command]()


def with_status(settings: dict[str, Any], act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Metrics tell of a failure as well: what should be newer is old."""
    try:
        return act()
    finally:
        with contextlib.suppress(Failure, OSError):
            write_status(settings)


# Files and programs.


@contextlib.contextmanager
def alone(command: str) -> Iterator[None]:
    """One at a time: a timer may start beside a playbook. Does not wait for ever for one that hangs."""
    with (ROOT / "run/kubegpu-upkeep.lock").open("a+", encoding="utf-8") as lock:
        until = time.monotonic() + LOCK_WAIT
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    lock.seek(0)
                    raise Failure(
                        f"{command} -> {lock.read() or 'another run'} has not ended within {LOCK_WAIT} s on this "
                        "server. Nothing was changed. Next: wait for it, or see why it hangs and end it"
                    ) from None
                time.sleep(0.2)
        lock.truncate(0)
        lock.write(f"{command}, process {os.getpid()},")
        lock.flush()
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
    """All of it or nothing, as a new file: a link that another user has put there is replaced, never followed."""
    folder = open_folder(path.parent, 0o755 if mode & 0o004 else 0o700)
    partial = f".{path.name}.{os.urandom(6).hex()}.partial"
    try:
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=folder)
        try:
            with os.fdopen(file, "w", encoding="utf-8") as content:
                content.write(text)
                os.fchmod(file, mode)
            os.replace(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(partial, dir_fd=folder)
            raise
    finally:
        os.close(folder)


def open_folder(path: Path, mode: int) -> int:
    """Descriptor of a folder, which is made where it is missing. Links in folders of other users are not followed."""
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    for part in path.absolute().parts[1:]:
        parent, state = folder, os.fstat(folder)
        trusted = state.st_uid in (0, os.geteuid()) and not state.st_mode & 0o022
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, mode, dir_fd=parent)
                os.chmod(part, mode, dir_fd=parent)
            link = 0 if trusted else os.O_NOFOLLOW
            folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | link, dir_fd=parent)
        finally:
            os.close(parent)
    return folder


def digest(content: IO[bytes] | gzip.GzipFile) -> str:
    made = hashlib.sha256()
    while block := content.read(1 << 20):
        made.update(block)
    return made.hexdigest()


def require_space(folder: Path, needed: int) -> None:
    """Before anything is written. needed: bytes."""
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < needed + RESERVE:
        raise Failure(
            f"{folder}: {free >> 20} MiB are free, and {(needed + RESERVE) >> 20} MiB are needed. Nothing was changed. "
            "Next: remove what is not needed any more, such as old backups, and member.before-* in the folder of etcd"
        )


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


def member(folder: Path, check: str = "", ask: str = "") -> dict[str, Any]:
    """The member of etcd of this server, its backups, a restore that has not ended, and which other members answer.

    check: name of a backup that counts as complete only if its digest is right.
    ask:   peer URLs that are queried as well if etcd does not answer here.
    """
    text, identity = manifest(ETCD), read_json(ROOT / IDENTITY)
    own, found = flag(text, "initial-advertise-peer-urls"), rows(folder, check)
    peers = listed = members()
    if not listed:
        mine = [row for row in found if row["complete"] and row["cluster"] == identity.get("uid")]
        newest = max(mine, key=lambda row: row["created"], default={})
        peers = (
            by_url(flag(text, "initial-cluster"))
            | newest.get("members", {})
            | dict.fromkeys(filter(None, ask.split(",")), "")
        )
    return {
        "name": flag(text, "name"),
        "peer": own,
        "identity": identity,
        "restoring": read_json(ROOT / RESTORING),
        "backups": found,
        "living": {url: name for url, name in peers.items() if url != own and answers(url)},
    }


def by_url(text: str) -> dict[str, str]:
    """Of NAME=URL,NAME=URL, as etcd has it: the names by URL."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {url: name for name, _equals, url in pairs}


def members() -> dict[str, str]:
    """Names by peer URL, as this member of etcd knows them, with or without a majority; empty if it does not answer."""
    try:
        listed = ask_etcd("/v3/cluster/member/list", {"linearizable": False})["members"]
    except (OSError, ValueError, LookupError):
        return {}
    return {url: row.get("name", "") for row in listed for url in row.get("peerURLs", ())}


def own_identity(act: str) -> dict[str, Any]:
    """The record of the cluster, which a copy of the server has as well, with the name of its member."""
    identity = read_json(ROOT / IDENTITY)
    if not identity.get("uid"):
        raise Failure(f"{act}: this server has no record of its cluster. Next: run `kubegpu.autoscale.cluster`")
    recorded = identity.get("machine_id")
    if recorded and recorded != (ROOT / MACHINE_ID).read_text(encoding="utf-8").strip():
        raise Failure(
            f"{act}: /{IDENTITY} was written on machine {recorded}, so this server is a copy of that one. "
            f"Nothing was changed. Next: if only /{MACHINE_ID} is new, remove /{IDENTITY} and run "
            "`kubegpu.autoscale.cluster`"
        )
    return identity


def data_folder() -> Path:
    return ROOT / flag(manifest(ETCD), "data-dir", "/var/lib/etcd").lstrip("/")


# Backups.


def rows(folder: Path, check: str = "", below: str = "**/") -> list[dict[str, Any]]:
    """The backups in a folder and below, the oldest first. check: name of one of which the digest is computed.

    below: a pattern of folders, `*/` for those that lie in the folder itself: another one may be mounted below it.
    """
    found = (path.parent for path in folder.glob(below + RECORD) if NAME.fullmatch(path.parent.name))
    return sorted((described(path, check) for path in found), key=lambda row: (row["created"], row["path"]))


def described(folder: Path, check: str = "") -> dict[str, Any]:
    """What a backup is: its cluster, its member, when it was made, its digest, and whether it is complete."""
    row: dict[str, Any] = {"path": str(folder), "name": folder.name, "complete": False, "created": 0}
    row |= {"sha256": "", "cluster": "", "node": "", "members": {}, "copied": False}
    with contextlib.suppress(Failure, OSError, EOFError, LookupError, TypeError, ValueError):
        record = read_json(folder / RECORD)
        row |= {"created": int(record["created"]), "members": {**record["members"]}, "copied": "copied" in record}
        row |= {"sha256": record["snapshot"]["sha256"], "cluster": record["identity"]["uid"], "node": record["member"]}
        whole = record["name"] == folder.name and all(
            (folder / name).stat().st_size == record["sizes"][name] for name in FILES
        )
        row["complete"] = whole and (folder.name != check or unpacked_digest(folder) == row["sha256"])
    return row


def unpacked_digest(folder: Path) -> str:
    with gzip.open(folder / SNAPSHOT, "rb") as plain:
        return digest(plain)


def surplus(found: list[dict[str, Any]], keep: int, now: float) -> list[dict[str, Any]]:
    """What retention removes of complete backups: of each cluster and node all but the newest `keep`.

    Dates in the future are counted apart, because either they are wrong or the clock is.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in found:
        if row["complete"]:
            groups.setdefault((row["cluster"], row["node"], row["created"] > now), []).append(row)
    return [row for group in groups.values() for row in sorted(group, key=lambda row: row["created"])[: -max(keep, 1)]]


def prune(folder: Path, keep: int, *kept: str) -> dict[str, Any]:
    """kept: names that stay in any case."""
    now = time.time()
    old = [Path(row["path"]) for row in surplus(rows(folder, below="*/"), keep, now) if row["name"] not in kept]
    for path in folder.iterdir():
        # A copy that was interrupted; a younger one may still be on its way.
        if NAME.fullmatch(path.name) and not (path / RECORD).exists() and path.stat().st_mtime < now - DAY:
            old.append(path)
    for path in old:
        gone = path.with_name(f".{path.name}.partial")
        path.rename(gone)
        shutil.rmtree(gone)
    return {"removed": [str(path) for path in old], "changed": bool(old)}


def backup(settings: dict[str, Any]) -> dict[str, Any]:
    """A folder with etcd.db.gz, kubernetes.tar (PKI, kubeconfigs, manifests) and backup.json. It is named last."""
    identity = own_identity("backup -> etcd")
    folder = Path(settings["backup_folder"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_partial(folder)
    with contextlib.suppress(FileNotFoundError):
        require_space(folder, 2 * (data_folder() / "member/snap/db").stat().st_size)
    partial = Path(tempfile.mkdtemp(prefix=".", suffix=".partial", dir=folder))
    try:
        record = write_backup(partial, identity)
        made = folder / record["name"]
        if not made.exists():  # the same data in the same second
            partial.rename(made)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    os.sync()
    keep, restoring = int(settings["backup_keep"]), read_json(ROOT / RESTORING).get("name", "")
    prune(folder, keep, made.name, restoring)
    result = {"backup": str(made), "cluster": identity["uid"], "keys": record["snapshot"].get("totalKey")}
    if settings.get("backup_copy"):
        problem = copy_off(made, settings["backup_copy"], keep)
        if problem:
            return result | {"failed": problem}
        write_json(made / RECORD, record | {"copied": int(time.time())})
    return result


def write_backup(folder: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of backup.json."""
    text, pki, snapshot = manifest(ETCD), ROOT / PKI / "etcd", folder / "etcd.db"
    with etcd_programs() as programs:
        run(
            *(programs / "etcdctl", f"--endpoints={ENDPOINT}", f"--cacert={pki / 'ca.crt'}"),
            *(f"--cert={pki / 'healthcheck-client.crt'}", f"--key={pki / 'healthcheck-client.key'}"),
            *("snapshot", "save", snapshot),
        )
        status = json.loads(run(programs / "etcdutl", "snapshot", "status", snapshot, "--write-out=json"))
    with snapshot.open("rb") as plain:
        checksum = digest(plain)
        plain.seek(0)
        with gzip.open(folder / SNAPSHOT, "wb", compresslevel=1) as archive:
            shutil.copyfileobj(plain, archive, 1 << 20)
    (folder / SNAPSHOT).chmod(0o600)
    snapshot.unlink()
    pack(folder / "kubernetes.tar")
    made = time.time()
    record = {
        "format": 1,
        "name": f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(made))}-{checksum[:12]}",
        "identity": identity,
        "member": flag(text, "name"),
        "members": members(),
        "image": image(text),
        "created": int(made),
        "snapshot": {**status, "sha256": checksum},
        "sizes": {name: (folder / name).stat().st_size for name in FILES},
    }
    write_json(folder / RECORD, record)
    return record


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


def copy_off(made: Path, folder: str, keep: int) -> str:
    """The error, or nothing. By a separate process: nothing can interrupt one that waits for a mount."""
    words = [sys.executable, __file__, "copy", "--backup", str(made), "--folder", folder, "--keep", str(keep)]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
    try:
        _output, problem = child.communicate(timeout=COPY_WAIT)
    except subprocess.TimeoutExpired:
        child.kill()
        child.returncode = -9  # do not wait for it
        problem = f"backup -> {folder}: the copy has not ended within {COPY_WAIT} s. Next: check the mount"
    return f"{problem.strip()}. The backup on this server is complete: {made}" if child.returncode else ""


def copy(made: Path, folder: Path, keep: int) -> dict[str, Any]:
    """To another file system, which is not a copy off the server while it is not mounted."""
    if not folder.is_dir() or folder.stat().st_dev == made.stat().st_dev:
        raise Failure(
            f"backup -> {folder}: this is no mounted file system, so the backup is not off the server. "
            "Next: mount it, or change kubernetes_backup_copy"
        )
    row = described(made)
    place = folder / row["cluster"] / row["node"]
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_partial(place)
    require_space(place, sum(path.stat().st_size for path in made.iterdir()))
    partial = place / f".{made.name}.partial"
    try:
        shutil.copytree(made, partial, copy_function=shutil.copyfile)
        for path in partial.iterdir():
            path.chmod(0o600)
        partial.rename(place / made.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return prune(place, keep, made.name)


# A restore. Each step does nothing if it has been done, so a killed run continues; the playbook runs each on all
# control planes before the next one, because the members have to begin with the same data.


def began(sha256: str) -> dict[str, Any]:
    state = read_json(ROOT / RESTORING)
    if state.get("sha256") != sha256:
        raise Failure(f"restore -> {sha256[:12]}: no restore of this backup has begun on this server")
    return state


def step_done(state: dict[str, Any], step: str) -> dict[str, Any]:
    write_json(ROOT / RESTORING, {**state, "step": step})
    return {"step": step, "changed": True}


def prepare(folder: Path, sha256: str, peers: str) -> dict[str, Any]:
    """The cluster still runs: what is wrong with the backup fails here."""
    state, name, data = read_json(ROOT / RESTORING), folder.name, data_folder()
    wanted = {"name": name, "sha256": sha256, "members": peers}
    is_same, step = bool(state) and state.items() >= wanted.items(), state.get("step", "prepared")
    has_data = step not in ("prepared", "stopping", "stopped") or (data / f"restored-{name}/member").is_dir()
    if is_same and has_data:
        return {"step": step, "changed": False}
    if state and (not is_same or step == "prepared"):
        abort()
        step = "prepared"
    record = read_json(folder / RECORD)
    if record.get("format") != 1 or not (folder / SNAPSHOT).is_file():
        raise Failure(f"restore -> {folder}: this is no backup of this collection. Nothing was changed")
    if record["identity"].get("uid") != own_identity(f"restore -> {name}")["uid"]:
        raise Failure(f"restore -> {name}: the backup is not of this server's cluster. Nothing was changed")
    require_space(data, 2 * int(record["snapshot"].get("totalSize", 0)))
    text, partial, snapshot = manifest(ETCD), data / f"restored-{name}.partial", data / f"restored-{name}.db.partial"
    discard(data)
    try:
        unpack(folder / SNAPSHOT, snapshot, sha256)
        with etcd_programs() as programs:
            run(
                *(programs / "etcdutl", "snapshot", "restore", snapshot, f"--data-dir={partial}"),
                *(f"--name={flag(text, 'name')}", f"--initial-cluster={peers}"),
                f"--initial-advertise-peer-urls={flag(text, 'initial-advertise-peer-urls')}",
                # Members of the old cluster that still run somewhere do not join this one.
                f"--initial-cluster-token={name}",
                *(f"--bump-revision={REVISIONS}", "--mark-compacted"),
            )
        partial.rename(data / f"restored-{name}")
    finally:
        snapshot.unlink(missing_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
    return step_done(wanted, step)


def unpack(packed: Path, snapshot: Path, sha256: str) -> None:
    try:
        with gzip.open(packed, "rb") as archive, snapshot.open("wb") as plain:
            shutil.copyfileobj(archive, plain, 1 << 20)
    except (EOFError, OSError) as error:
        raise Failure(f"restore -> {packed}: it cannot be unpacked ({error}). Nothing was changed") from error
    with snapshot.open("rb") as plain:
        found = digest(plain)
    if found != sha256:
        raise Failure(
            f"restore -> {packed}: its snapshot has the digest {found[:12]}, not {sha256[:12]}. Nothing was changed. "
            "Next: use another backup"
        )


def discard(data: Path) -> None:
    for path in data.glob("restored-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def abort() -> dict[str, Any]:
    """While the control plane of this server runs. The plan looks at those of the other servers."""
    state = read_json(ROOT / RESTORING)
    if state.get("step", "prepared") not in ("prepared", "started"):
        raise Failure(f"restore -> {state['name']}: its last step on this server is {state['step']}; finish it first")
    (ROOT / RESTORING).unlink(missing_ok=True)
    discard(data_folder())
    return {"step": "aborted", "changed": bool(state)}


def save(settings: dict[str, Any], sha256: str) -> dict[str, Any]:
    """A backup of what the restore replaces, on this server, if etcd answers here. It removes no other backup."""
    state = began(sha256)
    if state["step"] != "prepared" or not members():
        return {"step": state["step"], "changed": False}
    return backup({**settings, "backup_copy": "", "backup_keep": sys.maxsize}) | {"changed": True}


def stop(sha256: str) -> dict[str, Any]:
    state = began(sha256)
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


def swap(sha256: str) -> dict[str, Any]:
    """The data before stay beside it, and no restore removes them."""
    state = began(sha256)
    if state["step"] not in ("stopped", "swapping"):
        return {"step": state["step"], "changed": False}
    data = data_folder()
    restored, current = data / f"restored-{state['name']}", data / "member"
    if state["step"] == "stopped":
        if not (restored / "member").is_dir():
            raise Failure(
                f"restore -> {state['name']}: {restored} is missing, so etcd would start with its previous data. "
                "Next: restore this backup again, which prepares it again"
            )
        step_done(state, "swapping")
    if (restored / "member").exists():
        if current.exists():
            current.rename(tempfile.mkdtemp(prefix=f"member.before-{state['name']}-", dir=data))
        (restored / "member").rename(current)
    shutil.rmtree(restored, ignore_errors=True)
    return step_done(state, "swapped")


def start(sha256: str) -> dict[str, Any]:
    """etcd has its majority once most servers have done this, so it does not wait."""
    state = began(sha256)
    if state["step"] != "swapped":
        return {"step": state["step"], "changed": False}
    for component in COMPONENTS:
        path = ROOT / STOPPED / f"{component}.yaml"
        if path.exists():
            path.replace(ROOT / MANIFESTS / path.name)
    return step_done(state, "started")


def end(settings: dict[str, Any], sha256: str, peers: str) -> dict[str, Any]:
    """Ends only if all these members have the same keys."""
    if not read_json(ROOT / RESTORING):
        return {"step": "ended", "changed": False}
    state = began(sha256)
    if state["step"] != "started":
        raise Failure(f"restore -> {state['name']}: its last step on this server is {state['step']}")
    for component in COMPONENTS:
        wait_for(f"a healthy {component}", lambda component=component: healthy(component))  # type: ignore[misc]
    compare(state["name"], set(by_url(peers)))
    with contextlib.suppress(OSError):
        (ROOT / STOPPED).rmdir()
    (ROOT / RESTORING).unlink()
    with contextlib.suppress(Failure, OSError):
        write_status(settings)
    return {"step": "ended", "changed": True}


def compare(name: str, peers: set[str]) -> None:
    """By etcd's hash of its keys at one revision, the lowest of the members."""
    until, seen = time.monotonic() + COMPARE_WAIT, "not all members answer"
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError, LookupError):
            hashes = hashes_of(peers)
            if len(hashes) == len(peers) and len({*hashes.values()}) == 1:
                return
            seen = ", ".join(f"{member}: {' '.join(found)}" for member, found in sorted(hashes.items()))
        time.sleep(1)
    raise Failure(
        f"restore -> {name}: the members of etcd have different data (hash, compacted and compared revision: {seen}). "
        "The control planes run. Next: stop writing to the cluster, end this restore with "
        "-e kubernetes_restore_state=absent, and restore a backup again"
    )


def hashes_of(peers: set[str]) -> dict[str, tuple[str, str, str]]:
    """Hash, compacted revision and compared revision by member."""
    listed = ask_etcd("/v3/cluster/member/list", {"linearizable": False})["members"]
    clients = {row["name"]: row["clientURLs"][0] for row in listed if peers & {*row["peerURLs"]}}
    at = min(int(ask_etcd("/v3/maintenance/status", {}, url)["header"]["revision"]) for url in clients.values())
    found = {name: ask_etcd("/v3/maintenance/hashkv", {"revision": str(at)}, url) for name, url in clients.items()}
    return {name: (str(row["hash"]), str(row.get("compact_revision", 0)), str(at)) for name, row in found.items()}


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


def restart_existing(*components: str) -> list[str]:
    found = [component for component in components if (ROOT / MANIFESTS / f"{component}.yaml").exists()]
    for component in found:
        restart(component)
    return found


def context() -> ssl.SSLContext:
    """Of a client on this server: etcd wants a certificate, and addresses are local."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    pki = ROOT / PKI / "etcd"
    made.load_cert_chain(pki / "healthcheck-client.crt", pki / "healthcheck-client.key")
    return made


def request(url: str, body: dict[str, Any] | None = None) -> bytes:
    handler = urllib.request.HTTPSHandler(context=context())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), handler)
    content = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with opener.open(asked, timeout=5) as answer:
        return bytes(answer.read())


def ask_etcd(path: str, body: dict[str, Any], url: str = "") -> dict[str, Any]:
    return dict(json.loads(request((url or ENDPOINT) + path, body)))


def answers(url: str) -> bool:
    """Whether a member of etcd of this cluster serves its peers there: another CA's does not accept the certificate."""
    try:
        request(f"{url}/version")
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError, http.client.HTTPException):
        return False
    return True


def healthy(component: str) -> bool:
    """kube-vip serves no status: it is healthy if it runs."""
    if component not in HEALTH:
        return True
    try:
        request(HEALTH[component])
    except urllib.error.HTTPError as error:
        return component != ETCD and error.code in (401, 403)  # it serves, and wants a login
    except OSError:
        return False
    return True


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

    A run that was interrupted between the two has left a mark, so the next one restarts the components.
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
        restart_existing(*COMPONENTS, KUBE_VIP)
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
            # Before the first one, since when there is a timer.
            timer = ROOT / BACKUP_TIMER
            since = int(timer.stat().st_mtime) if timer.exists() else 0
            status["backup"] = max((row["created"] for row in own_backups(settings)), default=since)
    status |= driver_status(settings)
    write_json(ROOT / STATUS, status)
    folder = settings.get("metrics_folder")
    if folder:
        write_text(ROOT / folder.lstrip("/") / "kubegpu.prom", metrics(status), 0o644)
    if problem:
        raise Failure(problem)
    return status


def own_backups(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Complete ones of this cluster and member, copied if they have to be. A date in the future is wrong."""
    uid, name = read_json(ROOT / IDENTITY).get("uid"), flag(manifest(ETCD), "name")
    found = [row for row in rows(Path(settings["backup_folder"]), below="*/") if row["complete"]]
    past = [row for row in found if row["created"] <= time.time()]
    of_this = [row for row in past if (row["cluster"], row["node"]) == (uid, name)]
    return [row for row in of_this if row["copied"] or not settings.get("backup_copy")]


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
