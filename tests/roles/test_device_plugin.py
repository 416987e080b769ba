"""Where the device plugin and what finds the features of GPUs run."""

from __future__ import annotations

from typing import Any

import pytest
from role_values import RoleValues

TAINTS = ["nvidia.com/gpu", "node-role.kubernetes.io/control-plane"]


@pytest.mark.parametrize("taint", TAINTS)
def test_features_are_found_wherever_the_plugin_runs(taint: str) -> None:
    """The worker of node-feature-discovery has a list of its own, and by default it leaves these nodes out."""
    values = RoleValues("nvidia_device_plugin", {}, {})["__nvidia_device_plugin_values"]

    for tolerations in (values["tolerations"], values["nfd"]["worker"]["tolerations"]):
        assert {"key": taint, "operator": "Exists", "effect": "NoSchedule"} in tolerations


def test_a_taint_more_is_tolerated_beside_the_others() -> None:
    more = {"key": "pool", "operator": "Exists"}
    given = {"nvidia_device_plugin_values": {"tolerations": [more]}}
    values = RoleValues("nvidia_device_plugin", given, {})["__nvidia_device_plugin_chart"]["values"]

    for tolerations in (values["tolerations"], values["nfd"]["worker"]["tolerations"]):
        assert {*TAINTS, "pool"} <= {row["key"] for row in tolerations}


def beside(*releases: str) -> dict[str, Any]:
    """A cluster with a node-feature-discovery of each of these releases."""
    found = [{"kind": "Deployment", "name": "master", "release": release} for release in releases]
    return {"kubegpu_cluster": {"components": {"node_feature_discovery": found}}}


OURS = "nvidia-device-plugin/nvidia-device-plugin"
OF_OTHERS = [(), (OURS,), ("gpu-operator/gpu-operator",), (OURS, "network/network-operator"), ("",)]


@pytest.mark.parametrize("releases", OF_OTHERS)
def test_another_feature_discovery_is_neither_doubled_nor_cleared(releases: tuple[str, ...]) -> None:
    """All objects of its CRDs have an owner, as ours have. Our hook would take its labels off all nodes."""
    is_alone = set(releases) <= {OURS}
    chart = RoleValues("nvidia_device_plugin", {}, beside(*releases))["__nvidia_device_plugin_chart"]

    assert chart["values"]["nfd"]["enabled"] is is_alone
    assert chart["values"]["gfd"]["enabled"] is True
    assert (chart["crd_group"], len(chart["kinds"])) == (("nfd.k8s-sigs.io", 3) if is_alone else ("", 0))
    assert chart["hooks"] is is_alone


@pytest.mark.parametrize(
    ("releases", "cleans"), [((), True), (("gpu-operator/gpu-operator",), True), (("network/operator",), False)]
)
def test_the_operator_leaves_the_labels_of_another_feature_discovery(releases: tuple[str, ...], cleans: bool) -> None:
    """By its values where that was there first; by a removal without hooks where it came later."""
    chart = RoleValues("gpu_operator", {}, beside(*releases))["__gpu_operator_chart"]
    assert chart["values"]["node-feature-discovery"]["postDeleteCleanup"] is cleans
    assert chart["hooks"] is cleans
