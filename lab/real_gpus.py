"""The machine's GPUs, and its driver's programs and libraries for a server."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

# Libraries for computing and monitoring; those for graphics and video are left out.
LIBRARIES = ("cuda", "nvidia-ml", "nvidia-cfg", "nvidia-nvvm", "nvidia-ptxjitcompiler", "nvidia-gpucomp")
PROGRAMS = ("nvidia-smi", "nvidia-debugdump")


def count() -> int:
    """Number of GPUs that the machine's driver shows; 0 without a driver."""
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return len(re.findall(r"^GPU ", listed.stdout, re.MULTILINE)) if listed.returncode == 0 else 0


def stage(folder: Path) -> None:
    """Write `lib64/`, `bin/`, `ld.so.conf` of the machine's driver. Raises FileNotFoundError without its libraries."""
    release = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    known = subprocess.run(["ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    folders = {Path(path).resolve().parent for path in re.findall(r"libnvidia-ml\.so\.1 .*=> (\S+)", known)}
    libraries = {
        file.name: file for where in folders for name in LIBRARIES for file in where.glob(f"lib{name}.so.{release}")
    }
    for needed in ("cuda", "nvidia-ml"):
        if f"lib{needed}.so.{release}" not in libraries:
            raise FileNotFoundError(2, "no library of the loaded driver", f"lib{needed}.so.{release}")
    (folder / "lib64").mkdir(parents=True, exist_ok=True)
    (folder / "bin").mkdir(exist_ok=True)
    for name, file in libraries.items():
        if not (folder / "lib64" / name).exists():
            shutil.copyfile(file, folder / "lib64" / name)
    subprocess.run(["ldconfig", "-n", folder / "lib64"], check=True)  # the links that programs ask for
    for program in PROGRAMS:
        if found := shutil.which(program):
            shutil.copy(found, folder / "bin" / program)
    (folder / "ld.so.conf").write_text("/usr/local/nvidia/lib64\n")
