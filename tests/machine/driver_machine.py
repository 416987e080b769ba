"""A machine of the lab's driver for a test: compiled, with its GPUs, below a folder instead of /."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from programs import missing

from lab.gpu.pci import plug_in

ROOT = Path(__file__).parents[2]
# Long enough for a load or a program to settle while other tests have the processors.
SETTLES_S = 60

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


def build(folder: Path, *options: str, source: Path = ROOT / "lab/gpu") -> Path:
    """Where the driver, its libraries and nvidia-smi are."""
    if sys.platform != "linux" or os.geteuid():
        missing("the lab's driver makes device nodes: run it on Linux as root")
    if absent := [name for name in ("make", "gcc", "go") if not shutil.which(name)]:
        missing(f"no {', '.join(absent)} to compile the lab's driver with")
    subprocess.run(["make", "-C", source, f"OUT={folder}", *options], check=True, stdout=subprocess.DEVNULL)
    return folder


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


@contextmanager
def loaded(root: Path, built: Path, model: str = "L4") -> Iterator[dict[str, str]]:
    """Environment of a machine with two GPUs whose driver is loaded."""
    environment = os.environ | {"LAB_GPU_ROOT": str(root), "LD_LIBRARY_PATH": str(built)}
    for path in ("dev", "proc/driver", "run/nvidia-persistenced"):
        (root / path).mkdir(parents=True)
    plug_in(root / "sys/bus/pci/devices", gpus=2, model=model)
    subprocess.run([built / "nvidia-persistenced"], env=environment, check=True)
    subprocess.run([built / "nvidia-modprobe", "-u", "-c=0"], env=environment, check=True)
    yield environment
    driver = int((root / "run/nvidia-persistenced/nvidia-persistenced.pid").read_text())
    ended = os.pidfd_open(driver)
    os.kill(driver, signal.SIGTERM)
    select.select([ended], [], [], 30)
    assert not list((root / "dev").iterdir())


@contextmanager
def running(*argv: str | Path, env: dict[str, str], ready: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process for the time of the block, from when it prints `ready`."""
    process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
    try:
        while ready and ready not in (line := process.stdout.readline()):
            assert line, f"{argv[0]} ended"
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


def smi(machine: dict[str, str], field: str) -> list[str]:
    command = [f"{machine['LD_LIBRARY_PATH']}/nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, env=machine, check=True, capture_output=True, text=True).stdout.splitlines()


def ask(machine: dict[str, str], request: str) -> list[str]:
    """Lines of the driver's answer."""
    with socket.socket(socket.AF_UNIX) as driver:
        driver.connect(f"{machine['LAB_GPU_ROOT']}/run/nvidia-persistenced/socket")
        driver.sendall(f"{request}\n".encode())
        return driver.recv(4096).decode().strip().splitlines()


def metrics(exporter: str) -> list[str]:
    """Lines of an exporter, none while it does not answer."""
    try:
        with urllib.request.urlopen(f"{exporter}/metrics", timeout=5) as answer:
            return [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    except urllib.error.URLError:
        return []
