"""Whatever a machine's files say, gpu_facts answers; and every GPU belongs to one generation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.pci import GENERATIONS
from gpu_trees import INFINIBAND, MELLANOX, NVIDIA, SECURE_BOOT, Tree
from hypothesis import given, settings
from hypothesis import strategies as st

HEX = st.integers(0, 0xFFFF).map(lambda number: f"0x{number:04x}")
CLASSES = st.sampled_from(["0x030000", "0x030200", "0x038000", "0x040300", "0x060400", "0x068000", INFINIBAND])
SPACE = st.text(" \t\n\r\0", max_size=4)
ADDRESSES = st.builds(
    "{:04x}:{:02x}:{:02x}.{}".format, st.integers(0, 0xFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7)
)
GARBAGE = st.one_of(st.binary(max_size=60), st.text(max_size=30).map(lambda text: text.encode(errors="replace")))
ATTRIBUTES = ("vendor", "device", "class", "resource", "vpd", "driver", "physfn")
FILES = (
    "proc/sys/kernel/osrelease",
    "proc/driver/nvidia/version",
    "var/lib/dpkg/status",
    "sys/module/nouveau",
    "sys/module/nova_core",
    "lib/modules/6.8.0-60-generic/updates/dkms/nvidia.ko",
    "lib/modules/6.8.0-61-generic/kernel/nvidia-580/nvidia.ko",
    "boot/vmlinuz-6.8.0-61-generic",
    SECURE_BOOT,
)


def surrounded(values: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    return st.tuples(SPACE, values, SPACE).map(lambda parts: "".join(parts).encode())


VENDORS = st.one_of(st.sampled_from([NVIDIA, MELLANOX]), HEX)
ORDERLY = st.fixed_dictionaries(
    {"vendor": surrounded(VENDORS), "device": surrounded(HEX), "class": surrounded(CLASSES)}
)
DISORDERLY = st.dictionaries(st.sampled_from(ATTRIBUTES), GARBAGE)
VERSIONS = st.lists(st.integers(0, 10**12), max_size=4).map(lambda parts: ".".join(map(str, parts)))
SENTENCES = st.one_of(
    GARBAGE,
    VERSIONS.map(lambda version: f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}\n".encode()),
    VERSIONS.map(lambda version: f"Package: libnvidia-ml1\nStatus: hold ok installed\nVersion: {version}-1\n".encode()),
    st.sampled_from([b"6.8.0-60-generic", b"6.8.0-61-generic", b"\x06\0\0\0\1"]),
)


def written(folder: str, devices: Mapping[str, Mapping[str, bytes]], files: Mapping[str, bytes] | None = None) -> Tree:
    tree = Tree(Path(folder))
    for address, attributes in devices.items():
        for name, content in attributes.items():
            tree.file(f"sys/bus/pci/devices/{address}/{name}", content)
    for name, content in (files or {}).items():
        tree.file(name, content)
    return tree


@settings(deadline=None)
@given(devices=st.dictionaries(ADDRESSES, ORDERLY, max_size=8))
def test_every_gpu_of_any_machine_has_exactly_one_generation(devices: dict[str, dict[str, bytes]]) -> None:
    displays = sorted(
        address
        for address, attributes in devices.items()
        if b"0x10de" in attributes["vendor"]
        and any(device_class in attributes["class"] for device_class in (b"0x030000", b"0x030200"))
    )
    with TemporaryDirectory() as folder:
        node = written(folder, devices).node()

    assert [gpu.address for gpu in node.gpus] == displays
    assert all(gpu.generation in GENERATIONS for gpu in node.gpus)
    assert all(gpu.flavour in ("open", "proprietary", "either") for gpu in node.gpus)
    assert node.warnings == ()


@settings(deadline=None)
@given(
    devices=st.dictionaries(ADDRESSES, st.one_of(ORDERLY, DISORDERLY), max_size=5),
    files=st.dictionaries(st.sampled_from(FILES), SENTENCES),
)
def test_no_machine_raises(devices: dict[str, dict[str, bytes]], files: dict[str, bytes]) -> None:
    with TemporaryDirectory() as folder:
        facts = written(folder, devices, files).facts()

    assert json.loads(json.dumps(facts)) == facts
    assert facts["reboot_required"] is bool(facts["reboot_reason"])
    assert facts["driver_flavour"] in (None, "open", "proprietary", "either")
