# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""NVIDIA's PCI devices: what IDs and classes show about a GPU without a driver.

Sources:
  blocks of device ids: the PCI ID database, version 2026.08.22 (https://pci-ids.ucw.cz/read/PC/10de);
  what counts as a GPU and as an NVSwitch: NVIDIA/open-gpu-kernel-modules 595.45.04, `nv-pci-table.c` and `nvswitch.c`;
  module flavours: NVIDIA's Driver Installation Guide, chapter "Kernel Modules", and `supported-gpus.json` of the driver
  (features `kernelopen` and `gsp_proprietary_supported`, `legacybranch`);
  switches behind ConnectX bridges: NVIDIA/gpu-driver-container, `_assert_nvlink5_system`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass

from .pci_products import PRODUCTS, Product

NVIDIA = 0x10DE
MELLANOX = 0x15B3

# Base class and sub-class. NVIDIA's old chipsets also call their Ethernet functions "other bridge", hence the IDs.
_GPU_CLASSES = frozenset({0x0300, 0x0302})
_OTHER_BRIDGE = 0x0680
_INFINIBAND = 0x0207
_NVSWITCHES: tuple[tuple[range, str], ...] = (
    (range(0x1AC2, 0x1AC3), "volta"),
    (range(0x1AE8, 0x1AE9), "ampere"),
    (range(0x1AF0, 0x1B00), "ampere"),
    (range(0x22A0, 0x22A8), "hopper"),
)

# First device ID of each block. IDs above every known block count as the newest generation.
_BLOCKS: tuple[tuple[int, str], ...] = (
    (0x0000, "pre-maxwell"),
    (0x1340, "maxwell"),
    (0x15C0, "pascal"),
    (0x1600, "maxwell"),
    (0x1725, "pascal"),
    (0x1730, "maxwell"),
    (0x1B00, "pascal"),
    (0x1D80, "volta"),
    (0x1E00, "turing"),
    (0x2080, "ampere"),
    (0x2180, "turing"),
    (0x2200, "ampere"),
    (0x2300, "hopper"),
    (0x2400, "ampere"),
    (0x2600, "ada"),
    (0x2900, "blackwell"),
    (0x3000, "rubin"),
    (0x3100, "blackwell"),
    (0x3400, "rubin"),
)
_FIRST_IDS = tuple(first for first, _name in _BLOCKS)
UNKNOWN = "unknown"
GENERATIONS = tuple(dict.fromkeys(name for _first, name in _BLOCKS))

# Newest driver branch with modules for these generations; every later one starts with Turing.
_LAST_BRANCH = {"pre-maxwell": 470, "maxwell": 580, "pascal": 580, "volta": 580}
# First branch that supports a generation, by the branches' release notes. No release notes list generations after
# Blackwell yet, and no branch older than Blackwell's supports those.
_FIRST_BRANCH = {"ada": 525, "hopper": 525, "blackwell": 570, "rubin": 570}
_OPEN_ONLY_GENERATIONS = frozenset({"blackwell", "rubin"})
# Grace Hopper: Hopper by generation, but NVIDIA supports only the open modules.
_OPEN_ONLY_DEVICES = frozenset({0x2342, 0x2348})
_MIG_SINCE = GENERATIONS.index("ampere")


@dataclass(frozen=True)
class PciDevice:
    """One PCI function as the kernel describes it.

    device:             PCI device id; None if it cannot be read.
    class_code:         base class and sub-class, 0x0302 for a 3D controller.
    memory_bar:         bytes of its largest memory window that has an address; None without one.
    driver:             kernel driver bound to it, `nvidia`, `nouveau`, `vfio-pci` ...; None if none is.
    is_virtual:         whether it is an SR-IOV virtual function, a vGPU's share of a separately listed GPU.
    manages_nvswitches: from its vital product data; None if they cannot be read.
    """

    address: str
    vendor: int
    device: int | None
    class_code: int
    memory_bar: int | None = None
    driver: str | None = None
    is_virtual: bool = False
    manages_nvswitches: bool | None = False

    @property
    def is_gpu(self) -> bool:
        return self.vendor == NVIDIA and self.class_code in _GPU_CLASSES and not self.is_virtual

    @property
    def is_nvswitch(self) -> bool:
        return self.vendor == NVIDIA and self.class_code == _OTHER_BRIDGE and self._nvswitch is not None

    @property
    def is_infiniband(self) -> bool:
        """Whether it is a ConnectX function: HGX B200 and later put their NVSwitches behind such bridges."""
        return self.vendor == MELLANOX and self.class_code == _INFINIBAND and not self.is_virtual

    @property
    def generation(self) -> str:
        """Name of the architecture in lower case, one of GENERATIONS; `unknown` if the device id cannot be read."""
        if self.device is None:
            return UNKNOWN
        if self.class_code == _OTHER_BRIDGE:
            return self._nvswitch or UNKNOWN
        return _BLOCKS[bisect_right(_FIRST_IDS, self.device) - 1][1]

    @property
    def flavour(self) -> str | None:
        """The kernel modules that drive it: `open`, `proprietary` or `either`; None if its generation is unknown.

        Open modules need the GSP, which came with Turing; from Blackwell on nothing else is supported.
        """
        if self.generation == UNKNOWN:
            return None
        if self.generation in _LAST_BRANCH:
            return "proprietary"
        return "open" if self.generation in _OPEN_ONLY_GENERATIONS or self.device in _OPEN_ONLY_DEVICES else "either"

    @property
    def last_branch(self) -> int | None:
        """Newest driver branch with modules for it; None if the newest existing one has them."""
        return _LAST_BRANCH.get(self.generation)

    @property
    def product(self) -> Product | None:
        return None if self.device is None else PRODUCTS.get(self.device)

    @property
    def mig_capable(self) -> bool | None:
        """Whether NVIDIA lists it for MIG; None for an unknown GPU that may be listed."""
        if self.product is not None:
            return self.product.mig
        if self.generation == UNKNOWN or GENERATIONS.index(self.generation) >= _MIG_SINCE:
            return None
        return False

    @property
    def _nvswitch(self) -> str | None:
        return next((generation for ids, generation in _NVSWITCHES if self.device in ids), None)


def driver_flavour(gpus: Collection[PciDevice]) -> str | None:
    """The kernel modules for all these GPUs: `open`, `proprietary`, `either`; None if nothing drives all, or no GPU."""
    flavours = {gpu.flavour for gpu in gpus}
    picky = flavours - {"either"}
    if not flavours or len(picky) > 1:
        return None
    return picky.pop() if picky else "either"


def last_branch(gpus: Collection[PciDevice]) -> int | None:
    """Newest driver branch that still has modules for all these GPUs; None if the newest that exists has."""
    return min((gpu.last_branch for gpu in gpus if gpu.last_branch is not None), default=None)


def first_branch(generations: Collection[str]) -> int:
    """Oldest driver branch that supports all these generations; 0 if each branch in use does."""
    return max((_FIRST_BRANCH.get(generation, 0) for generation in generations), default=0)


def may_have_hidden_nvswitches(gpus: Collection[PciDevice]) -> bool:
    """Whether NVSwitches can exist without a separate PCI function (NVLink 5 and later)."""
    return any(gpu.generation in _OPEN_ONLY_GENERATIONS for gpu in gpus)


def needs_nvlsm(devices: Collection[PciDevice]) -> bool | None:
    """Whether the NVLink subnet manager must run beside the fabric manager; None if a bridge does not show it."""
    answers = {device.manages_nvswitches for device in devices}
    return True if True in answers else None if None in answers else False
