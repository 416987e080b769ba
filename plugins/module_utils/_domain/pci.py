# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's PCI devices: what a device id says about a GPU before any driver is there.

Source: the PCI ID database (https://pci-ids.ucw.cz/read/PC/10de), where NVIDIA numbers its chips in blocks, and for the
module flavours NVIDIA's Driver Installation Guide, chapter "Kernel Modules".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

NVIDIA = 0x10DE

# Base class and sub-class: VGA and 3D controllers are GPUs; NVIDIA's only "other bridge" is an NVSwitch.
_GPU_CLASSES = frozenset({0x0300, 0x0302})
_NVSWITCH_CLASS = 0x0680

# Blocks of device ids, first and last included. Anything older is "pre-maxwell".
_GENERATIONS: tuple[tuple[int, int, str], ...] = (
    (0x1340, 0x14FF, "maxwell"),
    (0x15F0, 0x15FF, "pascal"),
    (0x1600, 0x17FF, "maxwell"),
    (0x1B00, 0x1D7F, "pascal"),
    (0x1D80, 0x1DFF, "volta"),
    (0x1E00, 0x1FFF, "turing"),
    (0x2080, 0x20FF, "ampere"),
    (0x2180, 0x21FF, "turing"),
    (0x2200, 0x22FF, "ampere"),
    (0x2300, 0x23FF, "hopper"),
    (0x2400, 0x25FF, "ampere"),
    (0x2600, 0x28FF, "ada"),
    (0x2900, 0x31FF, "blackwell"),
)
_NVSWITCH_GENERATIONS = {0x1AC2: "volta", 0x1AF1: "ampere", 0x22A3: "hopper"}

_BEFORE_TURING = frozenset({"pre-maxwell", "maxwell", "pascal", "volta"})
# HGX boards with fifth-generation NVLink (B200, B300): their switches have no PCI function of their own.
_NVLINK5_BOARDS = frozenset({0x2901, 0x3182})
# Grace Hopper: Hopper by generation, yet NVIDIA supports the open modules only.
_OPEN_ONLY = frozenset({0x2342, 0x2348})


@dataclass(frozen=True)
class PciDevice:
    """One PCI function. `class_code` is base class and sub-class, 0x0302 for a 3D controller."""

    address: str
    vendor: int
    device: int
    class_code: int

    @property
    def is_gpu(self) -> bool:
        return self.vendor == NVIDIA and self.class_code in _GPU_CLASSES

    @property
    def is_nvswitch(self) -> bool:
        return self.vendor == NVIDIA and self.class_code == _NVSWITCH_CLASS

    @property
    def generation(self) -> str:
        """Name of the architecture in lower case; a device id above every known block counts as the newest."""
        if self.is_nvswitch:
            return _NVSWITCH_GENERATIONS.get(self.device, "unknown")
        if self.device > _GENERATIONS[-1][1]:
            return _GENERATIONS[-1][2]
        return next((name for first, last, name in _GENERATIONS if first <= self.device <= last), "pre-maxwell")


def driver_flavour(gpus: Collection[PciDevice]) -> str | None:
    """The kernel modules that drive all these GPUs: `open`, `proprietary` or `either`; None if nothing does, or no GPU.

    Open modules need the GSP, which came with Turing; from Blackwell on nothing else is supported.
    """
    needs_open = any(gpu.generation == "blackwell" or gpu.device in _OPEN_ONLY for gpu in gpus)
    needs_proprietary = any(gpu.generation in _BEFORE_TURING for gpu in gpus)
    if not gpus or (needs_open and needs_proprietary):
        return None
    return "open" if needs_open else "proprietary" if needs_proprietary else "either"


def needs_nvlsm(gpus: Collection[PciDevice]) -> bool:
    """Whether the NVLink subnet manager has to run beside the fabric manager."""
    return any(gpu.device in _NVLINK5_BOARDS for gpu in gpus)
