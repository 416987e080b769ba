# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A GPU node as its hardware and its driver present it, and what follows from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .pci import PciDevice, driver_flavour, needs_nvlsm


@dataclass(frozen=True)
class GpuNode:
    """What was read on the node. Driver versions are dotted numbers, None if no driver is loaded or installed."""

    devices: tuple[PciDevice, ...]
    driver_loaded: str | None
    driver_installed: str | None
    nouveau_loaded: bool
    secure_boot: bool | None

    @property
    def gpus(self) -> tuple[PciDevice, ...]:
        return tuple(device for device in self.devices if device.is_gpu)

    @property
    def nvswitches(self) -> tuple[PciDevice, ...]:
        return tuple(device for device in self.devices if device.is_nvswitch)

    @property
    def reboot_reason(self) -> str:
        """Why the node has to reboot before its GPUs can be used; empty if it need not."""
        if not self.gpus or self.driver_installed is None:
            return ""
        if self.nouveau_loaded:
            return f"nouveau is loaded and holds the GPUs that driver {self.driver_installed} is installed for"
        if self.driver_loaded not in (None, self.driver_installed):
            return f"driver {self.driver_loaded} is loaded, but {self.driver_installed} is installed"
        return ""

    def facts(self) -> dict[str, Any]:
        """The facts as the module gpu_facts documents them."""
        nvlsm_needed = needs_nvlsm(self.gpus)
        return {
            "gpus": [_describe(device) for device in self.gpus],
            "nvswitches": [_describe(device) for device in self.nvswitches],
            "driver_flavour": driver_flavour(self.gpus),
            "fabric_manager_needed": bool(self.nvswitches) or nvlsm_needed,
            "nvlsm_needed": nvlsm_needed,
            "secure_boot": self.secure_boot,
            "nouveau_loaded": self.nouveau_loaded,
            "driver_version_loaded": self.driver_loaded,
            "driver_version_installed": self.driver_installed,
            "reboot_required": bool(self.reboot_reason),
            "reboot_reason": self.reboot_reason,
        }


def _describe(device: PciDevice) -> dict[str, str]:
    return {"pci_address": device.address, "device_id": f"{device.device:04x}", "generation": device.generation}
