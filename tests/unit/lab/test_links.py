"""Links to compiled programs, in build/bin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.graph import link


def test_several_may_link_at_once(tmp_path: Path) -> None:
    programs = {f"program{number}": tmp_path / "made" / str(number) for number in range(50)}
    with ThreadPoolExecutor(8) as lanes:
        list(lanes.map(lambda _: link(tmp_path / "bin", programs), range(16)))
    assert {path.name: path.readlink() for path in (tmp_path / "bin").iterdir()} == programs


def test_a_link_to_another_version_is_renewed(tmp_path: Path) -> None:
    link(tmp_path, {"etcd": tmp_path / "old"})
    link(tmp_path, {"etcd": tmp_path / "new"})
    assert (tmp_path / "etcd").readlink() == tmp_path / "new"
