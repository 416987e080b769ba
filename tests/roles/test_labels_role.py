"""What the role that labels nodes hands to its plan."""

from __future__ import annotations

from typing import Any

import pytest
from role_values import RoleValues

NODE = {"metadata": {"name": "gpu1", "labels": {"tier": "1"}}}


@pytest.mark.parametrize("driver", [None, "nvidia", "nouveau", "NovaCore", "vfio-pci"])
def test_a_server_of_the_inventory_is_labelled_by_what_its_survey_found(driver: str | None) -> None:
    """A GPU with vfio-pci belongs to a virtual machine."""
    facts = {"gpu_facts": {"gpus": [{"bound_driver": driver}]}, "hostname": "GPU1"}
    told: dict[str, Any] = {"hostvars": {"a": {"ansible_facts": facts}}, "groups": {"kube_node": ["a"]}}
    told["__gpu_node_labels_nodes"] = {"resources": [NODE]}

    plan = RoleValues("gpu_node_labels", {"kubegpu_gpu_node_selector": {"tier": 1}}, told)["__gpu_node_labels_decided"]

    assert list(plan["add"]) == ([] if driver == "vfio-pci" else ["gpu1"])
    assert bool(plan["refused"]) is (driver == "vfio-pci")


def test_a_server_that_failed_after_its_survey_keeps_nothing_back() -> None:
    """Its facts are those of the first play. It did not join, and the others are labelled."""
    facts = {"gpu_facts": {"gpus": [{"bound_driver": None}]}}
    variables = {name: {"ansible_facts": {**facts, "hostname": name}} for name in ("gpu1", "gpu2")}
    told: dict[str, Any] = {"hostvars": variables, "groups": {"kube_node": [*variables]}}
    told["__gpu_node_labels_nodes"] = {"resources": [NODE]}

    plan = RoleValues("gpu_node_labels", {"_common_left_out": ["gpu2"]}, told)["__gpu_node_labels_decided"]
    assert (list(plan["add"]), plan["refused"]) == (["gpu1"], "")

    without = RoleValues("gpu_node_labels", {}, told)["__gpu_node_labels_decided"]
    assert "gpu2 has a GPU and is not a node of the cluster" in without["refused"]
