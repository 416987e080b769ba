"""Before anything is changed: can this machine carry the lab? Then the system packages, then the virtual environment.

Run by the Makefile with the machine's own Python and nothing installed, so: the standard library alone.
"""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubegpu-lab"

DISK_GIB = 20  # 9 of compile cache and artifacts, 6 of containers, and what a build needs beside
MEMORY_GIB = 6
PYTHON = (3, 11)

# Debian package -> a file it brings.
PACKAGES = {
    "podman": "/usr/bin/podman",
    "netavark": "/usr/lib/podman/netavark",
    "aardvark-dns": "/usr/lib/podman/aardvark-dns",
    "runc": "/usr/sbin/runc",
    "iptables": "/usr/sbin/iptables",
    "mmdebstrap": "/usr/bin/mmdebstrap",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "dpkg-dev": "/usr/bin/dpkg-scanpackages",
    "apt-utils": "/usr/bin/apt-ftparchive",
    "gpg": "/usr/bin/gpg",
    "gcc": "/usr/bin/gcc",
    "libc6-dev": "/usr/include/stdio.h",
    "git": "/usr/bin/git",
}


def refusals() -> list[str]:
    """Every reason why the lab cannot run here, each with the next step; empty when it can."""
    if platform.system() != "Linux":
        return [f"the lab needs Linux, this is {platform.system()}: run it on a Linux machine or a virtual one"]
    found = []
    if sys.version_info < PYTHON:
        found.append(
            f"Python {'.'.join(map(str, PYTHON))} or newer is needed, {sys.executable} is {platform.python_version()}: "
            "call make with PYTHON=<a newer one>"
        )
    if os.geteuid() != 0:
        found.append("the lab boots servers in containers and needs root: run it with sudo or as root")
    if missing() and not shutil.which("apt-get"):
        found.append(
            f"{', '.join(missing())} not found, and no apt-get to install with: "
            "install them, or use Debian 12 or Ubuntu"
        )
    if (disk := shutil.disk_usage(_existing(CACHE)).free / 2**30) < DISK_GIB and not CACHE.exists():
        found.append(
            f"{DISK_GIB} GiB of disk are needed below {CACHE.parent}, {disk:.0f} are free: "
            "free some, or set XDG_CACHE_HOME to another disk"
        )
    if (memory := _memory_gib()) < MEMORY_GIB:
        found.append(f"{MEMORY_GIB} GiB of memory are needed, {memory:.1f} are available: stop what uses it")
    return found


def missing() -> list[str]:
    found = [package for package, file in PACKAGES.items() if not Path(file).exists()]
    return found if importlib.util.find_spec("ensurepip") else [*found, "python3-venv"]


def install(packages: list[str]) -> None:
    print(f"installing system packages: {' '.join(packages)}", flush=True)
    unasked = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in ["update"], ["install", "-y", "--no-install-recommends", *packages]:
        subprocess.run(["apt-get", "-qq", *words], check=True, stdout=subprocess.DEVNULL, env=unasked)


def environment(requirements: Path) -> None:
    """The virtual environment with these requirements, and the checkout in it as the collection that it is."""
    stamp = VENV / f".{requirements.stem}"
    if not (stamp.exists() and stamp.read_text() == requirements.read_text()):
        print(f"filling .venv from {requirements.name}, about a minute", flush=True)
        if not (VENV / "bin" / "pip").exists():
            venv.create(VENV, with_pip=True)
        subprocess.run(
            [VENV / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", requirements],
            check=True,
        )
        stamp.write_text(requirements.read_text())
    collection = VENV / "collections" / "ansible_collections" / "kubegpu" / "autoscale"
    collection.parent.mkdir(parents=True, exist_ok=True)
    if not collection.is_symlink():
        collection.symlink_to(CHECKOUT)


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _memory_gib() -> float:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) / 2**20


def main() -> None:
    if reasons := refusals():
        sys.exit("\n".join(f"preflight: {reason}" for reason in reasons))
    if packages := missing():
        install(packages)
    environment(CHECKOUT / sys.argv[1])


if __name__ == "__main__":
    main()
