"""lab/gpu by itself: built from a copy of its folder, and mounted into a container that has nothing else of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from driver_machine import ROOT, SETTLES_S, build

# A root of its own above this machine's files, as a container's is above its image's, with the folder at /gpus.
_CONTAINER = """
mount -t tmpfs own "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" image "$1/root"
cd "$1/root"
mkdir -p gpus
mount --rbind "$2" gpus
mount -t proc proc proc
mount --rbind /sys sys
mount -t tmpfs own run
mount -t tmpfs own dev
mknod -m 666 dev/null c 1 3
exec chroot . sh -ec "$3"
"""
# Writes the control file, and waits until each of its lines is answered: an empty line ends an answer.
_CONTROL = r"""
control() {
    rm -f /gpus/control.answers
    printf '%s\n' "$@" >/gpus/control
    until [ "$(grep -c '^$' /gpus/control.answers)" = $# ]; do sleep 0.05; done 2>/dev/null
}
"""
_UTILISATION = "nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits | head -1"
# A kernel of ten minutes on the first GPU: it works all the time.
_BUSY = """
python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("/run/nvidia-persistenced/socket")
s.sendall(b"launch 0 600000000000\\n"); s.recv(99)'
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the folder makes of itself, without the rest of the checkout."""
    copied = tmp_path_factory.mktemp("alone") / "gpu"
    shutil.copytree(ROOT / "lab" / "gpu", copied, ignore=shutil.ignore_patterns("__pycache__"))
    return build(tmp_path_factory.mktemp("gpu") / "built", copied, "MODEL=H100")


def in_container(built: Path, folder: Path, script: str) -> str:
    """What a script prints in a container in which the driver is loaded. The driver ends with it."""
    shutil.copytree(built, mounted := folder / "mounted")
    (own := folder / "own").mkdir()
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", _CONTAINER, "sh"]
    environment = {"PATH": os.environ["PATH"]}
    words = [*command, own, mounted, f"/gpus/start >/dev/null\n{_CONTROL}{script}"]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=SETTLES_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_container_that_mounts_the_folder_has_gpus(built: Path, tmp_path: Path) -> None:
    found = in_container(built, tmp_path, "nvidia-smi -L; ls /dev/nvidia*")

    assert found.count("NVIDIA H100 80GB HBM3") == 2
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"} <= set(found.split())


def test_the_readme_names_the_version(built: Path) -> None:
    version = (built / "VERSION").read_text().strip()

    assert f"Version {version}." in (ROOT / "lab/gpu/README.md").read_text()


def test_a_gpu_is_lost_and_comes_back(built: Path, tmp_path: Path) -> None:
    ask = "nvidia-smi --query-gpu=index --format=csv,noheader 2>&1 || true"
    script = f"control 'set 1 lost 1'; {ask}; echo --; control 'set 1 lost 0'; {ask}"
    gone, back = in_container(built, tmp_path, script).split("--")

    assert "lost" in gone.lower()
    assert back.split() == ["0", "1"]


def test_a_gpu_is_split(built: Path, tmp_path: Path) -> None:
    # The first instance of this profile has the number 2.
    script = "control 'mig 0 1' 'partition 0 9' 'compute 0/2 1'; nvidia-smi -L"
    found = in_container(built, tmp_path, script)

    assert "MIG 3g.40gb" in found


def test_readings_vary_around_what_is_so(built: Path, tmp_path: Path) -> None:
    script = f"""{_BUSY}
        until [ "$({_UTILISATION})" = 100 ]; do sleep 0.05; done
        control 'noise 8 1'
        until [ "$(sort -u /seen 2>/dev/null | wc -l)" -ge 4 ]; do {_UTILISATION} >>/seen; done
        cat /seen
        control 'noise 0'
        echo -- $({_UTILISATION})"""
    noisy, quiet = in_container(built, tmp_path, script).split("--")

    assert {int(reading) for reading in noisy.split()} <= set(range(92, 101))
    assert quiet.strip() == "100"


def test_each_line_is_answered(built: Path, tmp_path: Path) -> None:
    script = "control 'set 7 xid 79' 'set 0 xid 79'; cat /gpus/control.answers"

    assert in_container(built, tmp_path, script).split("\n\n") == ["error no GPU 7", "ok", ""]


def test_a_driver_that_is_loaded_is_left_alone(built: Path, tmp_path: Path) -> None:
    found = in_container(built, tmp_path, "/gpus/start 2>&1 && echo started; nvidia-smi -L | wc -l")

    assert found.splitlines() == ["start: this machine has an NVIDIA driver already; nothing was changed", "2"]
