"""The tables of PCI ids against those of others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.pci import GENERATIONS, NVIDIA, PciDevice
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.pci_products import PRODUCTS

CHIPS: dict[str, dict[str, str]] = yaml.safe_load((Path(__file__).parent / "pci_ids.yml").read_text())


def gpu(device: int) -> PciDevice:
    return PciDevice("0000:01:00.0", NVIDIA, device, 0x0302)


@pytest.mark.parametrize("generation", CHIPS)
def test_every_gpu_of_the_pci_id_database_has_the_generation_of_its_chip(generation: str) -> None:
    devices = [int(device, 16) for chip in CHIPS[generation].values() for device in chip.split()]

    assert {f"{device:04x}": gpu(device).generation for device in devices if gpu(device).generation != generation} == {}


def test_the_pci_id_database_was_read_to_the_end() -> None:
    assert sum(len(chip.split()) for chips in CHIPS.values() for chip in chips.values()) == 958


def test_generations_have_one_name_each() -> None:
    assert set(CHIPS) == set(GENERATIONS)


@pytest.mark.parametrize("device", PRODUCTS, ids=lambda device: f"{device:04x}")
def test_product_fits_its_chip(device: int) -> None:
    product = PRODUCTS[device]

    assert product.name
    assert product.kind in ("datacenter", "workstation", "geforce", None)
    assert f"{device:04x}" in " ".join(CHIPS[gpu(device).generation].values()).split()
    if product.mig:
        assert gpu(device).generation in ("ampere", "hopper", "blackwell")


@pytest.mark.parametrize(
    ("listed", "device"),
    [
        ("A100-SXM4 40 GB", 0x20B0),
        ("A100-SXM4 80 GB", 0x20B2),
        ("A100-PCIE 40 GB", 0x20F1),
        ("A100-PCIE 80 GB", 0x20B5),
        ("A30", 0x20B7),
        ("H100-SXM5 80 GB", 0x2330),
        ("H100-PCIE 80 GB", 0x2331),
        ("H100-SXM5 94 GB", 0x2339),
        ("H100-PCIE 94 GB", 0x2321),
        ("H100 on GH200", 0x2342),
        ("H20", 0x2329),
        ("H200-SXM5", 0x2335),
        ("H200 NVL", 0x233B),
        ("B200", 0x2901),
        ("GB200", 0x2941),
        ("B300", 0x3182),
        ("GB300", 0x31C2),
        ("RTX PRO 6000 Blackwell Server Edition", 0x2BB5),
        ("RTX PRO 6000 Blackwell Workstation Edition", 0x2BB1),
        ("RTX PRO 6000 Blackwell Max-Q Workstation Edition", 0x2BB4),
        ("RTX PRO 5000 Blackwell", 0x2BB3),
        ("RTX PRO 4500 Blackwell", 0x2C31),
    ],
)
def test_what_the_mig_user_guide_lists_is_capable(listed: str, device: int) -> None:
    assert gpu(device).mig_capable is True
