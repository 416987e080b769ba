# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Labels of nodes with NVIDIA GPUs, and what sets them. The only table of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# node-feature-discovery names a PCI device by vendor, class or both, in the order of its configuration.
_PCI = re.compile(r"feature\.node\.kubernetes\.io/pci-(\w+_)?10de(_\w+)?\.present")


@dataclass(frozen=True)
class GpuLabel:
    """A label of a node.

    values: empty if the value is the GPU's model.
    of_gpu: false if the label has only the vendor.
    """

    key: str
    values: tuple[str, ...] = ()
    of_gpu: bool = True

    def matches(self, labels: Mapping[str, str]) -> bool:
        return labels.get(self.key, "") in self.values if self.values else bool(labels.get(self.key))

    def expression(self) -> dict[str, Any]:
        """A requirement of a node affinity."""
        if not self.values:
            return {"key": self.key, "operator": "Exists"}
        return {"key": self.key, "operator": "In", "values": list(self.values)}


GPU_LABELS = (
    GpuLabel("nvidia.com/gpu.present", ("true",)),  # the GPU operator, gpu_node_labels
    GpuLabel("feature.node.kubernetes.io/pci-10de.present", ("true",)),  # node-feature-discovery of NVIDIA's charts
    GpuLabel("feature.node.kubernetes.io/pci-0300_10de.present", ("true",)),  # the default of node-feature-discovery
    GpuLabel("feature.node.kubernetes.io/pci-0302_10de.present", ("true",)),
    GpuLabel("feature.node.kubernetes.io/cpu-model.vendor_id", ("NVIDIA",), of_gpu=False),  # Tegra
    GpuLabel("karpenter.k8s.aws/instance-gpu-manufacturer", ("nvidia",)),
    GpuLabel("kubernetes.azure.com/accelerator", ("nvidia",)),  # AKS
    GpuLabel("k8s.amazonaws.com/accelerator"),  # EKS' cluster autoscaler
    GpuLabel("cloud.google.com/gke-accelerator"),  # GKE
    GpuLabel("accelerator", ("nvidia-gpu",)),  # set manually, for the manifests of many dcgm-exporter recipes
)


def has_gpu_label(labels: Mapping[str, str]) -> bool:
    """Whether a node has the label of a GPU."""
    return any(label.of_gpu and label.matches(labels) for label in GPU_LABELS) or any(
        value == "true" and _PCI.fullmatch(key) for key, value in labels.items()
    )
