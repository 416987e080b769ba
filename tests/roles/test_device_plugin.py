"""Where the device plugin and what finds the features of GPUs run."""

from __future__ import annotations

import pytest
from role_values import RoleValues

TAINTS = ["nvidia.com/gpu", "node-role.kubernetes.io/control-plane"]


@pytest.mark.parametrize("taint", TAINTS)
def test_features_are_found_wherever_the_plugin_runs(taint: str) -> None:
    """The worker of node-feature-discovery has a list of its own, and by default it leaves these nodes out."""
    values = RoleValues("nvidia_device_plugin", {}, {})["__nvidia_device_plugin_base_values"]

    for tolerations in (values["tolerations"], values["nfd"]["worker"]["tolerations"]):
        assert {"key": taint, "operator": "Exists", "effect": "NoSchedule"} in tolerations
