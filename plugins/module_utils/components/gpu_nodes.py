# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Nodes of the GPU components, and the readiness that roles wait for.

Nodes that are down, and pools without nodes, do not block the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..kube.capacity import gpus_of
from ..kube.gpu_labels import GPU_LABELS
from ..kube.labels import RELEASE
from ..kube.objects import Manifest, is_ready, name_of


def label_values(labels: Mapping[str, Any]) -> dict[str, str]:
    """Labels as text, because YAML reads `1` and `true` as a number and a boolean."""
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in labels.items()}


def gpu_nodes(pool: Mapping[str, Any]) -> dict[str, Any]:
    """Nodes with a GPU that have all labels of `pool`.

    Returns: `labels` of the pool as text, `terms` for a label selector of the pool, `selectors` of the nodes to wait
    for, which gpu_node_labels or GPU feature discovery has labelled, and an `affinity` for pods. The affinity has one
    term per GPU label, because a new node has its cloud's label before the collection's.
    """
    labels = label_values(pool)
    terms = [f"{key}={value}" for key, value in labels.items()]
    of_pool = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    node_terms = [{"matchExpressions": [label.expression(), *of_pool]} for label in GPU_LABELS]
    return {
        "labels": labels,
        "terms": terms,
        "selectors": ["nvidia.com/gpu.present=true", *terms],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": node_terms}}
        },
    }


@dataclass(frozen=True)
class Offers:
    """GPUs that ready nodes offer. ready: these nodes. waiting: names of those that offer none. shown: each node's."""

    ready: tuple[Manifest, ...]
    waiting: tuple[str, ...]
    shown: str


def offers(nodes: Sequence[Manifest]) -> Offers:
    """A node offers GPUs as nvidia.com/gpu, nvidia.com/gpu.shared or nvidia.com/mig-*."""
    ready = [node for node in nodes if is_ready(node)]
    counts = {name_of(node): gpus_of([node]) for node in ready}
    rows = [f"{name} {counted.get('nvidia.com/gpu', 0)} nvidia.com/gpu" for name, counted in counts.items()]
    return Offers(
        ready=tuple(ready),
        waiting=tuple(name for name, counted in counts.items() if not any(counted.values())),
        shown=", ".join(rows) or "nothing, because no such node is ready",
    )


@dataclass(frozen=True)
class Rollout:
    """Pods of DaemonSets: number of ready and updated pods, and of ready nodes that should have one."""

    ready: int
    nodes: int
    is_complete: bool


def rollout(daemon_sets: Sequence[Manifest], nodes: Sequence[Manifest]) -> Rollout:
    """A DaemonSet whose controller has not observed its last change counts as having no pod."""
    statuses = [(daemon_set["metadata"]["generation"], daemon_set.get("status") or {}) for daemon_set in daemon_sets]
    # A new DaemonSet has a status without this field.
    seen = [status for generation, status in statuses if status.get("observedGeneration") == generation]
    ready = min(
        sum(status.get("numberReady", 0) for status in seen),
        sum(status.get("updatedNumberScheduled", 0) for status in seen),
    )
    wanted = sum(map(is_ready, nodes))
    return Rollout(ready=ready, nodes=wanted, is_complete=bool(seen) and ready >= wanted)


def runtime_class_users(daemon_sets: Sequence[Manifest], runtime_class: str, *, others_only: bool) -> list[str]:
    """DaemonSets with this RuntimeClass. others_only: without releases of this collection."""
    return [
        name_of(daemon_set)
        for daemon_set in daemon_sets
        if daemon_set["spec"]["template"]["spec"].get("runtimeClassName") == runtime_class
        and not (others_only and RELEASE in (daemon_set["metadata"].get("labels") or {}))
    ]
