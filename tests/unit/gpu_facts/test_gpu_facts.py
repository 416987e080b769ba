"""gpu_facts on small copies of machines: what PCI shows, what dpkg lists, what the kernel says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.gpu_node import read_gpu_node

VGA, CONTROLLER_3D, BRIDGE = "0x030000", "0x030200", "0x068000"
T4, A100_SXM, L4, L40S, H100_SXM, B200 = "0x1eb8", "0x20b2", "0x27b8", "0x26b9", "0x2330", "0x2901"
GH200, V100, P100, RTX_5090, NVSWITCH_A100, NVSWITCH_H100 = "0x2342", "0x1db1", "0x15f8", "0x2b85", "0x1af1", "0x22a3"

OPEN_MODULE = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
PROPRIETARY_MODULE = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.247.01  Wed Mar 19 17:31:10 UTC 2025
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
DEBIAN_STATUS = """\
Package: libc6
Status: install ok installed
Version: 2.36-9+deb12u10

Package: libnvidia-ml1
Status: install ok installed
Priority: optional
Architecture: amd64
Version: 580.95.05-1
Description: NVIDIA Management Library

"""


class Machine:
    """A copy of the parts of a machine that the module reads."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def device(self, address: str, device: str, pci_class: str = CONTROLLER_3D, vendor: str = "0x10de") -> None:
        for name, text in {"vendor": vendor, "device": device, "class": pci_class}.items():
            self.file(f"sys/bus/pci/devices/{address}/{name}", f"{text}\n")

    def file(self, path: str, content: str | bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def facts(self) -> dict[str, Any]:
        return read_gpu_node(self.root).facts()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("devices", "generations", "flavour"),
    [
        pytest.param([], [], None, id="none"),
        pytest.param([T4], ["turing"], "either", id="T4"),
        pytest.param([A100_SXM] * 8, ["ampere"] * 8, "either", id="A100"),
        pytest.param([L40S], ["ada"], "either", id="L40S"),
        pytest.param([H100_SXM], ["hopper"], "either", id="H100"),
        pytest.param([GH200], ["hopper"], "open", id="GH200"),
        pytest.param([B200], ["blackwell"], "open", id="B200"),
        pytest.param(["0x3300"], ["blackwell"], "open", id="newer than the table"),
        pytest.param([V100], ["volta"], "proprietary", id="V100"),
        pytest.param([P100], ["pascal"], "proprietary", id="P100"),
        pytest.param(["0x102d"], ["pre-maxwell"], "proprietary", id="K80"),
        pytest.param([L4, V100], ["ada", "volta"], "proprietary", id="two kinds, one flavour"),
        pytest.param([V100, B200], ["volta", "blackwell"], None, id="two kinds, no flavour"),
    ],
)
def test_generation_decides_the_kernel_modules(
    machine: Machine, devices: list[str], generations: list[str], flavour: str | None
) -> None:
    for slot, device in enumerate(devices):
        machine.device(f"0000:{slot:02x}:00.0", device)

    facts = machine.facts()

    assert [gpu["generation"] for gpu in facts["gpus"]] == generations
    assert facts["driver_flavour"] == flavour


def test_only_nvidia_display_controllers_are_gpus(machine: Machine) -> None:
    machine.device("0000:01:00.0", RTX_5090, VGA)
    machine.device("0000:01:00.1", "0x22e8", "0x040300")  # its sound card
    machine.device("0000:02:00.0", "0x164e", VGA, vendor="0x1002")

    assert machine.facts()["gpus"] == [{"pci_address": "0000:01:00.0", "device_id": "2b85", "generation": "blackwell"}]


@pytest.mark.parametrize(
    ("gpu", "switch", "fabric_manager", "nvlsm"),
    [
        pytest.param(L40S, None, False, False, id="L40S"),
        pytest.param(A100_SXM, NVSWITCH_A100, True, False, id="HGX A100"),
        pytest.param(H100_SXM, NVSWITCH_H100, True, False, id="HGX H100"),
        pytest.param(H100_SXM, None, False, False, id="H100 in a virtual machine"),
        pytest.param(B200, None, True, True, id="HGX B200, whose switches PCI does not show"),
    ],
)
def test_switches_need_the_fabric_manager(
    machine: Machine, gpu: str, switch: str | None, fabric_manager: bool, nvlsm: bool
) -> None:
    machine.device("0000:19:00.0", gpu)
    if switch:
        machine.device("0000:05:00.0", switch, BRIDGE)

    facts = machine.facts()

    assert len(facts["nvswitches"]) == (1 if switch else 0)
    assert (facts["fabric_manager_needed"], facts["nvlsm_needed"]) == (fabric_manager, nvlsm)


@pytest.mark.parametrize(
    ("loaded", "status", "expected"),
    [
        pytest.param(None, None, (None, None, ""), id="nothing"),
        pytest.param(None, DEBIAN_STATUS, (None, "580.95.05", ""), id="installed, not loaded yet"),
        pytest.param(OPEN_MODULE, DEBIAN_STATUS, ("580.95.05", "580.95.05", ""), id="in use"),
        pytest.param(
            PROPRIETARY_MODULE,
            DEBIAN_STATUS,
            ("535.247.01", "580.95.05", "driver 535.247.01 is loaded, but 580.95.05 is installed"),
            id="replaced under a loaded module",
        ),
        pytest.param(
            OPEN_MODULE,
            DEBIAN_STATUS.replace("Package: libnvidia-ml1", "Package: libnvidia-compute-580").replace(
                "-1\n", "-0ubuntu1\n"
            ),
            ("580.95.05", "580.95.05", ""),
            id="Ubuntu",
        ),
        pytest.param(
            OPEN_MODULE,
            DEBIAN_STATUS.replace(
                "Status: install ok installed\nPriority", "Status: deinstall ok config-files\nPriority"
            ),
            ("580.95.05", None, ""),
            id="removed, still loaded",
        ),
    ],
)
def test_loaded_against_installed_driver(
    machine: Machine, loaded: str | None, status: str | None, expected: tuple[str | None, str | None, str]
) -> None:
    machine.device("0000:31:00.0", L4)
    if loaded:
        machine.file("proc/driver/nvidia/version", loaded)
    if status:
        machine.file("var/lib/dpkg/status", status)

    facts = machine.facts()

    assert (facts["driver_version_loaded"], facts["driver_version_installed"], facts["reboot_reason"]) == expected
    assert facts["reboot_required"] is bool(expected[2])


def test_nouveau_holds_the_gpus_until_a_reboot(machine: Machine) -> None:
    machine.device("0000:31:00.0", L4)
    machine.file("var/lib/dpkg/status", DEBIAN_STATUS)
    machine.file("sys/module/nouveau/refcnt", "1")

    facts = machine.facts()

    assert facts["nouveau_loaded"]
    assert facts["reboot_reason"].startswith("nouveau is loaded")


@pytest.mark.parametrize(
    ("variable", "expected"),
    [(None, None), (b"\x06\x00\x00\x00\x01", True), (b"\x06\x00\x00\x00\x00", False)],
    ids=["BIOS", "on", "off"],
)
def test_secure_boot_is_what_the_firmware_says(machine: Machine, variable: bytes | None, expected: bool | None) -> None:
    if variable:
        machine.file("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", variable)

    assert machine.facts()["secure_boot"] is expected
