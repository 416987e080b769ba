"""What the device plugin's chart is given for pools of nodes, and which nodes a selector leaves."""

from __future__ import annotations

from role_values import RoleValues

SHARED = {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}


def test_the_chart_gets_a_configuration_of_each_pool() -> None:
    pools = [{"name": "shared", "nodes": {"pool": "training"}, "config": SHARED}]
    values = RoleValues("nvidia_device_plugin", {"nvidia_device_plugin_pools": pools}, {})[
        "__nvidia_device_plugin_values"
    ]
    assert values["config"]["default"] == "default"
    assert values["config"]["map"]["default"] == "version: v1"
    assert values["config"]["map"]["shared"].startswith("version: v1\nsharing:\n  timeSlicing:\n")
    assert "config" not in RoleValues("nvidia_device_plugin", {}, {})["__nvidia_device_plugin_values"]


def test_a_selector_is_in_each_term_and_in_what_is_waited_for() -> None:
    values = RoleValues("dcgm_exporter", {"kubegpu_gpu_node_selector": {"pool": "inference", "tier": 1}}, {})
    pool = [
        {"key": "pool", "operator": "In", "values": ["inference"]},
        {"key": "tier", "operator": "In", "values": ["1"]},
    ]
    terms = values["_common_gpu_terms"]
    assert len(terms) == len(RoleValues("dcgm_exporter", {}, {})["_common_gpu_terms"]) == 7
    assert [term["matchExpressions"][1:] for term in terms] == [pool] * 7
    assert values["_common_gpu_selectors"] == ["nvidia.com/gpu.present=true", "pool=inference", "tier=1"]
