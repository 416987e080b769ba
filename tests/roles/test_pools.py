"""What the device plugin's chart is given for pools of nodes, and which nodes a selector leaves."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from role_values import ROLES, RoleValues

SHARED = {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}


def test_the_chart_gets_a_configuration_of_each_pool() -> None:
    pools = [{"name": "shared", "nodes": {"pool": "training"}, "config": SHARED}]
    values = RoleValues("nvidia_device_plugin", {"nvidia_device_plugin_pools": pools}, {})[
        "__nvidia_device_plugin_values"
    ]
    assert values["config"]["default"] == "default"
    assert values["config"]["map"]["default"] == "version: v1\n"
    assert values["config"]["map"]["shared"].startswith("version: v1\nsharing:\n  timeSlicing:\n")
    assert "config" not in RoleValues("nvidia_device_plugin", {}, {})["__nvidia_device_plugin_values"]


@pytest.mark.parametrize(("strategy", "key"), [("time-slicing", "timeSlicing"), ("mps", "mps")])
def test_gpus_are_shared_by_a_word(strategy: str, key: str) -> None:
    told = {"nvidia_device_plugin_sharing": strategy, "nvidia_device_plugin_sharing_replicas": 8}
    config = RoleValues("nvidia_device_plugin", told, {})["__nvidia_device_plugin_values"]["config"]
    assert config["default"] == "default"
    assert yaml.safe_load(config["map"]["default"]) == {
        "version": "v1",
        "sharing": {key: {"resources": [{"name": "nvidia.com/gpu", "replicas": 8}]}},
    }


def test_a_pool_shares_and_has_flags_beside() -> None:
    pool = {"name": "dev", "nodes": {"pool": "dev"}, "sharing": "time-slicing", "replicas": 4}
    pool["config"] = {"flags": {"migStrategy": "single"}}
    configs = RoleValues("nvidia_device_plugin", {"nvidia_device_plugin_pools": [pool]}, {})[
        "__nvidia_device_plugin_configs"
    ]
    assert yaml.safe_load(configs["dev"]) == {"version": "v1", **SHARED, "flags": {"migStrategy": "single"}}


POOL = {"name": "dev", "nodes": {"pool": "dev"}}


@pytest.mark.parametrize(
    ("told", "shared"),
    [
        ({}, False),
        ({"nvidia_device_plugin_sharing": "mps"}, True),
        ({"nvidia_device_plugin_pools": [{**POOL, "sharing": "time-slicing", "replicas": 2}]}, True),
        ({"nvidia_device_plugin_pools": [{**POOL, "config": SHARED}]}, True),
        ({"nvidia_device_plugin_pools": [{**POOL, "config": {"flags": {"migStrategy": "single"}}}]}, False),
        ({"nvidia_device_plugin_sharing": "mps", "dcgm_exporter_shared_gpus": False}, False),
        ({"dcgm_exporter_shared_gpus": True}, True),
    ],
)
def test_the_exporter_tells_pods_on_one_gpu_apart_where_they_share(told: dict[str, Any], shared: bool) -> None:
    monitor = {"_common_prometheus": {"monitor_labels": {}}}
    values = RoleValues("dcgm_exporter", told, monitor)["__dcgm_exporter_chart"]["values"]
    names = [entry["name"] for entry in values["extraEnv"]]
    assert ("KUBERNETES_VIRTUAL_GPUS" in names) is shared
    assert (values.get("hostPID"), values.get("kubernetes")) == (
        (True, {"enablePodUID": True}) if shared else (None,) * 2
    )
    assert "DCGM_EXPORTER_INTERVAL" in names


def test_a_pool_of_numbers_and_truths_finds_its_nodes() -> None:
    """Labels are text. Without a node the pool's configuration was nobody's, and nothing said so."""
    labels = {"a": {"shared": "true", "tier": "1"}, "b": {"shared": "false", "tier": "1"}}
    nodes = [{"metadata": {"name": name, "labels": row}} for name, row in labels.items()]
    pools = [{"name": "dev", "nodes": {"shared": True, "tier": 1}}]
    told = {"__nvidia_device_plugin_pool_nodes": {"resources": nodes}, "__nvidia_device_plugin_state": "present"}
    values = RoleValues("nvidia_device_plugin", {"nvidia_device_plugin_pools": pools}, told)

    assert values["__nvidia_device_plugin_wanted"] == {"a": "dev"}
    tasks = yaml.safe_load((ROLES / "nvidia_device_plugin/tasks/gitops.yml").read_text())
    (said,) = (task["ansible.builtin.debug"]["msg"] for task in tasks if "ansible.builtin.debug" in task)
    assert "--selector shared=true,tier=1 nvidia.com/" in values.text(said)


def test_replicas_of_a_pool_may_be_a_text() -> None:
    """As a variable of the command line is. The plugin takes none."""
    pool = {"name": "dev", "nodes": {"pool": "dev"}, "sharing": "time-slicing", "replicas": "4"}
    configs = RoleValues("nvidia_device_plugin", {"nvidia_device_plugin_pools": [pool]}, {})[
        "__nvidia_device_plugin_configs"
    ]
    assert yaml.safe_load(configs["dev"]) == {"version": "v1", **SHARED}


def test_a_selector_of_numbers_finds_its_nodes() -> None:
    """Labels are text: else all of ours would lose the label that plugin and exporter go by."""
    nodes = [{"metadata": {"name": name, "labels": {"tier": tier}}} for name, tier in (("a", "1"), ("b", "2"))]
    told = {"__gpu_node_labels_nodes": {"resources": nodes}}
    assert RoleValues("gpu_node_labels", {"kubegpu_gpu_node_selector": {"tier": 1}}, told)[
        "__gpu_node_labels_pool"
    ] == ["a"]
