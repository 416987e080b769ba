# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The facts of the module gpu_facts, for decisions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...server.gpu_node import OURS

UNKNOWN = "unknown"
EITHER = "either"


@dataclass(frozen=True)
class Gpu:
    """may_split: whether MIG may be able to split it."""

    address: str
    generation: str
    may_split: bool = False


@dataclass(frozen=True)
class GpuFacts:
    """GPUs of a server and their driver.

    gpus:       GPUs that the server uses itself; those of virtual machines have another kernel driver.
    flavour:    kernel modules that drive all of them; None if no driver does.
    branch_max: last branch that drives all of them; None if the newest does.
    origin:     `package`, `other`; None without a driver.
    nvswitches: number on the PCI bus.
    compiler:   package of the compiler of the running kernel; empty if unknown.
    pending_kernel: the kernel that boots next, if it is newer than the running one; empty otherwise.
    has_uvm:    whether the device files of nvidia-uvm exist, if that was checked.
    """

    gpus: tuple[Gpu, ...] = ()
    flavour: str | None = EITHER
    branch_max: int | None = None
    nvswitches: int = 0
    needs_fabric_manager: bool = False
    needs_nvlsm: bool = False
    secure_boot: bool = False
    loaded: str | None = None
    installed: str | None = None
    origin: str | None = None
    compiler: str = ""
    has_uvm: bool = True
    problem: str = ""
    reboot_reason: str = ""
    pending_kernel: str = ""
    next_boot_problem: str = ""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> GpuFacts:
        """Missing facts have their defaults, as on a server without GPUs."""
        if not facts:
            return cls()
        return cls(
            gpus=tuple(_gpu(gpu) for gpu in facts["gpus"] if gpu["bound_driver"] in OURS),
            flavour=facts["driver_flavour"],
            branch_max=facts["driver_branch_max"],
            nvswitches=len(facts["nvswitches"]),
            needs_fabric_manager=facts["fabric_manager_needed"] is True,
            needs_nvlsm=facts["nvlsm_needed"] is True,
            secure_boot=facts["secure_boot"] is True,
            loaded=facts["driver_version_loaded"],
            installed=facts["driver_version_installed"],
            origin=facts["driver_origin"],
            compiler=facts.get("kernel_compiler") or "",
            has_uvm=facts.get("uvm_available") is not False,
            problem=facts["driver_problem"],
            reboot_reason=facts["reboot_reason"],
            pending_kernel=facts.get("kernel_pending") or "",
            next_boot_problem=facts.get("next_boot_problem") or "",
        )

    @property
    def generations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(gpu.generation for gpu in self.gpus))

    @property
    def unidentified(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.generation == UNKNOWN)

    @property
    def can_be_used(self) -> bool:
        """Whether containers can get the GPUs."""
        return bool(self.gpus) and self.loaded is not None and not self.reboot_reason

    @property
    def kernels_own(self) -> str:
        """Module of the kernel's own driver that must be unloaded before the installed driver can be used; or empty."""
        found = re.match(r"(nouveau|nova_core) ", self.reboot_reason)
        return found[1] if found else ""


def _gpu(facts: Mapping[str, Any]) -> Gpu:
    return Gpu(facts["pci_address"], facts["generation"], facts["mig_capable"] is not False)
