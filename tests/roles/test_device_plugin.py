"""Where the device plugin and what finds the features of GPUs run."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.known_components import plugin_container
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.visible_devices import depends_on_variable
from collection import ROOT
from programs import program
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


POOL = {"name": "dev", "nodes": {"pool": "dev"}}
SHARED = [
    {
        "nvidia_device_plugin_sharing": sharing,
        "nvidia_device_plugin_sharing_replicas": 4,
        "nvidia_device_plugin_pools": pools,
    }
    for sharing in ("none", "time-slicing", "mps")
    for pools in ([], [POOL], [{**POOL, "sharing": "time-slicing", "replicas": 2}])
]
STRATEGIES = {"cdi-cri": False, "envvar": True}
CONTEXTS: list[tuple[dict[str, Any], bool]] = [({}, False), ({"securityContext": {"capabilities": {"add": []}}}, True)]


def with_config_manager(daemon_set: dict[str, Any]) -> dict[str, Any]:
    """As the chart 0.19.0 of NVIDIA has it with configurations (templates/daemonset-device-plugin.yml).

    The sidecar is the first container. It and the init container have the image of the plugin and none of its
    variables. The chart of the lab has neither.
    """
    spec = daemon_set["spec"]["template"]["spec"]
    [plugin] = spec["containers"]
    same = {
        "image": plugin["image"],
        "command": ["config-manager"],
        "env": [{"name": "CONFIG_FILE_DST", "value": "/c"}],
    }
    spec["initContainers"] = [{"name": "nvidia-device-plugin-init", **same}]
    sidecar = {"name": "nvidia-device-plugin-sidecar", "securityContext": plugin.get("securityContext"), **same}
    spec["containers"] = [sidecar, plugin]
    return daemon_set


@pytest.mark.parametrize("given", SHARED, ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("context", "is_unprivileged"), CONTEXTS)
def test_what_the_chart_makes_is_read_as_what_it_is(
    given: dict[str, Any], strategy: str, context: dict[str, Any], is_unprivileged: bool
) -> None:
    options = {
        **given, "nvidia_device_plugin_device_list_strategy": strategy, "nvidia_device_plugin_values": context,
    }  # fmt: skip
    told = {"_common_places": {"nvidia_device_plugin": {"state": "present", "other_nfd": []}}}
    values = RoleValues("nvidia_device_plugin", options, told)["__nvidia_device_plugin_chart"]["values"]
    has_configurations = "config" in values
    # What the chart of the lab does not know: more than one configuration, and the discovery of features.
    known = {**values, "gfd": {"enabled": False}, "nfd": {"enabled": False}}
    if has_configurations:
        known["config"] = {"map": {"default": values["config"]["map"]["default"]}, "default": "default"}
    argv = [program("helm"), "template", "--values", "-", "x", ROOT / "lab" / "charts" / "nvidia-device-plugin"]
    done = subprocess.run(
        [*map(str, argv)],
        input=json.dumps(known),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    [made] = [found for found in yaml.safe_load_all(done.stdout) if found and found["kind"] == "DaemonSet"]
    assert has_configurations is bool(
        given["nvidia_device_plugin_pools"] or given["nvidia_device_plugin_sharing"] != "none"
    )

    for daemon_set in (made, with_config_manager(deepcopy(made))):
        container = plugin_container(daemon_set)
        assert container is not None
        assert container["name"] == "nvidia-device-plugin-ctr"
        assert depends_on_variable(daemon_set) is (STRATEGIES[strategy] or is_unprivileged)
