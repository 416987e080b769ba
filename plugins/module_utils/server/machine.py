# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads a GPU node from its files: sysfs, procfs, dpkg's status, kernels. Runs no program and needs no driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from .files import Files
from .gpu_node import GpuNode
from .kernels import compiler, headers, installed_driver, kernels, loaded_driver, running_kernel
from .pci import MELLANOX, NVIDIA, PciDevice, may_have_hidden_nvswitches

_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

# Variable of shim, which loads the boot loader: 1 if its validation is off, and the kernel accepts any module.
_SHIM_INSECURE = "sys/firmware/efi/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"

# A line of `resource`: first and last address, IORESOURCE_* flags of linux/ioport.h.
_RESOURCE = re.compile(r"^0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+)$", re.IGNORECASE | re.MULTILINE)
_BARS = 6
_IORESOURCE_MEM = 0x200
_IORESOURCE_UNSET = 0x20000000


def read_gpu_node(root: Path) -> GpuNode:
    """Reads the machine below `root`; "/" is this machine."""
    files = Files(root)
    release = running_kernel(files)
    devices = tuple(_pci_devices(files))
    if may_have_hidden_nvswitches([device for device in devices if device.is_gpu]):
        devices = tuple(_with_vital_product_data(files, device) for device in devices)
    return GpuNode(
        devices=devices,
        driver_loaded=loaded_driver(files),
        driver_installed=installed_driver(files),
        nouveau_loaded=files.is_there("sys/module/nouveau"),
        nova_loaded=files.is_there("sys/module/nova_core"),
        secure_boot=_secure_boot(files),
        has_uvm=files.is_there("dev/nvidia-uvm") if files.names("dev") else None,
        kernel=release,
        compiler=compiler(files),
        headers=None if release is None else headers(files, release),
        kernels=tuple(kernels(files)),
        warnings=tuple(files.warnings),
    )


def _pci_devices(files: Files) -> Iterator[PciDevice]:
    """PCI functions of NVIDIA and Mellanox only."""
    for address in files.names("sys/bus/pci/devices"):
        folder = f"sys/bus/pci/devices/{address}"
        vendor = files.number(f"{folder}/vendor")
        if vendor not in (NVIDIA, MELLANOX):
            continue
        class_code = files.number(f"{folder}/class")
        if class_code is None:
            continue
        device = PciDevice(
            address=address,
            vendor=vendor,
            device=files.number(f"{folder}/device"),
            class_code=class_code >> 8,  # the lowest byte is the programming interface
            driver=driver.name if (driver := files.link(f"{folder}/driver")) else None,
            is_virtual=files.link(f"{folder}/physfn") is not None,
        )
        yield _with_memory_bar(files, device) if device.is_gpu else device


def _with_memory_bar(files: Files, gpu: PciDevice) -> PciDevice:
    """The window into the GPU's memory is the largest one; its number differs between generations."""
    name = f"sys/bus/pci/devices/{gpu.address}/resource"
    text = files.text(name)
    if text is None:
        return gpu
    lines = [[int(number, 16) for number in line] for line in _RESOURCE.findall(text)]
    if not lines:
        files.warn(name, "lists no address ranges")
    sizes = [last - first + 1 for first, last, flags in lines[:_BARS] if _has_address(first, last, flags)]
    return replace(gpu, memory_bar=max(sizes, default=None))


def _has_address(first: int, last: int, flags: int) -> bool:
    return bool(flags & _IORESOURCE_MEM) and not flags & _IORESOURCE_UNSET and last > first


def _with_vital_product_data(files: Files, device: PciDevice) -> PciDevice:
    """Adds whether a ConnectX function is the bridge to NVSwitches, which calls itself SW_MNG."""
    if not device.is_infiniband:
        return device
    name = f"sys/bus/pci/devices/{device.address}/vpd"
    content = files.read(name, at_most=4096)
    unreadable = content is None and files.is_there(name)
    return replace(device, manages_nvswitches=None if unreadable else b"SW_MNG" in (content or b""))


def _secure_boot(files: Files) -> bool | None:
    """Values of firmware and shim, after four bytes of attributes; None on a machine without UEFI."""
    content = files.read(_SECURE_BOOT)
    if content is None:
        return None
    if len(content) != 5 or content[4] > 1:
        files.warn(_SECURE_BOOT, "is not a UEFI variable of one byte")
        return None
    return content[4] == 1 and (files.read(_SHIM_INSECURE) or b"")[4:] != b"\1"
