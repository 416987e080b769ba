"""Backups, restores and renewals: what a node gets, and what its program does with files. molecule/nodes runs it."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import permutations, product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.driver.branch_ends import BRANCH_ENDS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.kubernetes import paths as files
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.kubernetes.upkeep import Upkeep, UpkeepOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.role_plan import Plan
from collection import ROOT
from hypothesis import given
from hypothesis import strategies as st
from planned import typed_options
from upkeep_servers import PROGRAM, Failed, call, load

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
    [typed] = typed_options(Plan(dict, (UpkeepOptions,)), "kubernetes", **options)
    return Upkeep(typed, "cp1", position, has_etcd, installed)


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
    programs = Programs()
    module = load(tmp_path, run=programs, healthy=lambda _component: True, RESERVE=0)
    monkeypatch.setattr(module, "members", lambda: {"https://192.0.2.1:2380": "cp1"})
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
    return module


class Programs:
    """etcdctl, etcdutl and ctr, as far as the program calls them. fail: the one that ends with an error."""

    fail = ""
    content = "new"

    def __call__(self, *words: Any, timeout: float = 0) -> str:
        text = " ".join(map(str, words))
        if self.fail and self.fail in text:
            raise RuntimeError(f"{self.fail} was killed")
        if "snapshot save" in text:
            Path(words[-1]).write_text(self.content)
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
    assert [*(tmp_path / "backups").iterdir()] == []

    program.run.fail = ""
    program.backup(settings(tmp_path))

    assert len(list((tmp_path / "backups").iterdir())) == 1


def test_a_server_without_a_record_of_its_cluster_makes_no_backup(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / program.IDENTITY).unlink()

    with pytest.raises(program.Failure, match=r"no record of its cluster. Next: run `kubegpu.autoscale.cluster`"):
        program.backup(settings(tmp_path))


def test_a_copy_of_a_server_makes_no_backup_and_restores_none(program: ModuleType, tmp_path: Path) -> None:
    """Its backups would displace those of the server that has the same name in the same cluster."""
    record = json.loads((tmp_path / program.IDENTITY).read_text())
    (tmp_path / program.IDENTITY).write_text(json.dumps({**record, "machine_id": "a" * 32}))
    (tmp_path / program.MACHINE_ID).write_text("a" * 32 + "\n")
    made = Path(program.backup(settings(tmp_path))["backup"])
    (tmp_path / program.MACHINE_ID).write_text("b" * 32 + "\n")
    before = sorted(tmp_path.rglob("*"))

    for act in (
        lambda: program.backup(settings(tmp_path)),
        lambda: program.prepare(made, digest_of(made), "cp1=https://192.0.2.1:2380"),
    ):
        with pytest.raises(program.Failure, match=rf"was written on machine {'a' * 32}, so this server is a copy"):
            act()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_disk_without_space_gets_nothing(program: ModuleType, tmp_path: Path, monkeypatch: Any) -> None:
    """Neither a backup, nor what a restore prepares beside the data of etcd, nor a partial folder."""
    made = Path(program.backup(settings(tmp_path))["backup"])
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(program, "RESERVE", 1 << 60)

    for act in (
        lambda: program.backup(settings(tmp_path)),
        lambda: program.prepare(made, digest_of(made), "cp1=https://192.0.2.1:2380"),
    ):
        with pytest.raises(program.Failure, match=r"MiB are free, and .* are needed. Nothing was changed. Next: "):
            act()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_disk_that_fills_up_gets_no_partial_folder(program: ModuleType, tmp_path: Path, monkeypatch: Any) -> None:
    def full(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(program, "pack", full)
    (tmp_path / program.SETTINGS).write_text(json.dumps(settings(tmp_path)))

    with pytest.raises(Failed, match="No space left on device"):
        call(program, "backup")
    assert [*(tmp_path / "backups").iterdir()] == []


# Retention.

NOW = 1_800_000_000
ROWS = st.builds(
    lambda cluster, node, age, complete: {"cluster": cluster, "node": node, "created": NOW - age, "complete": complete},
    st.sampled_from(["1234", "5678"]),
    st.sampled_from(["cp1", "cp2"]),
    st.integers(-400 * DAY, 4000 * DAY),
    st.booleans(),
)


@given(st.lists(ROWS, max_size=20), st.integers(-1, 4))
def test_retention_keeps_the_newest_complete_ones_of_each_cluster_and_node(found: list[Any], keep: int) -> None:
    """Also under a clock that is behind: what seems to be in the future counts apart. Incomplete ones do not count."""
    removed = load(Path("/")).surplus(found, keep, NOW)

    assert all(row["complete"] for row in removed)
    for cluster, node, future in product(["1234", "5678"], ["cp1", "cp2"], [False, True]):
        group = [r for r in found if (r["cluster"], r["node"], r["created"] > NOW) == (cluster, node, future)]
        complete = sorted((row["created"] for row in group if row["complete"]), reverse=True)
        gone = sorted((row["created"] for row in removed if any(row is r for r in group)), reverse=True)
        assert gone == complete[max(keep, 1) :]


@given(st.lists(st.tuples(ROWS, st.booleans()), min_size=1, max_size=8), st.integers(0, 3))
def test_prune_removes_what_retention_removes_and_interrupted_copies(found: list[tuple[Any, bool]], keep: int) -> None:
    """In one folder of two clusters, with any names. A copy of a day ago without its description was interrupted."""
    with tempfile.TemporaryDirectory() as folder:
        program = load(Path("/"), time=SimpleNamespace(time=lambda: NOW))
        names = []
        for number, (row, described) in enumerate(found):
            names.append(f"{random_time(number)}-{number:012x}")
            write(Path(folder), names[-1], row, described)
        copies = {name for name, (_, described) in zip(names, found, strict=True) if not described}
        made = names[0]
        rows = program.rows(Path(folder))
        gone = {row["name"] for row in program.surplus(rows, keep, NOW)}

        program.prune(Path(folder), keep, made)

        left = {path.name for path in Path(folder).iterdir()}
        assert left == {*names} - (gone - {made}) - copies | ({made} - copies)


@pytest.mark.parametrize("nesting", ["beside", *map(" ".join, permutations(("backup", "copy", "fetch")))])
@pytest.mark.parametrize("pruned", ["backup", "copy", "fetch"])
def test_retention_counts_the_backups_of_one_folder(tmp_path: Path, nesting: str, pruned: str) -> None:
    """kubernetes_backup_folder, _copy and _fetch, each below the one before it, and beside each other."""
    outer = nesting.split()
    places = {}
    for place, layout in (("backup", ""), ("copy", "1234/cp1"), ("fetch", "1234/cp1")):
        parts = outer[: outer.index(place) + 1] if place in outer else [place, nesting]
        places[place] = tmp_path.joinpath(*parts, layout)
    program = load(tmp_path)
    for folder in places.values():
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(4):
            row = {"cluster": "1234", "node": "cp1", "created": number, "complete": True}
            write(folder, f"2020112{number}T020000Z-{number:012x}", row, True)
    program.prune(places[pruned], 3)

    left = {name: sorted(path.name[7] for path in folder.glob("2020*")) for name, folder in places.items()}
    assert left == {name: ["1", "2", "3"] if name == pruned else ["0", "1", "2", "3"] for name in places}


def random_time(number: int) -> str:
    """No name tells when a backup was made."""
    return f"{2000 + number * 7919 % 99}0101T000000Z"


def write(folder: Path, name: str, row: dict[str, Any], described: bool) -> None:
    made = folder / name
    made.mkdir()
    for file in ("etcd.db.gz", "kubernetes.tar"):
        (made / file).write_text("content")
    sizes = dict.fromkeys(("etcd.db.gz", "kubernetes.tar"), 7 if row["complete"] else 8)
    record = {"name": name, "created": row["created"], "members": {}, "snapshot": {"sha256": "1" * 64}}
    record |= {"identity": {"uid": row["cluster"]}, "member": row["node"], "sizes": sizes}
    if described:
        (made / "backup.json").write_text(json.dumps(record))
    else:
        os.utime(made, (NOW - 2 * DAY, NOW - 2 * DAY))


def test_a_copy_that_is_on_its_way_stays(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "20261127T020000Z-111111111111").mkdir()

    assert program.prune(tmp_path, 1)["removed"] == []


@pytest.mark.parametrize("created", [int(time.time()) + 365 * DAY, 0], ids=["clocks ahead before", "clock behind now"])
def test_the_backup_just_made_is_there_whatever_the_clocks_say(
    program: ModuleType, tmp_path: Path, created: int
) -> None:
    """With names that sort behind it, and with more than are kept."""
    (tmp_path / "backups").mkdir()
    for number in range(5):
        name = f"2099112{number}T020000Z-{number:012x}"
        write(
            tmp_path / "backups", name, {"cluster": "1234", "node": "cp1", "created": created, "complete": True}, True
        )
    if not created:
        program.time = SimpleNamespace(**vars(time) | {"time": lambda: -DAY, "gmtime": lambda _at: time.gmtime(0)})

    made = Path(program.backup(settings(tmp_path))["backup"])

    assert made.is_dir()
    assert len([*(tmp_path / "backups").iterdir()]) == 3


def test_the_backups_of_another_cluster_stay(program: ModuleType, tmp_path: Path) -> None:
    """On the same servers, before they were installed again."""
    (tmp_path / "backups").mkdir()
    for number in range(2):
        row = {"cluster": "5678", "node": "cp1", "created": number, "complete": True}
        write(tmp_path / "backups", f"2020112{number}T020000Z-{number:012x}", row, True)
    for number in range(4):
        program.members = lambda number=number: {f"https://192.0.2.{number}:2380": "x"}
        program.run.content = f"new {number}"
        program.backup(settings(tmp_path))

    found = [row["cluster"] for row in program.rows(tmp_path / "backups")]
    assert (found.count("5678"), found.count("1234")) == (2, 2)


# A copy off the server.


@pytest.fixture
def mount() -> Iterator[Path]:
    """A folder of another file system."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_a_copy_off_the_server_lies_by_cluster_and_node(program: ModuleType, tmp_path: Path, mount: Path) -> None:
    if mount.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is the file system of the tests")
    made = program.backup(settings(tmp_path, backup_copy=str(mount)))

    name = Path(made["backup"]).name
    assert "failed" not in made
    assert {path.name for path in (mount / "1234/cp1" / name).iterdir()} == {
        "etcd.db.gz",
        "kubernetes.tar",
        "backup.json",
    }
    assert program.described(mount / "1234/cp1" / name, name)["complete"]
    assert {path.stat().st_mode & 0o777 for path in (mount / "1234/cp1" / name).iterdir()} == {0o600}


@pytest.mark.parametrize("hangs", [False, True], ids=["absent", "hanging"])
def test_a_mount_that_is_absent_or_hangs_costs_the_copy_alone(
    program: ModuleType, tmp_path: Path, mount: Path, monkeypatch: Any, hangs: bool
) -> None:
    """The backup on the server is complete, the lock is free, and the metric and the exit status report the failure."""
    (tmp_path / "nfs").mkdir()
    made = settings(tmp_path, backup_copy=str(mount if hangs else tmp_path / "nfs"), backup=True, is_control_plane=True)
    (tmp_path / program.SETTINGS).write_text(json.dumps(made))
    monkeypatch.setattr(program, "certificates", dict)
    copy_off = program.copy_off

    def waits(backup: Path, folder: str, keep: int) -> Any:
        """The process that copies waits for a file that gives no content, as those of a server that is away."""
        record = (backup / "backup.json").read_text()
        (backup / "backup.json").unlink()
        os.mkfifo(backup / "backup.json")
        found = copy_off(backup, folder, keep)
        (backup / "backup.json").unlink()
        (backup / "backup.json").write_text(record)
        return found

    if hangs:
        monkeypatch.setattr(program, "COPY_WAIT", 2)
        monkeypatch.setattr(program, "copy_off", waits)

    with pytest.raises(Failed, match="has not ended within" if hangs else "so the backup is not off the server"):
        call(program, "backup")

    [row] = program.rows(tmp_path / "backups")
    assert (row["complete"], row["copied"]) == (True, False)
    assert program.write_status(made)["backup"] == 0
    with program.alone("status"):
        pass


def test_a_run_that_hangs_does_not_block_another_for_ever(program: ModuleType, monkeypatch: Any) -> None:
    monkeypatch.setattr(program, "LOCK_WAIT", 0.5)

    words = rf"certificates -> backup, process {os.getpid()}, has not ended within .* Nothing was changed"
    with program.alone("backup"), pytest.raises(program.Failure, match=words), program.alone("certificates"):
        pass


# A restore.

STEPS = ("restore-prepare", "restore-stop", "restore-swap", "restore-start", "restore-end")


def digest_of(backup: Path) -> str:
    return str(json.loads((backup / "backup.json").read_text())["snapshot"]["sha256"])


def step(program: ModuleType, name: str, backup: Path) -> dict[str, Any]:
    sha256 = digest_of(backup) if (backup / "backup.json").exists() else "0" * 64
    act: dict[str, Callable[[], dict[str, Any]]] = {
        "restore-prepare": lambda: program.prepare(backup, sha256, "cp1=https://192.0.2.1:2380"),
        "restore-stop": lambda: program.stop(sha256),
        "restore-swap": lambda: program.swap(sha256),
        "restore-start": lambda: program.start(sha256),
        "restore-end": lambda: program.end({}, sha256, "cp1=https://192.0.2.1:2380"),
    }
    return act[name]()


@pytest.fixture
def backup(program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(program, "hashes_of", lambda peers: dict.fromkeys(peers, ("1", "1", "1")))
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
    [before] = (tmp_path / "var/lib/etcd").glob(f"member.before-{backup.name}-*")
    assert (before / "snap/db").read_text() == "old"
    assert not (tmp_path / "etc/kubernetes/kubegpu/restoring.json").exists()
    assert not (tmp_path / "etc/kubernetes/kubegpu/stopped").exists()


def test_data_before_stay_whatever_is_restored_next(program: ModuleType, backup: Path, tmp_path: Path) -> None:
    for _ in range(3):
        for name in STEPS:
            step(program, name, backup)

    found = [path.read_text() for path in (tmp_path / "var/lib/etcd").glob("member.before-*/**/db")]
    assert sorted(found) == ["new", "new", "old"]


def test_members_with_different_data_are_not_restored(program: ModuleType, backup: Path, monkeypatch: Any) -> None:
    for name in STEPS[:-1]:
        step(program, name, backup)
    monkeypatch.setattr(program, "hashes_of", lambda _peers: {"cp1": ("1", "1", "7")} | {"cp2": ("2", "1", "7")})
    monkeypatch.setattr(program, "COMPARE_WAIT", 0.1)

    with pytest.raises(program.Failure, match=r"have different data .*cp1: 1 1 7, cp2: 2 1 7.*restore_state=absent"):
        program.end({}, digest_of(backup), "cp1=https://192.0.2.1:2380,cp2=https://192.0.2.2:2380")
    assert program.read_json(program.ROOT / program.RESTORING)["step"] == "started"
    assert program.abort() == {"step": "aborted", "changed": True}


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
    state = {"name": "20200101T000000Z", "step": "stopped", "sha256": "", "members": ""}
    (root / "etc/kubernetes/kubegpu/restoring.json").write_text(json.dumps(state))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damaged, "it cannot be unpacked"),
        (exchanged, "its snapshot has the digest"),
        (of_another_cluster, "the backup is not of this server's cluster"),
        (without_a_record, "this is no backup of this collection"),
        (
            beside_another_restore,
            "restore -> 20200101T000000Z: its last step on this server is stopped; finish it first",
        ),
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
    with pytest.raises(program.Failure, match="no restore of this backup has begun"):
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


def test_kube_vip_restarts_with_the_renewed_certificate(program: ModuleType, renewing: list[str]) -> None:
    """A follower keeps the certificate that it has read at its start, and cannot lead once that ends (kube-vip#802)."""
    (program.ROOT / "etc/kubernetes/manifests/kube-vip.yaml").touch()
    program.renew_certificates({"renew_days": 60}, force=True)
    assert renewing == [*program.COMPONENTS, "kube-vip", "proof"]


@pytest.mark.parametrize("has_kube_vip", [True, False])
def test_an_upgrade_has_kube_vip_read_its_renewed_certificate(
    program: ModuleType, renewing: list[str], has_kube_vip: bool
) -> None:
    """kubeadm renews admin.conf with the others, and restarts its own static pods alone."""
    (program.ROOT / "run").mkdir(exist_ok=True)
    if has_kube_vip:
        (program.ROOT / "etc/kubernetes/manifests/kube-vip.yaml").touch()
    assert program.main(["restart-kube-vip"]) == 0
    assert renewing == ["kube-vip"] * has_kube_vip


def test_an_upgrade_restarts_kube_vip_with_the_new_kubelet_and_then_waits() -> None:
    """Its address may move to another control plane meanwhile, and the tasks behind the wait need the API server."""
    tasks = yaml.safe_load((ROOT / "roles/kubernetes/tasks/upgrade_node.yml").read_text())
    names = [task["name"] for task in tasks]
    order = ["Upgrade the node with kubeadm", "Restart the kubelet", "Restart kube-vip"]
    places = [next(place for place, name in enumerate(names) if name.startswith(words)) for words in order]
    assert places == sorted(places)
    assert "until" in tasks[places[-1] + 1]


def test_a_component_without_a_status_is_healthy_once_it_runs_again(tmp_path: Path) -> None:
    starts, killed = iter([{"old"}, {"old"}, {"new"}]), []
    program = load(tmp_path, running=lambda _component: next(starts), run=lambda *words: killed.append(words[-1]))
    program.time = SimpleNamespace(monotonic=lambda: 0, sleep=lambda _seconds: None)
    program.restart(program.KUBE_VIP)
    assert killed == ["old"]
    assert not [*starts]


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


def test_the_metric_is_of_the_newest_backup_of_this_member_that_is_no_date_in_the_future(
    program: ModuleType, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(program, "certificates", dict)
    (tmp_path / "backups").mkdir()
    now = int(time.time())
    rows = {
        "right": ("1234", "cp1", now - 50, True),
        "older": ("1234", "cp1", now - 99, True),
        "future": ("1234", "cp1", now + DAY, True),
        "incomplete": ("1234", "cp1", now - 1, False),
        "another cluster's": ("5678", "cp1", now - 1, True),
        "another member's": ("1234", "cp2", now - 1, True),
    }
    for number, values in enumerate(rows.values()):
        row = dict(zip(("cluster", "node", "created", "complete"), values, strict=True))
        write(tmp_path / "backups", f"20261127T020000Z-{number:012x}", row, True)

    status = program.write_status(settings(tmp_path, is_control_plane=True, backup=True))

    assert status["backup"] == now - 50


def test_a_file_that_cannot_be_written_leaves_nothing(program: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "made/status.json").mkdir(parents=True)

    with pytest.raises(IsADirectoryError):
        program.write_text(tmp_path / "made/status.json", "text")
    assert [*(tmp_path / "made").iterdir()] == [tmp_path / "made/status.json"]


LINKS = ("kubegpu.prom", ".kubegpu.prom.partial")


@pytest.mark.parametrize("name", LINKS)
def test_metrics_are_written_through_no_link(program: ModuleType, tmp_path: Path, name: str) -> None:
    folder, secret = tmp_path / "var/lib/textfile", tmp_path / "shadow"
    folder.mkdir(parents=True)
    secret.write_text("root")
    secret.chmod(0o600)
    (folder / name).symlink_to(secret)

    program.write_status({"node": "w1", "metrics_folder": "/var/lib/textfile"})

    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("root", 0o600)
    assert "kubegpu_status" in (folder / "kubegpu.prom").read_text()
    assert not (folder / "kubegpu.prom").is_symlink()


@pytest.mark.parametrize("link", ["node_exporter/textfile", "node_exporter/textfile/deeper"])
def test_a_folder_of_another_user_leads_nowhere(program: ModuleType, tmp_path: Path, link: str) -> None:
    """node-exporter's user owns a folder above, or may write there, and puts a link to a folder of root's."""
    target = tmp_path / "cron.d"
    (target / "deeper").mkdir(parents=True)
    (tmp_path / "node_exporter").mkdir()
    (tmp_path / "node_exporter").chmod(0o777)
    (tmp_path / "node_exporter/textfile").symlink_to(target)

    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        program.write_status({"node": "w1", "metrics_folder": link})
    assert [*target.rglob("*.prom")] == []


def test_a_worker_without_a_driver_has_only_the_time(program: ModuleType, tmp_path: Path) -> None:
    program.write_status({"node": "w1", "metrics_folder": "/var/lib/textfile"})

    rows = (tmp_path / "var/lib/textfile/kubegpu.prom").read_text().splitlines()
    assert [row.partition("{")[0] for row in rows if not row.startswith("#")] == ["kubegpu_status_timestamp_seconds"]


def test_the_program_says_how_it_is_called() -> None:
    done = subprocess.run(["python3", PROGRAM, "--help"], capture_output=True, text=True, check=True)

    assert "restore-prepare" in done.stdout
