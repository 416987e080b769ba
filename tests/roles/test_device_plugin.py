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


@pytest.mark.parametrize(
    ("releases", "group"),
    [
        ([], "nfd.k8s-sigs.io"),
        (["nvidia-device-plugin/nvidia-device-plugin"], "nfd.k8s-sigs.io"),
        (["gpu-operator/gpu-operator"], ""),
        (["nvidia-device-plugin/nvidia-device-plugin", "network/network-operator"], ""),
    ],
)
def test_crds_that_another_feature_discovery_works_on_stay(releases: list[str], group: str) -> None:
    """All their objects have an owner, as ours have."""
    found = [{"kind": "Deployment", "name": "master", "release": release} for release in releases]
    cluster = {"components": {"node_feature_discovery": found}}

    assert (
        RoleValues("nvidia_device_plugin", {}, {"kubegpu_cluster": cluster})["__nvidia_device_plugin_chart"][
            "crd_group"
        ]
        == group
    )
