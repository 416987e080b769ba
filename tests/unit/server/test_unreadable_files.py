"""A file that cannot be read, or makes no sense, costs its own fact and a warning; the others stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpu_trees import CONTROLLER_3D, INFINIBAND, KERNEL, MELLANOX, SECURE_BOOT, Tree

GPU = "sys/bus/pci/devices/0000:31:00.0"
BRIDGE = "sys/bus/pci/devices/0000:05:00.0"
VERSION, STATUS, RELEASE = "proc/driver/nvidia/version", "var/lib/dpkg/status", "proc/sys/kernel/osrelease"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A machine without a fault."""
    tree = Tree(tmp_path)
    tree.device("0000:31:00.0", "0x2901", driver="nvidia", resource="0x1000 0x1fff 0x14220c")
    tree.device("0000:05:00.0", "0x1021", INFINIBAND, vendor=MELLANOX, vpd="SW_MNG")
    tree.kernel(headers=True)
    tree.packages({"libnvidia-ml1": "580.95.05-1", "nvidia-kernel-open-dkms": "580.95.05-1"})
    tree.loaded("580.95.05")
    tree.secure_boot(True)
    return tree


GARBAGE = [
    pytest.param(f"{GPU}/device", b"\xff\xfe\x00", id="bytes"),
    pytest.param(f"{GPU}/device", b"", id="empty"),
    pytest.param(f"{GPU}/device", b"0x20b2 0x10de", id="two numbers"),
    pytest.param(f"{GPU}/device", "0x\u0662\u0663\u0663\u0665".encode(), id="digits of another script"),
    pytest.param(f"{GPU}/device", b"0x" + b"2" * 5000, id="a very long number"),
    pytest.param(f"{GPU}/resource", b"none", id="resource"),
    pytest.param(f"{GPU}/resource", b"", id="empty resource"),
    pytest.param(VERSION, b"", id="empty version"),
    pytest.param(VERSION, b"NVRM version: unknown\n", id="no version"),
    pytest.param(VERSION, b"NVRM version: x Kernel Module  " + b"5" * 5000 + b".1\n", id="a very long version"),
    pytest.param(STATUS, b"", id="empty status"),
    pytest.param(STATUS, b"\x00\x01\x02" * 1000, id="status of bytes"),
    pytest.param(RELEASE, b"", id="empty release"),
    pytest.param(RELEASE, b"../../etc", id="release with a path"),
    pytest.param(SECURE_BOOT, b"", id="empty variable"),
    pytest.param(SECURE_BOOT, b"\x06\x00\x00\x00", id="variable without a value"),
    pytest.param(SECURE_BOOT, b"\x06\x00\x00\x00\x07", id="variable with another value"),
]
LOST = {
    f"{GPU}/device": ["driver_flavour"],
    f"{GPU}/resource": [],
    VERSION: ["driver_version_loaded", "driver_flavour_loaded"],
    STATUS: ["driver_version_installed", "driver_flavour_installed"],
    RELEASE: ["kernel", "kernel_headers_installed"],
    SECURE_BOOT: ["secure_boot"],
}
LOST_OF_GPU = {f"{GPU}/device": ["device_id"], f"{GPU}/resource": ["memory_bar_bytes"]}
# What follows from a lost fact may change with it.
FOLLOWS = {"driver_origin", "driver_problem", "reboot_reason", "gpus"}


def assert_lost(tree: Tree, path: str, before: dict[str, Any]) -> None:
    node = tree.node()
    facts = node.facts()

    assert [warning for warning in node.warnings if str(tree.root / path) in warning]
    assert {key: facts[key] for key in LOST[path]} == dict.fromkeys(LOST[path])
    assert all(facts["gpus"][0][key] is None for key in LOST_OF_GPU.get(path, []))
    kept = before.keys() - set(LOST[path]) - FOLLOWS - {"nvlsm_needed", "fabric_manager_needed"}
    assert {key: facts[key] for key in kept} == {key: before[key] for key in kept}


def test_a_machine_without_a_fault_gives_no_warning(tree: Tree) -> None:
    node = tree.node()

    assert node.warnings == ()
    assert [key for keys in LOST.values() for key in keys if node.facts()[key] is None] == []


@pytest.mark.parametrize(("path", "content"), GARBAGE)
def test_garbage_costs_its_fact_and_a_warning(tree: Tree, path: str, content: bytes) -> None:
    before = tree.facts()
    tree.file(path, content)

    assert_lost(tree, path, before)


@pytest.mark.parametrize("path", LOST)
def test_a_file_that_cannot_be_read_costs_its_fact_and_a_warning(tree: Tree, path: str) -> None:
    before = tree.facts()
    (tree.root / path).unlink()
    (tree.root / path).symlink_to(tree.root / path)  # a loop: nobody can open it, root neither

    assert_lost(tree, path, before)


@pytest.mark.parametrize("path", LOST)
def test_a_folder_in_place_of_a_file_costs_its_fact_and_a_warning(tree: Tree, path: str) -> None:
    before = tree.facts()
    (tree.root / path).unlink()
    (tree.root / path).mkdir()

    assert_lost(tree, path, before)


@pytest.mark.parametrize("path", [f"{GPU}/vendor", f"{GPU}/class"])
def test_a_function_that_does_not_say_what_it_is_is_left_out(tree: Tree, path: str) -> None:
    tree.file(path, "?")
    node = tree.node()

    assert node.facts()["gpus"] == []
    assert [warning for warning in node.warnings if path in warning]


def test_a_gpu_of_unknown_id_stays_a_gpu(tree: Tree) -> None:
    tree.file(f"{GPU}/device", "?")

    [gpu] = tree.facts()["gpus"]

    assert gpu == {
        "pci_address": "0000:31:00.0",
        "device_id": None,
        "generation": "unknown",
        "name": None,
        "product": None,
        "memory_bar_bytes": 4096,
        "mig_capable": None,
        "bound_driver": "nvidia",
    }


def test_bridges_that_cannot_be_asked_leave_it_open_whether_nvlsm_is_needed(tree: Tree) -> None:
    (tree.root / BRIDGE / "vpd").unlink()
    (tree.root / BRIDGE / "vpd").mkdir()
    node = tree.node()
    facts = node.facts()

    assert (facts["nvlsm_needed"], facts["fabric_manager_needed"]) == (None, None)
    assert [warning for warning in node.warnings if f"{BRIDGE}/vpd" in warning]


def test_one_bridge_that_answers_is_enough(tree: Tree) -> None:
    tree.device("0000:05:00.1", "0x1021", INFINIBAND, vendor=MELLANOX)
    (tree.root / "sys/bus/pci/devices/0000:05:00.1/vpd").mkdir()

    assert tree.facts()["nvlsm_needed"] is True


@pytest.mark.parametrize(
    "text", ["0x2335", "0x2335\n", " 0x2335 \r\n\t", "2335", "0X2335", "\n0x2335\0"], ids=["plain", "", "", "", "", ""]
)
def test_white_space_around_a_number_does_not_matter(tmp_path: Path, text: str) -> None:
    tree = Tree(tmp_path)
    tree.file(f"{GPU}/vendor", "\t0x10de \n")
    tree.file(f"{GPU}/class", f"{CONTROLLER_3D} ")
    tree.file(f"{GPU}/device", text)

    assert [gpu["device_id"] for gpu in tree.facts()["gpus"]] == ["2335"]


@pytest.mark.parametrize("folder", ["sys/bus/pci/devices", "lib/modules", "boot"])
def test_a_folder_that_cannot_be_listed_gives_a_warning(tmp_path: Path, folder: str) -> None:
    tree = Tree(tmp_path)
    tree.link(folder, Path(folder).name)

    assert [warning for warning in tree.node().warnings if str(tmp_path / folder) in warning]


def test_a_package_of_a_very_long_version_is_no_driver(tree: Tree) -> None:
    tree.packages({"libnvidia-ml1": "5" * 5000 + ".1", "libnvidia-compute-580": "580.95.05-1"})

    assert tree.facts()["driver_version_installed"] == "580.95.05"


def test_kernels_with_odd_names_are_no_obstacle(tree: Tree) -> None:
    for release in ("", "old", "6.8.0-60-generic.bak", "9" * 200):
        tree.file(f"lib/modules/{release}/updates/dkms/nvidia.ko")
    tree.file("lib/modules/README", "a file")
    node = tree.node()

    assert node.kernel == KERNEL
    assert node.facts()["reboot_reason"] == ""
