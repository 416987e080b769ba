"""What gpu_facts says of single matters: what PCI shows, what dpkg lists, what is built, loaded and missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpu_trees import BRIDGE, INFINIBAND, KERNEL, MELLANOX, SECURE_BOOT, VGA, Tree

T4, A100_SXM, L4, L40S, H100_SXM, B200 = "0x1eb8", "0x20b2", "0x27b8", "0x26b9", "0x2330", "0x2901"
GH200, V100, P100, RTX_5090, NVSWITCH_H100 = "0x2342", "0x1db1", "0x15f8", "0x2b85", "0x22a3"

DEBIAN = {"libnvidia-ml1": "580.95.05-1", "nvidia-kernel-open-dkms": "580.95.05-1"}
BUILT = f"lib/modules/{KERNEL}/updates/dkms/nvidia.ko"
NEWER = "6.8.0-61-generic"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("devices", "generations", "flavour", "branch"),
    [
        pytest.param([], [], None, None, id="none"),
        pytest.param([T4], ["turing"], "either", None, id="T4"),
        pytest.param([A100_SXM] * 8, ["ampere"] * 8, "either", None, id="A100"),
        pytest.param([L40S], ["ada"], "either", None, id="L40S"),
        pytest.param([H100_SXM], ["hopper"], "either", None, id="H100"),
        pytest.param([GH200], ["hopper"], "open", None, id="GH200"),
        pytest.param([B200], ["blackwell"], "open", None, id="B200"),
        pytest.param(["0x3300"], ["blackwell"], "open", None, id="newer than what is sold"),
        pytest.param(["0xffff"], ["rubin"], "open", None, id="newer than the table"),
        pytest.param([V100], ["volta"], "proprietary", 580, id="V100"),
        pytest.param([P100], ["pascal"], "proprietary", 580, id="P100"),
        pytest.param(["0x102d"], ["pre-maxwell"], "proprietary", 470, id="K80"),
        pytest.param([L4, V100], ["ada", "volta"], "proprietary", 580, id="two kinds, one flavour"),
        pytest.param([V100, B200], ["volta", "blackwell"], None, 580, id="two kinds, no flavour"),
        pytest.param([V100, "0x102d"], ["volta", "pre-maxwell"], "proprietary", 470, id="two old kinds"),
    ],
)
def test_generation_decides_the_kernel_modules(
    tree: Tree, devices: list[str], generations: list[str], flavour: str | None, branch: int | None
) -> None:
    for slot, device in enumerate(devices):
        tree.device(f"0000:{slot:02x}:00.0", device)

    facts = tree.facts()

    assert [gpu["generation"] for gpu in facts["gpus"]] == generations
    assert (facts["driver_flavour"], facts["driver_branch_max"]) == (flavour, branch)


def test_only_nvidia_display_controllers_are_gpus(tree: Tree) -> None:
    tree.device("0000:01:00.0", RTX_5090, VGA)
    tree.device("0000:01:00.1", "0x22e8", "0x040300")  # its sound card
    tree.device("0000:02:00.0", "0x164e", VGA, vendor="0x1002")

    assert [gpu["pci_address"] for gpu in tree.facts()["gpus"]] == ["0000:01:00.0"]


@pytest.mark.parametrize(
    ("gpu", "switch", "bridge", "fabric_manager", "nvlsm"),
    [
        pytest.param(L40S, None, None, False, False, id="L40S"),
        pytest.param(H100_SXM, NVSWITCH_H100, None, True, False, id="HGX H100"),
        pytest.param(H100_SXM, None, None, False, False, id="H100 in a virtual machine"),
        pytest.param(H100_SXM, None, "SMDL=SW_MNG", False, False, id="H100, whose adapters are not asked"),
        pytest.param(B200, None, "SMDL=SW_MNG", True, True, id="HGX B200, whose switches PCI does not show"),
        pytest.param(B200, None, "an adapter", False, False, id="B200 in a virtual machine"),
        pytest.param(B200, None, None, False, False, id="B200 alone"),
    ],
)
def test_switches_need_the_fabric_manager(
    tree: Tree, gpu: str, switch: str | None, bridge: str | None, fabric_manager: bool, nvlsm: bool
) -> None:
    tree.device("0000:19:00.0", gpu)
    if switch:
        tree.device("0000:05:00.0", switch, BRIDGE)
    if bridge:
        tree.device("0000:06:00.0", "0x1021", INFINIBAND, vendor=MELLANOX, vpd=bridge)

    facts = tree.facts()

    assert len(facts["nvswitches"]) == (1 if switch else 0)
    assert (facts["fabric_manager_needed"], facts["nvlsm_needed"]) == (fabric_manager, nvlsm)


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        pytest.param("0x0 0x0 0x0\n" * 7, None, id="no ranges"),
        pytest.param("0xa0000000 0xa0ffffff 0x40200\n0x380000000000 0x3807ffffffff 0x14220c", 32 << 30, id="L4"),
        pytest.param(
            "0xa0000000 0xa0ffffff 0x40200\n0x0 0x7ffffffff 0x2014220c", 16 << 20, id="no address for the large one"
        ),
        pytest.param("0xe000 0xe07f 0x40101", None, id="ports only"),
        pytest.param("0x0 0x0 0x0\n" * 6 + "0x100000000 0x1ffffffff 0x14220c", None, id="a range that is no BAR"),
    ],
)
def test_memory_window_is_the_largest_that_has_an_address(tree: Tree, resource: str, expected: int | None) -> None:
    tree.device("0000:31:00.0", L4, resource=resource)

    assert tree.facts()["gpus"][0]["memory_bar_bytes"] == expected


@pytest.mark.parametrize(
    ("device", "mig", "product"),
    [
        pytest.param(A100_SXM, True, "datacenter", id="A100"),
        pytest.param(L4, False, "datacenter", id="L4"),
        pytest.param("0x20b3", None, "datacenter", id="A100 that NVIDIA's lists leave out"),
        pytest.param("0x2bb1", True, "workstation", id="RTX PRO 6000"),
        pytest.param(RTX_5090, False, "geforce", id="RTX 5090"),
        pytest.param("0x2420", None, None, id="laptop"),
        pytest.param("0x1b06", False, None, id="older than MIG and not in the table"),
    ],
)
def test_product_says_whether_mig_splits_it(tree: Tree, device: str, mig: bool | None, product: str | None) -> None:
    tree.device("0000:31:00.0", device)

    [gpu] = tree.facts()["gpus"]

    assert (gpu["mig_capable"], gpu["product"]) == (mig, product)


@pytest.mark.parametrize(
    ("packages", "status", "version", "flavour"),
    [
        pytest.param(DEBIAN, "install ok installed", "580.95.05", "open", id="Debian"),
        pytest.param(DEBIAN, "hold ok installed", "580.95.05", "open", id="on hold"),
        pytest.param(DEBIAN, "install ok triggers-pending", "580.95.05", "open", id="triggers pending"),
        pytest.param(DEBIAN, "install ok unpacked", None, None, id="unpacked only"),
        pytest.param(DEBIAN, "deinstall ok config-files", None, None, id="removed"),
        pytest.param(
            {"libnvidia-compute-580": "580.95.05-0ubuntu0.24.04.2", "nvidia-dkms-580": "580.95.05-0ubuntu0.24.04.2"},
            "install ok installed",
            "580.95.05",
            "proprietary",
            id="Ubuntu",
        ),
        pytest.param(
            {"libnvidia-compute-580-server": "580.95.05-0ubuntu1", "nvidia-dkms-580-server-open": "580.95.05-0ubuntu1"},
            "install ok installed",
            "580.95.05",
            "open",
            id="Ubuntu's branch for servers",
        ),
        pytest.param(
            {"libnvidia-compute": "590.44.01-1ubuntu1", "nvidia-dkms-open": "590.44.01-1ubuntu1"},
            "install ok installed",
            "590.44.01",
            "open",
            id="no branch in the names",
        ),
        pytest.param(
            {"libnvidia-ml1": "1:535.247.01-1~deb12u1", "nvidia-open-kernel-dkms": "1:535.247.01-1~deb12u1"},
            "install ok installed",
            "535.247.01",
            "open",
            id="Debian's own, with an epoch",
        ),
        pytest.param(
            {"libnvidia-tesla-470-ml1": "470.256.02-1", "nvidia-tesla-470-kernel-dkms": "470.256.02-1"},
            "install ok installed",
            "470.256.02",
            "proprietary",
            id="Debian's branch for servers",
        ),
        pytest.param(
            {"libnvidia-compute-570": "570.86.15-1", "libnvidia-compute-580": "580.95.05-1"},
            "install ok installed",
            "580.95.05",
            None,
            id="two branches",
        ),
        pytest.param(
            DEBIAN | {"linux-modules-nvidia-580-6.8.0-60-generic": "6.8.0-60.63"},
            "install ok installed",
            "580.95.05",
            None,
            id="both flavours",
        ),
        pytest.param(
            {"libnvidia-container1": "1.18.0-1", "nvidia-fs-dkms": "2.26.6-1"},
            "install ok installed",
            None,
            None,
            id="other parts by NVIDIA",
        ),
    ],
)
def test_packages_say_what_is_installed(
    tree: Tree, packages: dict[str, str], status: str, version: str | None, flavour: str | None
) -> None:
    tree.packages(packages, status)

    facts = tree.facts()

    assert (facts["driver_version_installed"], facts["driver_flavour_installed"]) == (version, flavour)
    assert facts["driver_origin"] == ("package" if version else None)


@pytest.mark.parametrize(
    ("loaded", "packages", "expected"),
    [
        pytest.param(None, {}, (None, None, ""), id="nothing"),
        pytest.param(None, DEBIAN, (None, "580.95.05", ""), id="installed, not loaded yet"),
        pytest.param(("580.95.05", "open"), DEBIAN, ("580.95.05", "580.95.05", ""), id="in use"),
        pytest.param(
            ("535.247.01", "proprietary"),
            DEBIAN,
            ("535.247.01", "580.95.05", "driver 535.247.01 is loaded, but 580.95.05 is installed"),
            id="replaced under a loaded module",
        ),
        pytest.param(
            ("580.95.05", "proprietary"),
            DEBIAN,
            ("580.95.05", "580.95.05", "the proprietary kernel modules are loaded, but the open ones are installed"),
            id="flavour changed under a loaded module",
        ),
        pytest.param(("580.95.05", "open"), {}, ("580.95.05", None, ""), id="removed, still loaded"),
    ],
)
def test_loaded_against_installed_driver(
    tree: Tree,
    loaded: tuple[str, str] | None,
    packages: dict[str, str],
    expected: tuple[str | None, str | None, str],
) -> None:
    tree.device("0000:31:00.0", L4)
    tree.packages(packages)
    if loaded:
        tree.loaded(*loaded)

    facts = tree.facts()

    assert (facts["driver_version_loaded"], facts["driver_version_installed"], facts["reboot_reason"]) == expected
    assert facts["reboot_required"] is bool(expected[2])


def test_a_driver_without_gpus_asks_for_nothing(tree: Tree) -> None:
    tree.packages(DEBIAN)
    tree.loaded("535.247.01")

    facts = tree.facts()

    assert (facts["reboot_reason"], facts["driver_problem"]) == ("", "")


@pytest.mark.parametrize(
    ("bound", "loaded", "holds"),
    [
        pytest.param("nouveau", False, True, id="bound"),
        pytest.param(None, False, True, id="not bound yet"),
        pytest.param("nvidia", True, False, id="bound to NVIDIA's driver"),
        pytest.param("vfio-pci", False, False, id="kept for a virtual machine"),
    ],
)
def test_nouveau_holds_the_gpus_until_a_reboot(tree: Tree, bound: str | None, loaded: bool, holds: bool) -> None:
    tree.device("0000:31:00.0", L4, driver=bound)
    tree.packages(DEBIAN)
    tree.file("sys/module/nouveau/refcnt", "1")
    if loaded:
        tree.loaded("580.95.05")

    facts = tree.facts()

    assert facts["nouveau_loaded"]
    assert facts["reboot_reason"].startswith("nouveau is loaded") is holds


def test_a_gpu_that_nova_may_take_yet_waits_for_a_reboot(tree: Tree) -> None:
    tree.device("0000:31:00.0", L4)
    tree.packages(DEBIAN)
    tree.file("sys/module/nova_core/refcnt", "0")

    assert tree.facts()["reboot_reason"].startswith("nova_core is loaded and holds the GPUs")


@pytest.mark.parametrize("on", [None, True, False], ids=["BIOS", "on", "off"])
def test_secure_boot_is_what_the_firmware_says(tree: Tree, on: bool | None) -> None:
    if on is not None:
        tree.secure_boot(on)

    assert tree.facts()["secure_boot"] is on


@pytest.mark.parametrize("insecure", [0, 1])
def test_secure_boot_that_shim_does_not_enforce_is_off(tree: Tree, insecure: int) -> None:
    """`mokutil --disable-validation`; the kernel looks at it, too (efi/libstub/secureboot.c)."""
    tree.secure_boot(True)
    name = "sys/firmware/efi/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23"
    tree.file(name, b"\x06\0\0\0" + bytes([insecure]))

    assert tree.facts()["secure_boot"] is not bool(insecure)


@pytest.mark.parametrize(
    "path",
    [
        "updates/dkms/nvidia.ko",
        "updates/dkms/nvidia.ko.zst",
        "updates/dkms/nvidia-current.ko.xz",
        "updates/dkms/nvidia-current-open.ko",
        "kernel/nvidia-580/nvidia.ko",
        "kernel/nvidia-580-server-open/nvidia.ko",
        "kernel/drivers/video/nvidia.ko",
        "extra/nvidia.ko.gz",
    ],
)
def test_module_is_found_where_it_is_put(tree: Tree, path: str) -> None:
    tree.kernel()
    tree.file(f"lib/modules/{KERNEL}/{path}")

    assert [kernel.module for kernel in tree.node().kernels] == [f"{KERNEL}/{path}"]


@pytest.mark.parametrize(
    "path",
    [
        "updates/dkms/nvidia-uvm.ko",
        "updates/dkms/nvidia-current-uvm.ko",
        "updates/dkms/nvidia-fs.ko",
        "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.zst",
        "kernel/drivers/net/ethernet/nvidia/forcedeth.ko",
    ],
)
def test_a_neighbour_of_the_module_is_not_it(tree: Tree, path: str) -> None:
    tree.kernel()
    tree.file(f"lib/modules/{KERNEL}/{path}")

    assert [kernel.module for kernel in tree.node().kernels] == [None]


def installed_and_not_loaded(tree: Tree, **kernel: Any) -> None:
    tree.device("0000:31:00.0", L4)
    tree.packages(DEBIAN)
    tree.kernel(**kernel)


def test_a_module_for_a_newer_kernel_waits_for_a_reboot_into_it(tree: Tree) -> None:
    installed_and_not_loaded(tree)
    tree.kernel("6.8.0-9-generic", running=False)
    tree.file("lib/modules/6.8.0-9-generic/updates/dkms/nvidia.ko")
    for release in (NEWER, "6.8.0-101-generic"):
        tree.kernel(release, running=False)
        tree.file(f"lib/modules/{release}/updates/dkms/nvidia.ko")

    facts = tree.facts()

    assert facts["reboot_reason"] == (
        f"driver 580.95.05 has no module for the running kernel {KERNEL}, "
        "but one for the installed kernel 6.8.0-101-generic"
    )
    assert facts["driver_problem"] == ""


@pytest.mark.parametrize(
    ("release", "bootable"),
    [
        pytest.param("6.8.0-9-generic", True, id="an older kernel"),
        pytest.param(NEWER, False, id="a kernel that is gone from /boot"),
    ],
)
def test_a_reboot_does_not_help_without_a_newer_kernel(tree: Tree, release: str, bootable: bool) -> None:
    installed_and_not_loaded(tree)
    tree.kernel(release, running=False, bootable=bootable)
    tree.file(f"lib/modules/{release}/updates/dkms/nvidia.ko")

    facts = tree.facts()

    assert facts["reboot_reason"] == ""
    assert facts["driver_problem"].endswith(f"whose headers are missing: install linux-headers-{KERNEL}")


@pytest.mark.parametrize(
    ("module", "headers", "secure_boot", "problem"),
    [
        pytest.param(None, False, None, f"install linux-headers-{KERNEL}", id="headers missing"),
        pytest.param(None, True, None, "see `dkms status`", id="not built"),
        pytest.param("", True, None, "run `modprobe nvidia`", id="not loaded"),
        pytest.param("\x7fELF", True, True, "updates/dkms/nvidia.ko is not signed", id="Secure Boot, not signed"),
        pytest.param(
            "\x7fELF~Module signature appended~\n", True, True, "mokutil --list-enrolled", id="Secure Boot, signed"
        ),
        pytest.param("\x7fELF", True, False, "run `modprobe nvidia`", id="Secure Boot off, not signed"),
    ],
)
def test_why_an_installed_driver_is_not_loaded(
    tree: Tree, module: str | None, headers: bool, secure_boot: bool | None, problem: str
) -> None:
    installed_and_not_loaded(tree, headers=headers)
    if module is not None:
        tree.file(BUILT, module)
    if secure_boot is not None:
        tree.secure_boot(secure_boot)

    facts = tree.facts()

    assert problem in facts["driver_problem"]
    assert facts["kernel_headers_installed"] is headers
    assert facts["reboot_reason"] == ""


def test_a_packed_module_hides_whether_it_is_signed(tree: Tree) -> None:
    installed_and_not_loaded(tree)
    tree.secure_boot(True)
    tree.file(f"{BUILT}.zst", "(packed)")

    assert "mokutil --list-enrolled" in tree.facts()["driver_problem"]


def test_in_a_container_nothing_is_said_of_modules_that_the_host_has(tree: Tree) -> None:
    tree.device("0000:31:00.0", L4)
    tree.packages(DEBIAN)
    tree.file("proc/sys/kernel/osrelease", KERNEL)

    assert "no module" not in tree.facts()["driver_problem"]


@pytest.mark.parametrize("folder", ["usr/src/linux-headers-6.8.0-60-generic", "lib/modules/6.8.0-60-generic/build"])
def test_headers_are_there_if_the_makefile_is(tree: Tree, folder: str) -> None:
    tree.file("proc/sys/kernel/osrelease", KERNEL)
    tree.file(f"{folder}/Makefile")

    assert tree.facts()["kernel_headers_installed"] is True


# As kernels of Ubuntu 22.04 (5.15, 6.8 of its HWE stack), Debian 12 and another one write it.
VERSIONS = {
    "Linux version 5.15.0-119-generic (buildd@lcy02) (gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0, GNU ld 2.38)": None,
    "Linux version 6.8.0-101-generic (buildd@lcy02) (x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0, "
    "GNU ld (GNU Binutils for Ubuntu) 2.38) #101~22.04.1-Ubuntu SMP": "gcc-12",
    "Linux version 6.1.0-40-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0)": None,
    "Linux version 6.18.44 (builder@here) (gcc (GCC) 15.3.0, GNU ld (GNU Binutils) 2.46)": None,
}


@pytest.mark.parametrize(("version", "compiler"), VERSIONS.items())
def test_the_compiler_of_a_kernel_is_known_where_its_headers_do_not_bring_it(
    tree: Tree, version: str, compiler: str | None
) -> None:
    tree.file("proc/version", version)
    assert tree.facts()["kernel_compiler"] == compiler


def test_a_copy_is_not_mixed_with_the_machine_that_reads_it(tree: Tree, tmp_path: Path) -> None:
    """The link `build` is absolute: it has to be followed below the root."""
    tree.file("proc/sys/kernel/osrelease", KERNEL)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "Makefile").touch()
    tree.link(f"lib/modules/{KERNEL}/build", str(outside))

    assert tree.facts()["kernel_headers_installed"] is False


def test_what_the_firmware_says_needs_its_own_file(tree: Tree) -> None:
    tree.file(SECURE_BOOT.replace("SecureBoot", "SetupMode"), b"\x06\0\0\0\1")

    assert tree.facts()["secure_boot"] is None
