# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A GPU node: its hardware, kernels and driver, and the conclusions from them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from .driver import Driver, Kernel
from .pci import PciDevice, driver_flavour, last_branch, needs_nvlsm

# The kernel's own drivers by their names in PCI, and their modules.
_KERNELS_OWN = {"nouveau": "nouveau", "NovaCore": "nova_core"}
# Drivers of GPUs that the node itself uses. Others pass GPUs to virtual machines.
OURS = frozenset({None, "nvidia", *_KERNELS_OWN})


@dataclass(frozen=True)
class GpuNode:
    """What was read on the node.

    has_uvm:          whether the device files of nvidia-uvm exist, which CUDA needs; None if unknown.
    kernel:           release of the running kernel; None if it cannot be read.
    compiler:         package of the compiler that it was built with; None if unknown.
    headers:          whether its headers are installed; None if unknown.
    kernels:          kernels below /lib/modules, in any order.
    driver_loaded:    None if no NVIDIA module is loaded.
    driver_installed: from the packages; None without packages.
    nouveau_loaded:   None if unknown, nova_loaded likewise, secure_boot on a machine without UEFI as well.
    warnings:         one sentence for each file that could not be used.
    """

    devices: tuple[PciDevice, ...] = ()
    driver_loaded: Driver | None = None
    driver_installed: Driver | None = None
    nouveau_loaded: bool | None = False
    nova_loaded: bool | None = False
    secure_boot: bool | None = None
    has_uvm: bool | None = None
    kernel: str | None = None
    compiler: str | None = None
    headers: bool | None = None
    kernels: tuple[Kernel, ...] = ()
    warnings: tuple[str, ...] = ()

    def without(self, addresses: Collection[str]) -> GpuNode:
        """The node without the devices of these PCI addresses."""
        ignored = {address.lower() for address in addresses}
        return replace(self, devices=tuple(device for device in self.devices if device.address not in ignored))

    @property
    def gpus(self) -> tuple[PciDevice, ...]:
        return tuple(device for device in self.devices if device.is_gpu)

    @property
    def nvswitches(self) -> tuple[PciDevice, ...]:
        return tuple(device for device in self.devices if device.is_nvswitch)

    @property
    def running(self) -> Kernel | None:
        """The running kernel; None if it is not in /lib/modules, as in a container."""
        return next((kernel for kernel in self.kernels if kernel.release == self.kernel), None)

    @property
    def next_kernel(self) -> Kernel | None:
        """The newest bootable kernel after the running one that has NVIDIA's module."""
        if self.running is None:
            return None
        later = [
            kernel for kernel in self.kernels if kernel.bootable and kernel.module and kernel.order > self.running.order
        ]
        return max(later, key=lambda kernel: kernel.order, default=None)

    @property
    def pending_kernel(self) -> Kernel | None:
        """The kernel that boots next by default, if it is newer than the running one: the newest with an image."""
        if self.running is None:
            return None
        later = [kernel for kernel in self.kernels if kernel.bootable and kernel.order > self.running.order]
        return max(later, key=lambda kernel: kernel.order, default=None)

    @property
    def next_boot_problem(self) -> str:
        """Why the driver will not work after the next boot although it works now; empty if nothing shows that."""
        pending, running = self.pending_kernel, self.running
        if not self.gpus or pending is None or pending.module or running is None or running.module is None:
            return ""
        return f"kernel {pending.release} boots next, and {self._name} has no module for it"

    @property
    def driver_origin(self) -> str | None:
        """`package`, `other` for a driver without a package, None without a driver."""
        if self.driver_installed is not None:
            return "package"
        foreign = self.driver_loaded is not None or any(kernel.module for kernel in self.kernels)
        return "other" if foreign else None

    @property
    def kernels_own(self) -> str | None:
        """Module of the kernel's own driver that has a GPU or may get one: it is loaded, and NVIDIA's driver is not."""
        drivers = {gpu.driver for gpu in self.gpus}
        for driver, module in _KERNELS_OWN.items():
            if driver in drivers:
                return module
        if None not in drivers or self.driver_loaded is not None:
            return None
        return "nouveau" if self.nouveau_loaded else "nova_core" if self.nova_loaded else None

    @property
    def driver_in_use(self) -> bool:
        """Whether the loaded driver is the installed one; unreadable parts do not count as different."""
        return self.driver_loaded is not None and not self._difference

    @property
    def reboot_reason(self) -> str:
        """Why the node must reboot before its GPUs can be used; empty if it need not."""
        if not self.gpus or self.driver_origin is None:
            return ""
        if self.kernels_own:
            return f"{self.kernels_own} is loaded and holds the GPUs that {self._name} is installed for"
        if self._difference:
            return self._difference
        if self.driver_loaded is None and not self._module_built and self.next_kernel:
            return (
                f"{self._name} has no module for the running kernel {self.kernel}, "
                f"but one for the installed kernel {self.next_kernel.release}"
            )
        return ""

    @property
    def driver_problem(self) -> str:
        """Why the driver cannot use its GPUs even after a reboot, and the fix; can be empty."""
        if not self.gpus or self.driver_origin is None:
            return ""
        if not self._own_gpus:
            holders = " and ".join(sorted({str(gpu.driver) for gpu in self.gpus}))
            return f"every GPU is bound to {holders}: unbind those that this node should use"
        if self._misfit or self.driver_in_use:
            return self._misfit
        if not self._module_built:
            return self._missing_module
        if self.reboot_reason:
            return ""
        if self.secure_boot and self.running and self.running.signed is False:
            return (
                f"Secure Boot is on and {self.running.module} is not signed: sign it with an enrolled key, or install "
                "modules that the distribution has signed"
            )
        if self.secure_boot:
            return (
                "Secure Boot is on and the module is not loaded: the kernel accepts it only if the key that signed it "
                "is enrolled (`mokutil --list-enrolled`)"
            )
        return "its module is not loaded: run `modprobe nvidia`, then check `journalctl -k --grep 'NVRM|nvidia'`"

    def facts(self) -> dict[str, Any]:
        """The facts, as documented in the module gpu_facts."""
        nvlsm_needed = needs_nvlsm(self.devices)
        loaded, installed = self.driver_loaded or Driver(), self.driver_installed or Driver()
        return {
            "gpus": [_describe_gpu(gpu) for gpu in self.gpus],
            "nvswitches": [_describe(switch) for switch in self.nvswitches],
            "driver_flavour": driver_flavour(self.gpus),
            "driver_branch_max": last_branch(self.gpus),
            "fabric_manager_needed": True if self.nvswitches else nvlsm_needed,
            "nvlsm_needed": nvlsm_needed,
            "secure_boot": self.secure_boot,
            "nouveau_loaded": self.nouveau_loaded,
            "driver_version_loaded": loaded.version,
            "driver_flavour_loaded": loaded.flavour,
            "driver_version_installed": installed.version,
            "driver_flavour_installed": installed.flavour,
            "driver_origin": self.driver_origin,
            "uvm_available": self.has_uvm,
            "driver_problem": self.driver_problem,
            "kernel": self.kernel,
            "kernel_compiler": self.compiler,
            "kernel_headers_installed": self.headers,
            "kernel_pending": pending.release if (pending := self.pending_kernel) else None,
            "next_boot_problem": self.next_boot_problem,
            "reboot_required": bool(self.reboot_reason),
            "reboot_reason": self.reboot_reason,
        }

    @property
    def _name(self) -> str:
        return f"driver {self.driver_installed.version}" if self.driver_installed else "a driver without a package"

    @property
    def _difference(self) -> str:
        """Difference between the loaded and the installed driver, as a sentence; can be empty."""
        loaded, installed = self.driver_loaded, self.driver_installed
        if loaded is None or installed is None:
            return ""
        if loaded.version and installed.version and loaded.version != installed.version:
            return f"driver {loaded.version} is loaded, but {installed.version} is installed"
        if loaded.flavour and installed.flavour and loaded.flavour != installed.flavour:
            return f"the {loaded.flavour} kernel modules are loaded, but the {installed.flavour} ones are installed"
        return ""

    @property
    def _module_built(self) -> bool:
        """Whether the running kernel has NVIDIA's module; true without /lib/modules."""
        return self.running is None or self.running.module is not None

    @property
    def _missing_module(self) -> str:
        if self.next_kernel is not None:
            return ""
        if self.headers is False:
            return (
                f"{self._name} has no module for the running kernel {self.kernel}, "
                f"whose headers are missing: install linux-headers-{self.kernel}"
            )
        remedy = "run its installer again" if self.driver_installed is None else "see `dkms status`"
        return f"{self._name} has no module for the running kernel {self.kernel}: {remedy}"

    @property
    def _own_gpus(self) -> tuple[PciDevice, ...]:
        """GPUs that are bound to no driver, NVIDIA's, or the kernel's own."""
        return tuple(gpu for gpu in self.gpus if gpu.driver in OURS)

    @property
    def _misfit(self) -> str:
        """Why the current driver, or the one after a reboot, does not support these GPUs; empty if it does."""
        if {"open", "proprietary"} <= {gpu.flavour for gpu in self._own_gpus}:
            generations = " and ".join(dict.fromkeys(gpu.generation for gpu in self._own_gpus))
            return f"no single driver drives {generations} GPUs: remove one kind of card, or ignore it"
        driver = self.driver_installed or self.driver_loaded or Driver()
        for gpu in self._own_gpus:
            if driver.flavour and gpu.flavour not in ("either", None, driver.flavour):
                return (
                    f"the {driver.flavour} kernel modules do not drive {gpu.generation} GPUs: "
                    f"install the {gpu.flavour} ones"
                )
            if driver.branch and gpu.last_branch and driver.branch > gpu.last_branch:
                return (
                    f"driver {driver.version} no longer drives {gpu.generation} GPUs: "
                    f"install branch {gpu.last_branch} or older"
                )
        return ""


def _describe(device: PciDevice) -> dict[str, Any]:
    return {
        "pci_address": device.address,
        "device_id": None if device.device is None else f"{device.device:04x}",
        "generation": device.generation,
    }


def _describe_gpu(gpu: PciDevice) -> dict[str, Any]:
    return {
        **_describe(gpu),
        "name": gpu.product and gpu.product.name,
        "product": gpu.product and gpu.product.kind,
        "memory_bar_bytes": gpu.memory_bar,
        "mig_capable": gpu.mig_capable,
        "bound_driver": gpu.driver,
    }
