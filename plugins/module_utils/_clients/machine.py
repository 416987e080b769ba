# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reads a GPU node from its file system: sysfs, procfs and dpkg's status file. Runs no program and needs no driver."""

from __future__ import annotations

import re
from pathlib import Path

from .._domain.gpu_node import GpuNode
from .._domain.pci import PciDevice

# The library that has to match the loaded module: one package on Debian, one a branch on Ubuntu.
_DRIVER_PACKAGE = re.compile(
    r"^Package: (?:libnvidia-ml1|libnvidia-compute(?:-\d+)?(?:-server)?)\n"
    r"(?:.+\n)*?Status: install ok installed\n(?:.+\n)*?Version: (?:\d+:)?([\d.]+)",
    re.MULTILINE,
)
_LOADED_DRIVER = re.compile(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)")
_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def read_gpu_node(root: Path) -> GpuNode:
    """Reads the machine below `root`, "/" for the one that this runs on."""
    return GpuNode(
        devices=tuple(_pci_devices(root / "sys/bus/pci/devices")),
        driver_loaded=_first_match(_LOADED_DRIVER, root / "proc/driver/nvidia/version"),
        driver_installed=_first_match(_DRIVER_PACKAGE, root / "var/lib/dpkg/status"),
        nouveau_loaded=(root / "sys/module/nouveau").is_dir(),
        secure_boot=_secure_boot(root / _SECURE_BOOT),
    )


def _pci_devices(folder: Path) -> list[PciDevice]:
    if not folder.is_dir():
        return []
    return [
        PciDevice(
            address=entry.name,
            vendor=_hex(entry / "vendor"),
            device=_hex(entry / "device"),
            class_code=_hex(entry / "class") >> 8,  # the lowest byte is the programming interface
        )
        for entry in sorted(folder.iterdir())
    ]


def _hex(path: Path) -> int:
    return int(path.read_text(encoding="ascii"), 16)


def _first_match(pattern: re.Pattern[str], path: Path) -> str | None:
    if not path.is_file():
        return None
    found = pattern.search(path.read_text(encoding="utf-8", errors="replace"))
    return found.group(1) if found else None


def _secure_boot(variable: Path) -> bool | None:
    """What the firmware says, after four bytes of attributes; None on a machine without UEFI."""
    return variable.read_bytes()[4:5] == b"\x01" if variable.is_file() else None
