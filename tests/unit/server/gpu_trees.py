"""Small copies of machines: the files that gpu_facts reads, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.gpu_node import GpuNode
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.machine import read_gpu_node

VGA, CONTROLLER_3D, BRIDGE, AUDIO, INFINIBAND = "0x030000", "0x030200", "0x068000", "0x040300", "0x020700"
NVIDIA, MELLANOX = "0x10de", "0x15b3"
KERNEL = "6.8.0-60-generic"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

OPEN = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder@U22-I3-B17-02-5)
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
PROPRIETARY = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Wed Mar 19 17:31:10 UTC 2025
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
STANZA = """\
Package: {name}
Status: {status}
Priority: optional
Section: libs
Architecture: amd64
Version: {version}
Depends: libc6 (>= 2.14)
Conffiles:
 /etc/nvidia/{name}.conf 4a5b6c7d8e9f
Description: NVIDIA component
 It goes on here.

"""


class Tree:
    """A copy of the parts of a machine that the module reads."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def device(
        self,
        address: str,
        device: str,
        pci_class: str = CONTROLLER_3D,
        *,
        vendor: str = NVIDIA,
        driver: str | None = None,
        **attributes: str,
    ) -> None:
        folder = f"sys/bus/pci/devices/{address}"
        for name, text in {"vendor": vendor, "device": device, "class": pci_class, **attributes}.items():
            self.file(f"{folder}/{name}", f"{text}\n")
        if driver:
            self.link(f"{folder}/driver", f"../../../bus/pci/drivers/{driver}")

    def kernel(
        self, release: str = KERNEL, *, headers: bool = False, running: bool = True, bootable: bool = True
    ) -> None:
        """As Ubuntu and Debian lay it out: the link `build` is there without the headers, too."""
        if running:
            self.file("proc/sys/kernel/osrelease", f"{release}\n")
        self.link(f"lib/modules/{release}/build", f"/usr/src/linux-headers-{release}")
        if bootable:
            self.file(f"boot/vmlinuz-{release}", "")
        if headers:
            self.file(f"usr/src/linux-headers-{release}/Makefile", "include scripts\n")

    def packages(self, versions: Mapping[str, str], status: str = "install ok installed") -> None:
        """Adds packages to what dpkg lists, between one that is not NVIDIA's and one that was removed."""
        libc = STANZA.format(name="libc6", status="install ok installed", version="2.39-0ubuntu8.4")
        gone = STANZA.format(
            name="libnvidia-compute-470", status="deinstall ok config-files", version="470.256.02-0ubuntu1"
        )
        listed = "".join(STANZA.format(name=name, status=status, version=version) for name, version in versions.items())
        self.file("var/lib/dpkg/status", libc + listed + gone)

    def loaded(self, version: str, flavour: str = "open") -> None:
        self.file("proc/driver/nvidia/version", (OPEN if flavour == "open" else PROPRIETARY).format(version=version))

    def secure_boot(self, on: bool) -> None:
        self.file(SECURE_BOOT, b"\x06\x00\x00\x00" + bytes([on]))

    def file(self, path: str, content: str | bytes = "") -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def link(self, path: str, target: str) -> None:
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    def node(self) -> GpuNode:
        return read_gpu_node(self.root)

    def facts(self) -> dict[str, Any]:
        return self.node().facts()


def plant(root: Path, machine: Mapping[str, Any]) -> Tree:
    """Writes a machine as machines.yml describes it."""
    tree = Tree(root)
    for function in machine.get("pci", []):
        attributes = {name: value for name, value in function.items() if name not in ("at", "class", "links")}
        for address in _listed(function["at"]):
            tree.device(address, pci_class=function["class"], **attributes)
            for name, target in function.get("links", {}).items():
                tree.link(f"sys/bus/pci/devices/{address}/{name}", target)
    for kernel in machine.get("kernels", []):
        tree.kernel(**kernel)
    for path, content in machine.get("files", {}).items():
        tree.file(path, content)
    if "packages" in machine:
        tree.packages(machine["packages"])
    if "loaded" in machine:
        tree.loaded(**machine["loaded"])
    if "secure_boot" in machine:
        tree.secure_boot(machine["secure_boot"])
    return tree


def _listed(addresses: str | Iterable[str]) -> Iterable[str]:
    return [addresses] if isinstance(addresses, str) else addresses
