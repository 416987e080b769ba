# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Whether nodes are, or may be, added on demand."""

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


def have_provider_ids(nodes: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a cloud or Cluster API may have created a node: cluster autoscalers find their nodes by spec.providerID.

    k3s and others set the field on bare servers as well, with their name as the scheme.
    """
    own = ("k3s://", "rke2://", "k0s://", "kind://", "minikube://")
    found = ((node.get("spec") or {}).get("providerID") or "" for node in nodes)
    return any(provider and not provider.startswith(own) for provider in found)
