"""GPUs of nodes, and who uses them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.proof.nodes import GpuServer
from gpu_fleet import node, pod, read, server


def test_free_are_those_that_no_living_pod_has() -> None:
    (found,) = read(node(gpus=8), pods=[pod("a", 2), pod("b", 1, phase="Succeeded"), pod("c", 4, on="gpu2")])
    assert (found.free, found.users, found.asked) == (6, ("ml/a",), 6)


def test_nodes_without_gpus_are_none() -> None:
    assert read(node(gpus=0)) == []


def test_a_node_whose_gpus_are_not_offered_is_one_by_its_server() -> None:
    (found,) = read(node(gpus=0), servers=[server()])
    assert (found.allocatable, found.provable) == (0, 0)


@pytest.mark.parametrize(
    ("resource", "labels", "servers"),
    [
        ("nvidia.com/mig-1g.10gb", {}, []),
        ("nvidia.com/gpu.shared", {}, []),
        ("nvidia.com/gpu", {"nvidia.com/gpu.replicas": "4"}, []),
        ("nvidia.com/gpu", {"cloud.google.com/gke-max-shared-clients-per-gpu": "4"}, []),
        ("nvidia.com/gpu", {}, [server(gpus=2)]),
    ],
)
def test_of_shared_devices_one_is_proven(resource: str, labels: dict[str, str], servers: list[GpuServer]) -> None:
    (found,) = read(node(gpus=8, resource=resource, labels=labels), servers=servers)
    assert (found.is_shared, found.resource, found.asked, found.provable) == (True, resource, 1, 1)


def facts(**more: Any) -> dict[str, Any]:
    gpus = [{"bound_driver": "nvidia"}, {"bound_driver": "nvidia"}, {"bound_driver": "vfio-pci"}]
    return {"gpus": gpus, "driver_version_loaded": "580.178.04", **more}


def test_a_server_by_its_facts() -> None:
    found = GpuServer.of({"node": "gpu1", "facts": facts(fabric={"0000:1b:00.0": "In Progress"})})
    assert (found.wanted, found.driver, found.unfinished) == (2, "580.178.04", {"0000:1b:00.0": "In Progress"})


def test_an_expected_number_of_gpus() -> None:
    assert GpuServer.of({"node": "gpu1", "facts": facts(expected_gpus=8)}).wanted == 8
