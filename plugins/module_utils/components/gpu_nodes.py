# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Nodes of the GPU components, and the readiness that roles wait for.

Nodes that are down, and pools without nodes, do not block the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import enumeration
from ..kube.capacity import gpus_of
from ..kube.gpu_labels import GPU_LABELS
from ..kube.labels import is_installed_by
from ..kube.objects import Manifest, is_ready, name_of, owners, pod_spec


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


# Kinds whose pod templates runtime_class_users() checks, so that the pods that they create do not count.
_CONTROLLERS = ("DaemonSet", "Deployment", "ReplicaSet", "Rollout", "StatefulSet")


def runtime_class_users(objects: Sequence[Manifest], runtime_class: str, without: str = "") -> str:
    """Pods, and objects with a pod template, that need this RuntimeClass. without: an inventory that does not count."""
    return enumeration(
        [
            f"{found['kind']} {name_of(found)}"
            for found in objects
            if _runtime_class(found) == runtime_class
            and not any(kind in _CONTROLLERS for kind, _name in owners(found))
            and not (without and is_installed_by(found, without))
            and not found["metadata"].get("deletionTimestamp")
            and (found.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
    )


def _runtime_class(found: Manifest) -> str | None:
    template = found["spec"]["jobTemplate"] if found["kind"] == "CronJob" else found
    spec = found["spec"] if found["kind"] == "Pod" else pod_spec(template)
    return spec.get("runtimeClassName")
