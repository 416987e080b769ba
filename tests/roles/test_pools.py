"""What the device plugin's chart is given for pools of nodes, and which nodes a selector leaves."""

from __future__ import annotations

from typing import Any

import pytest
from role_values import RoleValues

SHARED = {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}


def test_the_chart_gets_a_configuration_of_each_pool() -> None:
    pools = [{"name": "shared", "nodes": {"pool": "training"}, "config": SHARED}]
    options = {"nvidia_device_plugin_pools": pools}
    values = RoleValues("nvidia_device_plugin", options, {})["__nvidia_device_plugin_chart"]["values"]
    assert values["config"]["default"] == "default"
    assert values["config"]["map"]["default"] == "version: v1\n"
    assert values["config"]["map"]["shared"].startswith("version: v1\nsharing:\n  timeSlicing:\n")
    assert "config" not in RoleValues("nvidia_device_plugin", {}, {})["__nvidia_device_plugin_chart"]["values"]


POOL = {"name": "dev", "nodes": {"pool": "dev"}}


@pytest.mark.parametrize(
    ("told", "shared"),
    [
        ({}, False),
        ({"nvidia_device_plugin_sharing": "mps"}, True),
        ({"nvidia_device_plugin_pools": [{**POOL, "sharing": "time-slicing", "replicas": 2}]}, True),
        ({"nvidia_device_plugin_sharing": "mps", "dcgm_exporter_shared_gpus": False}, False),
        ({"dcgm_exporter_shared_gpus": True}, True),
    ],
)
def test_the_exporter_tells_pods_on_one_gpu_apart_where_they_share(told: dict[str, Any], shared: bool) -> None:
    monitor = {"dcgm_exporter_monitor_labels": {}}
    values = RoleValues("dcgm_exporter", told, monitor)["__dcgm_exporter_chart"]["values"]
    names = [entry["name"] for entry in values["extraEnv"]]
    assert ("KUBERNETES_VIRTUAL_GPUS" in names) is shared
    assert (values.get("hostPID"), values.get("kubernetes")) == ((shared, {"enablePodUID": shared}))
    assert "DCGM_EXPORTER_INTERVAL" in names
