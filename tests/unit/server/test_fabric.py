"""The state of the NVLink fabric: `nvidia-smi -q` has the handshake's state, and the fabric manager's answer."""

from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.server.fabric import COMPLETED, fabric_states


def described(state: str, status: str) -> str:
    return f"""
GPU 00000000:10:00.0
    Performance State                     : P0
    Fabric
        State                             : {state}
        Status                            : {status}
        CliqueId                          : 0
    PCI
        State                             : other
"""


@pytest.mark.parametrize(
    ("state", "status", "reported"),
    [
        ("Completed", "Success", COMPLETED),
        ("Completed", "N/A", COMPLETED),
        ("Completed", "Insufficient Resources", "Completed (Insufficient Resources)"),
        ("In Progress", "N/A", "In Progress"),
        ("Not Started", "N/A", "Not Started"),
    ],
)
def test_a_gpu_has_joined_only_if_the_fabric_manager_succeeded(state: str, status: str, reported: str) -> None:
    assert fabric_states(described(state, status)) == {"00000000:10:00.0": reported}


@pytest.mark.parametrize("state", ["N/A", "Not supported", "Unknown Error", ""])
def test_a_gpu_without_a_fabric_has_no_state(state: str) -> None:
    assert fabric_states(described(state, "N/A")) == {}


def test_a_state_without_a_status_counts() -> None:
    text = described("Completed", "").replace("        Status                            : \n", "")
    assert fabric_states(text) == {"00000000:10:00.0": COMPLETED}
