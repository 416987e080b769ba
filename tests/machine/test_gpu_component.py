"""lab/gpu by itself: built from a copy of its folder, and mounted into a container that has nothing else of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from driver_machine import ROOT, build, in_container

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
    return build(tmp_path_factory.mktemp("gpu") / "built", "MODEL=H100", source=copied)


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
