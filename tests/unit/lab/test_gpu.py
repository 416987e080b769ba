"""The lab's GPUs, as the roles see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.machine import read_gpu_node

from lab.gpu.pci import plug_in
from lab.gpu.stubs import declared


def test_plugged_in_gpus_are_what_gpu_facts_finds(tmp_path: Path) -> None:
    plug_in(tmp_path / "sys/bus/pci/devices", gpus=3)
    gpus = read_gpu_node(tmp_path).facts()["gpus"]
    assert [(gpu["pci_address"], gpu["generation"]) for gpu in gpus] == [
        (f"0000:{bus}:00.0", "ada") for bus in ("10", "11", "12")
    ]


@pytest.mark.parametrize(("model", "generation", "can"), [("L4", "ada", False), ("H100", "hopper", True)])
def test_a_lab_says_by_its_model_whether_mig_is_possible(
    tmp_path: Path, model: str, generation: str, can: bool
) -> None:
    plug_in(tmp_path / "sys/bus/pci/devices", gpus=1, model=model)
    [gpu] = read_gpu_node(tmp_path).facts()["gpus"]
    assert (gpu["generation"], gpu["mig_capable"]) == (generation, can)


def test_stubs_take_declarations_and_no_comments() -> None:
    header = (
        "/* DECLDIR nvmlOld(void) */ nvmlReturn_t DECLDIR nvmlInit_v2(void);\nconst DECLDIR char* nvmlErrorString(int);"
    )
    assert declared(header) == ["nvmlInit_v2"]
