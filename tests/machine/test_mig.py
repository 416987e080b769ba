"""The lab's driver with GPUs that are split by MIG: what NVIDIA's own programs make of them, and the exporter's stand-in.

It makes device nodes and is compiled from C, so these tests need root and a compiler. Programs look for the driver's files in /proc, so each
runs in a mount namespace of its own.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from control_plane import free_port
from programs import missing, program

from lab.gpu.pci import plug_in

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "roles" / "gpu_workload" / "files"
SETTLES_S = 60
# What a program sees of a server: /proc/driver of its driver, and a folder of its own for the kubelet.
_ON_SERVER = """
mount --rbind "$LAB_GPU_ROOT/proc/driver" /proc/driver
mount -t tmpfs own /var/lib && mkdir -p /var/lib/kubelet/device-plugins
exec "$@"
"""


@pytest.fixture
def machine(tmp_path: Path, built: Path) -> Iterator[dict[str, str]]:
    """Environment of a machine with two H100 whose driver is loaded."""
    root = tmp_path / "root"
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for path in ("dev", "proc/driver", "run/nvidia-persistenced", "usr/lib/x86_64-linux-gnu"):
        (root / path).mkdir(parents=True)
    shutil.copy(built / "libnvidia-ml.so.1", libraries / "libnvidia-ml.so.580.178.04")
    (libraries / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.178.04")
    plug_in(root / "sys/bus/pci/devices", gpus=2, model="H100")
    environment = os.environ | {"LAB_GPU_ROOT": str(root), "LD_LIBRARY_PATH": str(built)}
    subprocess.run([built / "nvidia-persistenced"], env=environment, check=True)
    yield environment
    driver = int((root / "run/nvidia-persistenced/nvidia-persistenced.pid").read_text())
    ended = os.pidfd_open(driver)
    os.kill(driver, signal.SIGTERM)
    select.select([ended], [], [], 30)
    assert not list((root / "dev").iterdir())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.platform != "linux" or os.geteuid():
        missing("the lab's driver makes device nodes: run it on Linux as root")
    if absent := [name for name in ("make", "gcc", "go", "unshare") if not shutil.which(name)]:
        missing(f"no {', '.join(absent)} to compile the lab's driver with")
    folder = tmp_path_factory.mktemp("gpu") / "built"
    subprocess.run(["make", "-C", ROOT / "lab/gpu", f"OUT={folder}"], check=True, stdout=subprocess.DEVNULL)
    return folder


def smi(machine: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [f"{machine['LD_LIBRARY_PATH']}/nvidia-smi", *arguments]
    return subprocess.run(command, env=machine, capture_output=True, text=True)


def split(machine: dict[str, str], gpu: int, *profiles: str) -> list[str]:
    """As an administrator does it. UUIDs of the MIG devices, in the order of nvidia-smi."""
    assert smi(machine, "-i", str(gpu), "-mig", "1").returncode == 0
    done = smi(machine, "mig", "-i", str(gpu), "-cgi", ",".join(profiles), "-C")
    assert done.returncode == 0, done.stdout
    return re.findall(r"MIG-[-0-9a-f]+", smi(machine, "-L").stdout)


def on_server(machine: dict[str, str], *argv: str | Path, within_s: float) -> str:
    """What a program says until it ends, or for as long."""
    command = ["timeout", str(within_s), "unshare", "--mount", "sh", "-ec", _ON_SERVER, "sh", *argv]
    done = subprocess.run(command, env=machine, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def test_a_gpu_that_is_not_split_says_what_a_real_one_says(machine: dict[str, str]) -> None:
    """An H200 with driver 580.159.04 did."""
    asked = smi(machine, "--query-gpu=index,mig.mode.current,mig.mode.pending,utilization.gpu", "--format=csv,noheader")
    assert asked.stdout == "0, Disabled, Disabled, 0 %\n1, Disabled, Disabled, 0 %\n"
    assert smi(machine, "mig", "-lgi").stdout == "No MIG-enabled devices found.\n"
    caps = Path(machine["LAB_GPU_ROOT"])
    minors = (caps / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    assert minors[:4] == ["config 1", "monitor 2", "gpu0/gi0/access 3", "gpu0/gi0/ci0/access 4"]
    assert (minors[11], minors[-1]) == ("gpu0/gi1/access 12", "gpu31/gi14/ci7/access 4322")
    nodes = {node.name: node.stat().st_mode & 0o777 for node in (caps / "dev/nvidia-caps").iterdir()}
    assert nodes == {"nvidia-cap1": 0o400, "nvidia-cap2": 0o444}


def test_instances_take_what_is_free_and_go_in_order(machine: dict[str, str]) -> None:
    split(machine, 1, "3g.40gb", "2g.20gb", "1g.10gb", "19")
    listed = re.findall(r"(\d)  MIG (\S+) +Device +(\d+)|^GPU (\d)", smi(machine, "-L").stdout, re.MULTILINE)
    del listed
    placed = [line.strip("| ").split() for line in smi(machine, "mig", "-lgi").stdout.splitlines()]
    # GPU, MIG, profile, its id, the instance's id, first slice and slices of memory
    assert placed == [
        ["1", "MIG", "1g.10gb", "19", "13", "6:1"],
        ["1", "MIG", "2g.20gb", "14", "5", "4:2"],
        ["1", "MIG", "3g.40gb", "9", "1", "0:4"],
    ] or [row[2] for row in placed] == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
