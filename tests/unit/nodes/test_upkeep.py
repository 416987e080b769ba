"""Backups, restores and renewals: what a node gets, and what its program does with files. molecule/nodes runs it."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes import kubernetes_files as files
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.support import BRANCH_ENDS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.upkeep import Upkeep, UpkeepOptions
from collection import ROOT

PROGRAM = ROOT / "roles/kubernetes/files/etc/kubegpu_upkeep.py"
ETCD = """
apiVersion: v1
spec:
  containers:
  - command:
    - etcd
    - --data-dir=/var/lib/etcd
    - --initial-advertise-peer-urls=https://192.0.2.1:2380
    - --name=cp1
    image: registry.k8s.io/etcd:3.6.8-0
"""
IDENTITY = {"uid": "1234", "name": "prod"}
DAY = 86400


# What a node gets.


def upkeep(
    position: int | None = 0, *, has_etcd: bool = True, installed: tuple[str, ...] = (), **options: Any
) -> Upkeep:
    return Upkeep(UpkeepOptions(**options), "cp1", position, has_etcd, installed)


@pytest.mark.parametrize(
    ("node", "timers"),
    [
        (upkeep(), {"status", "backup", "certificates"}),
        (upkeep(None), {"status"}),
        (upkeep(has_etcd=False), {"status", "certificates"}),
        (upkeep(backup=False), {"status", "certificates"}),
        (upkeep(renew_certificates=False), {"status", "backup"}),
    ],
)
def test_a_node_has_the_timers_of_its_part_in_the_cluster(node: Upkeep, timers: set[str]) -> None:
    assert {name.removeprefix("kubegpu-").removesuffix(".timer") for name in node.timers} == timers
    assert {file.path for file in node.wanted} <= {files.UPKEEP_SETTINGS, *files.UPKEEP_UNITS}
    assert node.settings["backup"] is ("backup" in timers)


def test_control_planes_renew_their_certificates_in_different_hours() -> None:
    schedules = [upkeep(position).jobs["certificates"][2] for position in range(30)]

    assert len(set(schedules)) == 30
    assert schedules[0] == "Sun *-*-* 03:30:00"
    assert schedules[21] == "Mon *-*-* 00:30:00"


def test_units_that_are_no_longer_wanted_go() -> None:
    node = upkeep(backup=False, installed=files.UPKEEP_UNITS)

    assert {path.rpartition("/")[2] for path in node.unwanted} == {"kubegpu-backup.service", "kubegpu-backup.timer"}
    assert upkeep(installed=files.UPKEEP_UNITS).unwanted == ()


def test_timers_that_a_killed_run_has_not_enabled_are_enabled() -> None:
    links = tuple(f"{files.TIMERS}/{name}" for name in upkeep().timers)

    assert upkeep(installed=links).is_enabled
    assert not upkeep(installed=links[1:]).is_enabled


def test_the_ends_of_driver_branches_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "versions.md").read_text()
    named = re.findall(r"\b(\d{3})(?:, a long-term branch| gets fixes)? until (\w+ \d{4})", page)

    assert dict(named) == {
        str(branch): time.strftime("%B %Y", time.gmtime(end - DAY))
        for branch, end in BRANCH_ENDS.items()
        if str(branch) in dict(named)
    }
    assert len(named) >= 3


# The program.


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Of a control plane below tmp_path, with stand-ins for the programs that it starts."""
    spec = importlib.util.spec_from_file_location("kubegpu_upkeep", PROGRAM)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in {
        "etc/kubernetes/manifests/etcd.yaml": ETCD,
        **{f"etc/kubernetes/manifests/{name}.yaml": "" for name in module.COMPONENTS[1:]},
        "etc/kubernetes/pki/ca.key": "secret",
        "etc/kubernetes/kubegpu/cluster.json": json.dumps(IDENTITY),
        "etc/kubernetes/kubegpu/cache/x": "large",
        "var/lib/etcd/member/snap/db": "old",
        "run/x": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "run", Programs())
    monkeypatch.setattr(module, "healthy", lambda component: True)
    return module


class Programs:
    """etcdctl, etcdutl and ctr, as far as the program calls them. fail: the one that ends with an error."""

    fail = ""

    def __call__(self, *words: Any, timeout: float = 0) -> str:
        text = " ".join(map(str, words))
        if self.fail and self.fail in text:
            raise RuntimeError(f"{self.fail} was killed")
        if "snapshot save" in text:
            Path(words[-1]).write_text("new")
        if "snapshot status" in text:
            return json.dumps({"hash": 1, "revision": 7, "totalKey": 3, "totalSize": 3})
        if "snapshot restore" in text:
            data = Path(text.partition("--data-dir=")[2].split()[0])
            (data / "member").mkdir(parents=True)
            (data / "member" / "db").write_text(Path(words[3]).read_text())
        return "TASK PID STATUS\n"


def settings(root: Path, **more: Any) -> dict[str, Any]:
    return {"backup_folder": str(root / "backups"), "backup_keep": 2, **more}


def test_a_backup_has_all_that_a_cluster_needs_and_is_for_root_alone(program: ModuleType, tmp_path: Path) -> None:
    made = Path(program.backup(settings(tmp_path))["backup"])

    assert {path.name: path.stat().st_mode & 0o777 for path in made.iterdir()} == dict.fromkeys(
        ("etcd.db.gz", "kubernetes.tar", "backup.json"), 0o600
    )
    with tarfile.open(made / "kubernetes.tar") as tar:
        names = tar.getnames()
    assert "kubernetes/pki/ca.key" in names
    assert not [name for name in names if "cache" in name]
    record = json.loads((made / "backup.json").read_text())
    assert (record["identity"], record["member"]) == (IDENTITY, "cp1")
    assert "secret" not in json.dumps(record)


def test_a_backup_that_fails_is_none(program: ModuleType, tmp_path: Path) -> None:
    program.run.fail = "snapshot status"
    with pytest.raises(RuntimeError):
        program.backup(settings(tmp_path))
    assert program.backups(tmp_path / "backups") == []

    program.run.fail = ""
    program.backup(settings(tmp_path))

    assert len(list((tmp_path / "backups").iterdir())) == 1


def test_the_oldest_backups_go(program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"2026112{day}T020000Z" for day in range(4)]
    for name in names:
        monkeypatch.setattr(program.time, "strftime", lambda _form, _at, name=name: name)
        program.backup(settings(tmp_path))

    assert [path.name for path in program.backups(tmp_path / "backups")] == names[-2:]


def test_a_copy_that_is_not_off_the_server_fails(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "nfs").mkdir()

    with pytest.raises(program.Failure, match="no mounted file system, so the backup is not off the server"):
        program.backup(settings(tmp_path, backup_copy=str(tmp_path / "nfs")))
    assert program.backups(tmp_path / "backups") == []


# A restore.

STEPS = ("restore-prepare", "restore-stop", "restore-swap", "restore-start", "restore-end")


def step(program: ModuleType, name: str, backup: Path) -> dict[str, Any]:
    act: dict[str, Callable[[], dict[str, Any]]] = {
        "restore-prepare": lambda: program.prepare(backup, "cp1=https://192.0.2.1:2380"),
        "restore-stop": lambda: program.stop(backup.name),
        "restore-swap": lambda: program.swap(backup.name),
        "restore-start": lambda: program.start(backup.name),
        "restore-end": lambda: program.end({}, backup.name),
    }
    return act[name]()


@pytest.fixture
def backup(program: ModuleType, tmp_path: Path) -> Path:
    return Path(program.backup(settings(tmp_path))["backup"])


def manifests(root: Path) -> set[str]:
    return {path.stem for path in (root / "etc/kubernetes/manifests").iterdir()}


def member(root: Path) -> str:
    folder = root / "var/lib/etcd/member"
    return (folder / "db").read_text() if (folder / "db").exists() else "old"


def test_a_restore_exchanges_the_data_and_keeps_those_before(program: ModuleType, backup: Path, tmp_path: Path) -> None:
    step(program, "restore-prepare", backup)
    assert (member(tmp_path), manifests(tmp_path)) == ("old", set(program.COMPONENTS))
    step(program, "restore-stop", backup)
    assert (member(tmp_path), manifests(tmp_path)) == ("old", set())
    step(program, "restore-swap", backup)
    assert (member(tmp_path), manifests(tmp_path)) == ("new", set())
    step(program, "restore-start", backup)
    step(program, "restore-end", backup)

    assert (member(tmp_path), manifests(tmp_path)) == ("new", set(program.COMPONENTS))
    assert (tmp_path / f"var/lib/etcd/member.before-{backup.name}/snap/db").read_text() == "old"
    assert not (tmp_path / "etc/kubernetes/kubegpu/restoring.json").exists()
    assert not (tmp_path / "etc/kubernetes/kubegpu/stopped").exists()


@pytest.mark.parametrize("stops", range(1, len(STEPS)))
def test_a_restore_that_was_interrupted_continues(
    program: ModuleType, backup: Path, tmp_path: Path, stops: int
) -> None:
    for name in STEPS[:stops]:
        step(program, name, backup)

    again = [step(program, name, backup)["changed"] for name in STEPS]

    assert again == [False] * stops + [True] * (len(STEPS) - stops)
    assert (member(tmp_path), manifests(tmp_path)) == ("new", set(program.COMPONENTS))


def test_a_swap_that_was_killed_between_its_two_moves_continues(
    program: ModuleType, backup: Path, tmp_path: Path
) -> None:
    step(program, "restore-prepare", backup)
    step(program, "restore-stop", backup)
    data = tmp_path / "var/lib/etcd"
    (data / "member").rename(data / f"member.before-{backup.name}")

    step(program, "restore-swap", backup)

    assert member(tmp_path) == "new"
    assert (data / f"member.before-{backup.name}/snap/db").read_text() == "old"


def test_a_swap_that_was_killed_after_its_moves_keeps_the_data_before(
    program: ModuleType, backup: Path, tmp_path: Path
) -> None:
    step(program, "restore-prepare", backup)
    step(program, "restore-stop", backup)
    stopped = (tmp_path / "etc/kubernetes/kubegpu/restoring.json").read_text()
    step(program, "restore-swap", backup)
    (tmp_path / "etc/kubernetes/kubegpu/restoring.json").write_text(stopped)

    step(program, "restore-swap", backup)

    assert member(tmp_path) == "new"
    assert (tmp_path / f"var/lib/etcd/member.before-{backup.name}/snap/db").read_text() == "old"


def damaged(backup: Path, root: Path) -> None:
    (backup / "etcd.db.gz").write_bytes((backup / "etcd.db.gz").read_bytes()[:-6])


def exchanged(backup: Path, root: Path) -> None:
    (backup / "etcd.db.gz").write_bytes(gzip.compress(b"another"))


def of_another_cluster(backup: Path, root: Path) -> None:
    record = json.loads((backup / "backup.json").read_text())
    (backup / "backup.json").write_text(json.dumps({**record, "identity": {"uid": "5678"}}))


def without_a_record(backup: Path, root: Path) -> None:
    (backup / "backup.json").unlink()


def beside_another_restore(backup: Path, root: Path) -> None:
    (root / "etc/kubernetes/kubegpu/restoring.json").write_text('{"name": "20200101T000000Z", "step": "stopped"}')


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damaged, "it cannot be unpacked"),
        (exchanged, "it is damaged"),
        (of_another_cluster, "the backup is not of this server's cluster"),
        (without_a_record, "this is no backup of this collection"),
        (beside_another_restore, "the restore of 20200101T000000Z has not ended"),
    ],
)
def test_what_cannot_be_restored_fails_while_the_cluster_runs(
    program: ModuleType, backup: Path, tmp_path: Path, spoil: Callable[[Path, Path], None], words: str
) -> None:
    (tmp_path / "var/lib/etcd/member.before-20200101T000000Z").mkdir(parents=True)
    spoil(backup, tmp_path)
    before = sorted(path for path in tmp_path.rglob("*"))

    with pytest.raises(program.Failure, match=words):
        step(program, "restore-prepare", backup)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_step_without_a_restore_fails(program: ModuleType, backup: Path) -> None:
    with pytest.raises(program.Failure, match="no restore of"):
        step(program, "restore-stop", backup)


# Certificates.


@pytest.fixture
def renewing(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is restarted; certificates that end in 90 days and can be renewed to a year."""
    ends = {"apiserver": int(time.time()) + 90 * DAY, "admin.conf": int(time.time()) + 91 * DAY}
    restarted: list[str] = []

    def run(*words: Any, timeout: float = 0) -> str:
        assert words == ("kubeadm", "certs", "renew", "all")
        ends.update(dict.fromkeys(ends, int(time.time()) + 365 * DAY))
        return ""

    monkeypatch.setattr(program, "certificates", lambda: dict(ends))
    monkeypatch.setattr(program, "run", run)
    monkeypatch.setattr(program, "restart", restarted.append)
    monkeypatch.setattr(program, "prove_served", lambda: restarted.append("proof"))
    return restarted


def test_certificates_are_renewed_in_time(program: ModuleType, renewing: list[str]) -> None:
    assert program.renew_certificates({"renew_days": 60}, force=False)["renewed"] is False
    assert renewing == []

    renewed = program.renew_certificates({"renew_days": 100}, force=False)

    assert renewed["renewed"] is True
    assert renewed["until"] > time.time() + 364 * DAY
    assert renewing == [*program.COMPONENTS, "proof"]


def test_a_renewal_that_was_killed_before_the_restarts_is_finished(program: ModuleType, renewing: list[str]) -> None:
    def killed(component: str) -> None:
        raise RuntimeError(component)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "restart", killed)
        with pytest.raises(RuntimeError):
            program.renew_certificates({"renew_days": 60}, force=True)

    assert program.renew_certificates({"renew_days": 60}, force=False)["renewed"] is True
    assert renewing == [*program.COMPONENTS, "proof"]
    assert program.renew_certificates({"renew_days": 60}, force=False)["renewed"] is False


# Status.


def test_metrics_are_what_node_exporter_reads(program: ModuleType, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(program, "certificates", lambda: {"apiserver": 2000000000})
    for path, text in {
        "sys/module/nvidia/version": "535.261.03\n",
        "boot/vmlinuz-6.8.0-9-generic": "",
        "boot/vmlinuz-6.8.0-10-generic": "",
        "lib/modules/6.8.0-9-generic/updates/dkms/nvidia.ko.zst": "",
        "lib/modules/6.8.0-10-generic/kernel/nvidiafb.ko": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    made = settings(tmp_path, node="cp1", is_control_plane=True, backup=True, metrics_folder="/var/lib/textfile")
    program.backup(made)

    program.write_status(made | {"branch_ends": {"535": 1782864000}})

    text = (tmp_path / "var/lib/textfile/kubegpu.prom").read_text()
    assert 'kubegpu_certificate_end_timestamp_seconds{node="cp1",certificate="apiserver"} 2000000000\n' in text
    assert 'kubegpu_driver_branch_end_timestamp_seconds{node="cp1",branch="535"} 1782864000\n' in text
    assert 'kubegpu_next_kernel_has_module{node="cp1",kernel="6.8.0-10-generic"} 0\n' in text
    assert re.search(r'^kubegpu_backup_timestamp_seconds\{node="cp1"\} \d{10}$', text, re.MULTILINE)
    assert (tmp_path / "var/lib/textfile/kubegpu.prom").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "var/lib/textfile").stat().st_mode & 0o777 == 0o755


def test_a_worker_without_a_driver_has_only_the_time(program: ModuleType, tmp_path: Path) -> None:
    program.write_status({"node": "w1", "metrics_folder": "/var/lib/textfile"})

    rows = (tmp_path / "var/lib/textfile/kubegpu.prom").read_text().splitlines()
    assert [row.partition("{")[0] for row in rows if not row.startswith("#")] == ["kubegpu_status_timestamp_seconds"]


def test_the_program_says_how_it_is_called() -> None:
    done = subprocess.run(["python3", PROGRAM, "--help"], capture_output=True, text=True, check=True)

    assert "restore-prepare" in done.stdout
