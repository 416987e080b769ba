"""Which nodes count as GPU nodes, and how a pool of them is selected."""

from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.gpu_nodes import gpu_nodes
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.gpu_labels import GPU_LABELS, has_gpu_label

TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("label", "value", "expected"),
    [
        ("nvidia.com/gpu.present", "true", True),
        ("nvidia.com/gpu.present", "false", False),
        ("feature.node.kubernetes.io/pci-0302_10de.present", "true", True),
        ("feature.node.kubernetes.io/pci-10de_0302.present", "true", True),
        ("feature.node.kubernetes.io/pci-1002.present", "true", False),
        ("cloud.google.com/gke-accelerator", "nvidia-h100-80gb", True),
        ("k8s.amazonaws.com/accelerator", "", False),
        ("accelerator", "nvidia-gpu", True),
        ("accelerator", "amd-gpu", False),
        ("feature.node.kubernetes.io/cpu-model.vendor_id", "NVIDIA", False),
    ],
)
def test_a_node_has_a_gpu_by_its_label(label: str, value: str, expected: bool) -> None:
    assert has_gpu_label({label: value, "kubernetes.io/os": "linux"}) is expected


def test_labels_of_a_pool_become_text_and_are_in_each_term() -> None:
    found = gpu_nodes({"pool": "inference", "tier": 1, "spot": False})
    pool = [
        {"key": "pool", "operator": "In", "values": ["inference"]},
        {"key": "tier", "operator": "In", "values": ["1"]},
        {"key": "spot", "operator": "In", "values": ["false"]},
    ]
    terms = found["affinity"]["nodeAffinity"][TERMS]["nodeSelectorTerms"]

    assert [term["matchExpressions"][1:] for term in terms] == [pool] * len(GPU_LABELS)
    assert found["selectors"] == ["nvidia.com/gpu.present=true", "pool=inference", "tier=1", "spot=false"]
    assert found["terms"] == found["selectors"][1:]
    assert found["labels"] == {"pool": "inference", "tier": "1", "spot": "false"}


@pytest.mark.parametrize("label", ["pci-10de", "pci-0300_10de", "pci-0302_10de"])
def test_a_gpu_is_found_by_any_feature_discovery(label: str) -> None:
    """By vendor, as NVIDIA's charts configure it, or by class and vendor, its own default."""
    terms = gpu_nodes({})["affinity"]["nodeAffinity"][TERMS]["nodeSelectorTerms"]
    expression = {"key": f"feature.node.kubernetes.io/{label}.present", "operator": "In", "values": ["true"]}
    assert {"matchExpressions": [expression]} in terms
