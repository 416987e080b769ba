"""A restore that is killed or fails after each change that a step makes on a server, and what can be done next.

The points are read from a run of the program: after each line that has changed a file. Stand-ins for etcd's programs
write what a snapshot has; tests/integration/test_etcd_backup.py has real members.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from upkeep_servers import PROGRAM, Failed, Refused, Servers, call, load

HOSTS = ("cp1", "cp2", "cp3")
STEPS = ("restore-prepare", "restore-save", "restore-stop", "restore-swap", "restore-start", "restore-end")
KINDS = ("killed", "fails")
NEXT = ("the same backup", "another backup", "abort")
DATA = "var/lib/etcd"
STATE = "etc/kubernetes/kubegpu/restoring.json"


def peer(host: str) -> str:
    return f"https://{host}:2380"


class Fleet(Servers):
    """Three control planes below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = {host: self._load(folder / host, host) for host in HOSTS}
        super().__init__(programs, folder / "controller")

    @classmethod
    def create(cls, folder: Path) -> Fleet:
        for host in HOSTS:
            text = (
                f"- --data-dir=/var/lib/etcd\n- --initial-advertise-peer-urls={peer(host)}\n- --name={host}\n"
                "image: registry.k8s.io/etcd:3.6.8-0\n"
            )
            for path, content in {
                "etc/kubernetes/manifests/etcd.yaml": text,
                "etc/kubernetes/manifests/kube-apiserver.yaml": "",
                "etc/kubernetes/kubegpu/cluster.json": json.dumps({"uid": "1234", "name": "prod"}),
                f"{DATA}/member/db": "old",
                "run/x": "",
            }.items():
                (folder / host / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / host / path).write_text(content)
        return cls(folder)

    def _load(self, root: Path, host: str) -> ModuleType:
        settings = {"backup_folder": f"{root}/backups", "backup_keep": 2}
        (root / "etc/kubernetes/kubegpu/upkeep.json").write_text(json.dumps(settings))
        return load(
            root,
            COMPONENTS=("etcd", "kube-apiserver"),
            RESERVE=0,
            COMPARE_WAIT=5,
            run=lambda *words, **_: self.program(root, *map(str, words)),
            healthy=lambda _component: self.runs(host),
            members=lambda: {peer(name): name for name in HOSTS} if self.runs(host) else {},
            answers=lambda url: self.runs(url.removeprefix("https://").removesuffix(":2380")),
            hashes_of=lambda peers: {name: (self.data(name), "", "") for name in HOSTS if peer(name) in peers},
        )

    def program(self, root: Path, *words: str) -> str:
        """etcdctl, etcdutl and ctr, as far as the program calls them. No two snapshots have the same data."""
        if "save" in words:
            number = len([*root.glob("backups/*/backup.json")])
            Path(words[-1]).write_text(f"{(root / DATA / 'member/db').read_text()}, by {root.name}, {number}")
        if "status" in words:
            return json.dumps({"totalKey": 3, "totalSize": 3})
        if "restore" in words:
            made = Path(next(word for word in words if word.startswith("--data-dir=")).removeprefix("--data-dir="))
            (made / "member").mkdir(parents=True)
            (made / "member/db").write_text(Path(words[3]).read_text())
        return "TASK PID STATUS\n"

    def runs(self, host: str) -> bool:
        return (self.folder / host / "etc/kubernetes/manifests/etcd.yaml").exists()

    def step_of(self, host: str) -> str:
        path = self.folder / host / STATE
        return str(json.loads(path.read_text())["step"]) if path.exists() else ""

    def data(self, host: str) -> str:
        path = self.folder / host / DATA / "member/db"
        return path.read_text() if path.exists() else ""

    def copied(self, folder: Path) -> Fleet:
        shutil.copytree(self.folder, folder, symlinks=True)
        return Fleet(folder)

    def tree(self) -> dict[str, str]:
        """All files with what they have, but the lock."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.name != "kubegpu-upkeep.lock")
        return {str(path.relative_to(self.folder)): "" if path.is_dir() else path.read_bytes().hex() for path in found}

    def left(self) -> frozenset[tuple[str, str]]:
        """Of a run, but for names and times that are new in each."""
        rows = (path.relative_to(self.folder) for path in self.folder.rglob("*"))
        names = {re.sub(r"\.\w{8,12}\.partial|-\w{8}$|\d{8}T\d{6}Z", "", str(path)) for path in rows}
        return frozenset({(name, "") for name in names} | {(self.step_of(host), self.data(host)) for host in HOSTS})

    def has_ended(self, data: str) -> bool:
        """Whether all control planes run with this data, and nothing is left."""
        return all(
            self.data(host) == data
            and {path.stem for path in (self.folder / host / "etc/kubernetes/manifests").iterdir()}
            == {"etcd", "kube-apiserver"}
            and not (self.folder / host / STATE).exists()
            and not [*(self.folder / host / DATA).glob("restored-*")]
            for host in HOSTS
        )

    def keeps(self, data: str) -> bool:
        """Whether each server still has these data somewhere in the folder of etcd."""
        return all(data in [p.read_text() for p in (self.folder / host / DATA).glob("member*/db")] for host in HOSTS)


Tracer = Callable[[FrameType, str, Any], Any]


def at_each_line(act: Callable[[int], None]) -> Tracer:
    """act: gets the number of lines of the program that have run."""
    count = 0

    def local(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            act(count)
        return local

    return lambda frame, _event, _arg: local if frame.f_code.co_filename == str(PROGRAM) else None


def traced(tracer: Tracer, fleet: Fleet, host: str, words: list[str]) -> None:
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        fleet.on(host, *words)
    finally:
        sys.settrace(before)


def changes(fleet: Fleet, words: list[str]) -> Iterator[int]:
    """After how many lines of this step on cp2 a file has changed."""
    seen, points = fleet.tree(), []

    def look(count: int) -> None:
        nonlocal seen
        now = fleet.tree()
        if now != seen:
            seen = now
            points.append(count)

    traced(at_each_line(look), fleet, "cp2", words)
    yield from points


def interrupt(fleet: Fleet, words: list[str], point: int, kind: str) -> None:
    """The step on cp2, up to a point."""

    def kill(count: int) -> None:
        if count == point:
            os._exit(9)

    def fail(count: int) -> None:
        if count == point:
            raise OSError(errno.ENOSPC, "No space left on device")

    if kind == "fails":
        traced(at_each_line(fail), fleet, "cp2", words)
        return
    child = os.fork()
    if not child:
        traced(at_each_line(kill), fleet, "cp2", words)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise Failed("killed")


def run_until(fleet: Fleet, wanted: str, step: str, point: int, kind: str) -> None:
    """A run that ends in this step on cp2; the other servers still do it."""
    plan = fleet.plan(wanted)
    fleet.copy(plan)
    for words in plan["commands"]:
        if words[0] != step:
            fleet.step(words, HOSTS)
            continue
        for host in HOSTS:
            try:
                interrupt(fleet, words, point, kind) if host == "cp2" else fleet.on(host, *words)
            except Failed:
                continue
        return


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all disks of this machine, some thousand times."""
    monkeypatch.setattr(os, "sync", lambda: None)


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fleet, list[str]]:
    """A fleet whose data are `new` after two backups of each server; names of one of cp1 and one of cp3."""
    fleet = Fleet.create(tmp_path_factory.mktemp("fleet"))
    names = []
    for host in (*HOSTS, *HOSTS):
        names.append(Path(fleet.on(host, "backup")["backup"]).name)
    for host in HOSTS:
        (fleet.folder / host / DATA / "member/db").write_text("new")
    return fleet, [names[0], names[5]]


def restored(fleet: Fleet, name: str) -> str:
    """What the snapshot of a backup has."""
    folder = next(fleet.folder.glob(f"*/backups/{name}"))
    module = fleet.by_host["cp1"]
    with module.gzip.open(folder / "etcd.db.gz", "rt") as plain:
        return str(plain.read())


@pytest.mark.parametrize("step", STEPS)
def test_what_was_interrupted_ends_or_has_changed_nothing(
    backups: tuple[Fleet, list[str]], tmp_path: Path, step: str
) -> None:
    template, (wanted, other) = backups
    first = template.copied(tmp_path / "first")
    plan = first.plan(wanted)
    assert [words[0] for words in plan["commands"]] == [*STEPS]
    first.copy(plan)
    for words in plan["commands"]:
        if words[0] == step:
            first.on("cp1", *words)
            points = [*changes(first, words)]
            break
        first.step(words, HOSTS)
    data = {name: restored(template, name) for name in (wanted, other)}

    assert points, "no line of this step changes a file"
    seen = set()
    for point, kind in product(points, KINDS):
        broken = template.copied(tmp_path / f"{point}-{kind}")
        run_until(broken, wanted, step, point, kind)
        assert broken.keeps("new")
        if broken.left() in seen:
            continue
        seen.add(broken.left())
        for then in NEXT:
            fleet = broken.copied(tmp_path / f"{point}-{kind}-{then}")
            go_on(fleet, then, wanted, other, data)
    print(f"{step}: {len(points)} points, {len(seen)} outcomes")


def go_on(fleet: Fleet, then: str, wanted: str, other: str, data: dict[str, str]) -> None:
    name, state = {NEXT[0]: (wanted, "present"), NEXT[1]: (other, "present"), NEXT[2]: ("", "absent")}[then]
    steps = {fleet.step_of(host) for host in HOSTS}
    running = steps <= {"", "prepared", "started"}
    if "started" in steps and steps <= {"", "started"}:  # the cluster works, and writes
        for host in HOSTS:
            (fleet.folder / host / DATA / "member/db").write_text(data[wanted] + " and later")
        data = data | {wanted: data[wanted] + " and later"}
    before = fleet.tree()
    try:
        fleet.restore(name, state)
    except Refused:
        assert fleet.tree() == before
        assert then != NEXT[0]
        assert not running or then == NEXT[1], "all control planes run, so the restore can be discarded"
        name = wanted
        fleet.restore(name)
    if then == NEXT[2] and not name:
        [found] = {fleet.data(host) for host in HOSTS}
        assert found in ("new", data[wanted])
        assert fleet.has_ended(found)
        fleet.restore(other)
        name = other
    assert fleet.has_ended(data[name])
    assert fleet.keeps("new")


@pytest.mark.parametrize("lost", [HOSTS, ("cp2",)], ids=["on all", "on one"])
@pytest.mark.parametrize("step", STEPS)
def test_no_restore_ends_without_the_data_that_were_prepared(
    backups: tuple[Fleet, list[str]], tmp_path: Path, step: str, lost: tuple[str, ...]
) -> None:
    """A full disk has space again before this step."""
    template, (wanted, _other) = backups
    fleet = template.copied(tmp_path / "fleet")
    plan = fleet.plan(wanted)
    fleet.copy(plan)
    with contextlib.suppress(Failed):
        for words in plan["commands"]:
            if words[0] == step:
                for path in [found for host in lost for found in (fleet.folder / host / DATA).glob("restored-*")]:
                    shutil.rmtree(path)
            fleet.step(words, HOSTS)
    if not fleet.has_ended(restored(template, wanted)):
        assert [host for host in HOSTS if fleet.step_of(host) == "stopped"] == [*lost]
        fleet.restore(wanted)

    assert fleet.has_ended(restored(template, wanted))
    assert fleet.keeps("new")


def test_a_killed_abort_ends(backups: tuple[Fleet, list[str]], tmp_path: Path) -> None:
    template, (wanted, other) = backups
    prepared = template.copied(tmp_path / "prepared")
    plan = prepared.plan(wanted)
    prepared.copy(plan)
    prepared.step(plan["commands"][0], HOSTS)
    points = [*changes(prepared.copied(tmp_path / "first"), ["restore-abort"])]
    assert len(points) > 1
    for point in points:
        for then in NEXT:
            fleet = prepared.copied(tmp_path / f"{point}-{then[:5]}")
            with pytest.raises(Failed):
                interrupt(fleet, ["restore-abort"], point, "killed")
            go_on(fleet, then, wanted, other, {name: restored(template, name) for name in (wanted, other)})


def test_a_damaged_copy_blocks_neither_its_backup_nor_another(backups: tuple[Fleet, list[str]], tmp_path: Path) -> None:
    """Of the same size, on a server that has prepared another one: it is found by its digest, and written again."""
    template, (wanted, other) = backups
    fleet = template.copied(tmp_path / "fleet")
    fleet.step(fleet_prepared(fleet, other), HOSTS)
    for path in fleet.folder.glob(f"cp1/backups/{wanted}/etcd.db.gz"):
        path.write_bytes(path.read_bytes()[:-9] + b"x" * 9)

    assert "damaged" in fleet.plan(wanted)["refused"][0]
    fleet.restore(other)

    assert fleet.has_ended(restored(template, other))
    whole = template.folder / "cp1/backups" / wanted
    shutil.copytree(whole, fleet.controller / "1234/cp1" / wanted)
    plan = fleet.restore(wanted)
    assert plan["source"]["controller"]
    assert fleet.has_ended(restored(template, wanted))


def fleet_prepared(fleet: Fleet, name: str) -> list[str]:
    plan = fleet.plan(name)
    fleet.copy(plan)
    words: list[str] = plan["commands"][0]
    return words


def test_a_list_changes_nothing_and_continues_nothing(backups: tuple[Fleet, list[str]], tmp_path: Path) -> None:
    template, (wanted, _) = backups
    fleet = template.copied(tmp_path / "fleet")
    fleet.step(fleet_prepared(fleet, wanted), HOSTS)
    before = fleet.tree()

    plan = fleet.restore("")

    assert (plan["commands"], fleet.tree()) == ([], before)
    assert f"{wanted} on cp1, cp2, cp3" in plan["listing"]
    assert f"cp2: the restore of {wanted} has not ended (prepared)" in "\n".join(plan["listing"])


def test_data_that_are_prepared_for_other_members_are_prepared_again(
    backups: tuple[Fleet, list[str]], tmp_path: Path
) -> None:
    template, (wanted, _) = backups
    fleet = template.copied(tmp_path / "fleet")
    fleet.step(fleet_prepared(fleet, wanted), HOSTS)
    (fleet.folder / "cp3/etc/kubernetes/manifests/etcd.yaml").unlink()

    plan = fleet.plan(wanted, hosts=("cp1", "cp2"))

    assert plan["copied_to"] == ["cp2"]
    assert fleet.on("cp1", *plan["commands"][0])["changed"]


def test_prepared_data_that_are_gone_are_prepared_again(backups: tuple[Fleet, list[str]], tmp_path: Path) -> None:
    template, (wanted, _) = backups
    fleet = template.copied(tmp_path / "fleet")
    fleet.step(fleet_prepared(fleet, wanted), HOSTS)
    for path in fleet.folder.glob(f"cp2/{DATA}/restored-*"):
        shutil.rmtree(path)

    fleet.restore(wanted)

    assert fleet.has_ended(restored(template, wanted))


def test_call_raises_what_the_program_says(backups: tuple[Fleet, list[str]], tmp_path: Path) -> None:
    fleet = backups[0].copied(tmp_path / "fleet")
    with pytest.raises(Failed, match="no restore of this backup has begun"):
        call(fleet.by_host["cp1"], "restore-stop", "--sha256", "0" * 64)
