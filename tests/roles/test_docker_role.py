"""The role docker with stand-ins for `docker`, `dpkg-query` and the driver's nvidia-smi."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from driver_machines import BARE, DEBIAN, node_facts
from own_apt import apt_paths, installed_alone

# As the daemon's client does it: what is asked for is written down, nvidia-smi's answer is printed.
DOCKER = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$1" in
  import) tar --list > {folder}/image ;;
  run) cat {folder}/shown ;;
esac
"""
# It knows of a package what the file has, and is silent about others.
DPKG = """#!/bin/sh
shift 3
for name; do grep --fixed-strings "$name " {folder}/packages; done
exit 0
"""
LDD = """#!/bin/sh
echo "	libc.so.6 => /lib/libc.so.6 (0x00007f1b2be00000)"
"""
GPU = "GPU {}: NVIDIA L4 (UUID: GPU-{})"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, script in (("docker", DOCKER), ("dpkg-query", DPKG), ("ldd", LDD)):
        (tmp_path / "bin" / name).write_text(script.format(folder=tmp_path))
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "packages").touch()
    return tmp_path


def run(
    folder: Path, *parts: str, flags: tuple[str, ...] = (), more: dict[str, str] | None = None, **known: Any
) -> str:
    """What parts of the role print, without line breaks."""
    facts = {"gpu_facts": node_facts(2, driver_version_loaded="580.1")} | (DEBIAN if "plan" in parts else {})
    role = {"name": "kubegpu.autoscale.docker"}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": "plan" not in parts,
        "vars": {"_common_gpu_facts": {}},
        "environment": {"PATH": f"{folder}/bin:/usr/bin:/bin"},
        "tasks": [
            {"ansible.builtin.set_fact": facts | {"cacheable": True}},
            *({"ansible.builtin.include_role": {**role, "tasks_from": part}} for part in parts),
        ],
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    words = ("-i", "localhost,", "-v", "play.yml", *flags, "-e", json.dumps(known | {"_common_server": BARE}))
    done = ansible_playbook(*words, cwd=folder, env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, **(more or {})})
    return " ".join((done.stdout + done.stderr).split())


def test_a_container_of_docker_that_shows_all_gpus_is_the_proof(folder: Path) -> None:
    (folder / "shown").write_text("\n".join(GPU.format(number, number) for number in range(2)))

    shown = run(folder, "plan", "verify", docker_state="present")

    assert "failed=0" in shown, shown
    imported, asked, removed = (folder / "asked").read_text().splitlines()
    name = removed.rpartition(" ")[2]
    assert (folder / "image").read_text() == "etc/\n"
    assert imported == f"import - {name}"
    assert asked == (
        "run --rm --network=none --runtime nvidia --env NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all "
        f"--volume=/lib/libc.so.6:/lib/libc.so.6:ro {name} /usr/bin/nvidia-smi -L"
    )
    assert removed == f"image rm --force {name}"


def test_a_gpu_that_docker_does_not_give_is_told_with_the_next_step(folder: Path) -> None:
    (folder / "shown").write_text(GPU.format(0, 0))

    shown = run(folder, "plan", "verify", docker_state="present")

    assert "failed=1" in shown, shown
    assert "nvidia-smi in a container of Docker showed 1 of 2 GPUs" in shown
    assert "`docker info --format {{.Runtimes}}` has to list nvidia" in shown


def test_a_docker_of_the_distribution_is_not_replaced(folder: Path) -> None:
    (folder / "packages").write_text("docker.io installed 20.10\n")

    shown = run(folder, "preflight", docker_state="present")

    assert "has a Docker that is not managed by this collection (docker.io)" in shown
    assert "failed=1" in shown


@pytest.mark.parametrize(
    ("is_ours", "runtimes", "goes"),
    [(True, ["containerd"], True), (True, ["docker"], False), (False, ["containerd"], False)],
)
def test_the_runtime_goes_with_a_docker_of_ours(folder: Path, is_ours: bool, runtimes: list[str], goes: bool) -> None:
    """In check mode, where nothing is removed. A Docker of somebody else, and one that is asked for, keeps it."""
    ours = {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "args": []}}
    (folder / "daemon.json").write_text(json.dumps({"runtimes": ours, "log-driver": "journald"}))
    pin = folder / "kubegpu.pin"
    if is_ours:
        pin.touch()
    known = {
        "_common_apt_paths": apt_paths(folder),
        "__nvidia_container_toolkit_docker_file": str(folder / "daemon.json"),
        "nvidia_container_toolkit_runtimes": runtimes,
    }
    own = installed_alone(folder)

    shown = run(folder, "plan", "absent", flags=("--check",), more=own, docker_state="absent", **known)

    assert "failed=0" in shown, shown
    assert bool(re.search(r"Write the settings\] \**\s+changed", shown)) is goes
