"""The role docker with stand-ins for `docker`, `dpkg-query` and the driver's nvidia-smi."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH
from own_apt import installed_alone

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
    folder: Path, part: str, *flags: str, gpus: int = 2, more: dict[str, str] | None = None, **variables: Any
) -> str:
    """What a part of the role prints, without line breaks."""
    facts = {"gpus": [{"bound_driver": "nvidia"}] * gpus, "driver_version_loaded": "580.1", "reboot_required": False}
    task = {"ansible.builtin.include_role": {"name": "kubegpu.autoscale.docker", "tasks_from": part}}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": part != "verify",
        "vars": {"_common_gpu_facts": {}, **variables},
        "environment": {"PATH": f"{folder}/bin:/usr/bin:/bin"},
        "tasks": [{"ansible.builtin.set_fact": {"gpu_facts": facts}}, task],
    }
    if part == "verify":
        play["vars"]["ansible_facts"] = {"gpu_facts": facts}
    (folder / "play.yml").write_text(json.dumps([play]))
    done = ansible_playbook(
        "-i",
        "localhost,",
        "-v",
        "play.yml",
        *flags,
        cwd=folder,
        env={"ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH, **(more or {})},
    )
    return " ".join((done.stdout + done.stderr).split())


def test_a_container_of_docker_that_shows_all_gpus_is_the_proof(folder: Path) -> None:
    (folder / "shown").write_text("\n".join(GPU.format(number, number) for number in range(2)))

    shown = run(folder, "verify")

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

    shown = run(folder, "verify")

    assert "failed=1" in shown, shown
    assert "nvidia-smi in a container showed 1 of 2 GPUs" in shown
    assert "`docker info --format {{.Runtimes}}` names the runtime nvidia" in shown


@pytest.mark.parametrize("name", ["docker.io", "docker-cli", "podman-docker"])
def test_a_docker_of_the_distribution_is_refused(folder: Path, name: str) -> None:
    (folder / "packages").write_text(f"{name} installed\n")

    shown = run(folder, "preflight", docker_state="present", _common_collects=False)

    assert f"has a Docker of somebody else ({name})" in shown
    assert "failed=1" in shown


def test_one_that_is_left_is_no_reason(folder: Path) -> None:
    (folder / "packages").write_text("docker.io config-files\n")

    assert "Docker of somebody else" not in run(folder, "preflight", docker_state="present")


@pytest.mark.parametrize(
    ("is_ours", "runtimes", "goes"),
    [(True, ["containerd"], True), (True, ["docker"], False), (False, ["containerd"], False)],
)
def test_the_runtime_goes_with_a_docker_of_ours(folder: Path, is_ours: bool, runtimes: list[str], goes: bool) -> None:
    """In check mode, where nothing is removed. A Docker of somebody else, and one that is asked for, keeps it."""
    ours = {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "args": []}}
    (folder / "daemon.json").write_text(json.dumps({"runtimes": ours, "log-driver": "journald"}))
    pin = folder / "kubegpu-docker-ce.pref"
    if is_ours:
        pin.touch()
    known = {
        "_common_apt_pin_file": str(pin),
        "__nvidia_container_toolkit_docker_file": str(folder / "daemon.json"),
        "nvidia_container_toolkit_runtimes": runtimes,
    }
    own = installed_alone(folder)

    shown = run(folder, "absent", "--check", "-e", json.dumps(known), more=own, docker_state="absent")

    assert "failed=0" in shown, shown
    assert bool(re.search(r"Write them\] \**\s+changed", shown)) is goes
