"""gpu_facts on whole machines: each has to be told as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from gpu_trees import plant

MACHINES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "machines.yml").read_text())
UNTOLD = {"memory_bar_bytes": None, "bound_driver": None}


def expected_gpus(machine: dict[str, Any]) -> list[dict[str, Any]]:
    gpus = machine.get("gpus", {"count": 0, "each": {}})
    if "list" in gpus:
        return [UNTOLD | gpu for gpu in gpus["list"]]
    return [UNTOLD | gpus["each"]] * gpus.get("count", 1)


def addresses(machine: dict[str, Any]) -> list[str]:
    """PCI addresses of the display controllers by NVIDIA that are no virtual functions, in order."""
    listed = [
        address
        for function in machine.get("pci", [])
        if function["class"] in ("0x030000", "0x030200") and "vendor" not in function and "links" not in function
        for address in ([function["at"]] if isinstance(function["at"], str) else function["at"])
    ]
    return sorted(listed)


@pytest.mark.parametrize("name", MACHINES)
def test_machine_is_told_as_it_is(tmp_path: Path, name: str) -> None:
    machine = MACHINES[name]

    node = plant(tmp_path, machine).node()
    facts = node.facts()
    gpus = facts.pop("gpus")

    assert node.warnings == ()
    assert [gpu["pci_address"] for gpu in gpus] == addresses(machine)
    assert gpus == [
        {"pci_address": address} | gpu for address, gpu in zip(addresses(machine), expected_gpus(machine), strict=True)
    ]
    assert facts == {
        key: value for key, value in (MACHINES["none"]["facts"] | machine["facts"]).items() if key != "gpus"
    }


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_names_where_it_is_from(name: str) -> None:
    assert MACHINES[name]["source"]
