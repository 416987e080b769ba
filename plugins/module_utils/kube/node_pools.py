# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Whether a cloud adds nodes on demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def nodes_are_added(nodes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether nodes are added on demand, by the labels of Karpenter and of GKE, EKS and AKS node groups."""
    marks = (
        "karpenter.sh/",
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "kubernetes.azure.com/agentpool",
    )
    return any(label.startswith(marks) for node in nodes for label in node["metadata"].get("labels") or {})
