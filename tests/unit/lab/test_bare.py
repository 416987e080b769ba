"""A container without an engine: its network, its control groups, and the machine's own GPUs in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import bare, pack, preflight, real_gpus

RELEASE = "580.159.04"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], None]:
    """Puts a program into the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def put(name: str, does: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (folder / name).chmod(0o755)

    return put


def test_labs_have_networks_of_their_own() -> None:
    assert bare.subnet("kubegpu-a1b2c3") != bare.subnet("kubegpu-d4e5f6")
    assert bare.addresses("x", ["mirror", "cp1"]) == {
        "mirror": f"{bare.subnet('x')}.2",
        "cp1": f"{bare.subnet('x')}.3",
    }


def test_an_interface_s_name_fits_the_kernel() -> None:
    """Also that of its other end, which has a letter more."""
    assert len(bare.short("kubegpu-a1b2c3-interrupted-node1") + "p") <= 15


def test_control_groups_are_those_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bare, "CGROUP", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")

    assert bare.hierarchies() == {"cgroup2": tmp_path / "kubegpu-lab"}


def test_a_server_s_group_may_limit_what_the_machine_s_can(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    handed: list[str] = []
    monkeypatch.setattr(bare, "CGROUP", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "kubegpu-lab").mkdir()
    (tmp_path / "kubegpu-lab" / "cgroup.controllers").write_text("cpu memory\n")
    monkeypatch.setattr(
        Path, "write_text", lambda path, text: handed.append(f"{path.relative_to(tmp_path)} {text}") or len(text)
    )

    bare.join("lab-cp1")

    assert handed == [
        *(f"cgroup.subtree_control +{controller}" for controller in ("cpu", "memory", "pids")),
        *(f"kubegpu-lab/cgroup.subtree_control +{controller}" for controller in ("cpu", "memory")),
        f"kubegpu-lab/lab-cp1/cgroup.procs {os.getpid()}",
    ]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_a_server_has_of_the_machine_finds_its_place(tmp_path: Path, kind: str) -> None:
    source, root = tmp_path / "source", tmp_path / "root"
    source.mkdir() if kind == "folder" else source.touch()

    bare.mount_point(root, f"{source}:/etc/apt/place")

    assert (root / "etc/apt/place").is_dir() is (kind == "folder")
    assert (root / "etc/apt/place").exists()


def test_a_process_that_is_gone_runs_no_container(tmp_path: Path) -> None:
    (tmp_path / "gpu1.pid").write_text("2147483000\n")

    assert bare.lives(tmp_path, "gpu1") is None
    assert bare.lives(tmp_path, "cp1") is None


def test_the_driver_of_the_machine_is_staged_whole(program: Callable[[str, str], None], tmp_path: Path) -> None:
    libraries = tmp_path / "lib64"
    libraries.mkdir()
    for name in ("cuda", "nvidia-ml", "nvidia-glcore"):
        (libraries / f"lib{name}.so.{RELEASE}").write_text(name)
    (libraries / "libcuda.so.570.1").write_text("of another release")
    program("nvidia-smi", f"case $1 in -L) echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)' ;; *) echo {RELEASE} ;; esac")
    listed = f"\tlibnvidia-ml.so.1 (libc6,x86-64) => {libraries}/libnvidia-ml.so.{RELEASE}"
    program("ldconfig", f"[ $1 = -n ] || echo '{listed}'")

    assert real_gpus.count() == 1
    real_gpus.stage(tmp_path / "driver")

    staged = sorted(file.name for file in (tmp_path / "driver" / "lib64").iterdir())
    assert staged == [f"libcuda.so.{RELEASE}", f"libnvidia-ml.so.{RELEASE}"]
    assert (tmp_path / "driver" / "bin" / "nvidia-smi").exists()

    (libraries / f"libcuda.so.{RELEASE}").unlink()
    with pytest.raises(FileNotFoundError, match=f"libcuda.so.{RELEASE}"):
        real_gpus.stage(tmp_path / "other")


def test_a_driver_that_fails_has_no_gpus(program: Callable[[str, str], None]) -> None:
    program("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")

    assert real_gpus.count() == 0


def test_a_machine_that_was_given_the_lab_lacks_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(preflight, "CACHE", tmp_path)
    monkeypatch.setattr(preflight, "program", lambda _name: None)
    monkeypatch.delenv("LAB_ENGINE", raising=False)
    assert not preflight.bare(), "podman is installed where the lab is made"
    assert {"podman", "mmdebstrap"} <= set(preflight.missing())

    (tmp_path / "unpacked").touch()
    assert preflight.bare()
    assert preflight.missing() == []


def test_a_folder_without_the_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no lab-pack\.00: name the folder"):
        pack.unpack(tmp_path)
