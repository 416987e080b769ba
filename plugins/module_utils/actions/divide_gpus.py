# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Gives the autoscalers of one run maxima that all fit on the cluster's GPUs together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..autoscaling.gpu_shares import Claimant, divide
from ..autoscaling.spec import Autoscaler
from ..errors import HopError, enumeration
from ..hops import Hop
from ..kube.capacity import NVIDIA, gpus_per_pod
from ..kube.node_pools import nodes_are_added
from ..kube.objects import Manifest, pod_spec, pods_per_replica
from ..kube.resource_claims import class_of, devices_of, limits_of, whole_gpus
from ..reading.change_reader import ChangeReader

Shares = list[dict[str, Any]]


def divide_gpus(reader: ChangeReader, autoscalers: Sequence[Autoscaler]) -> tuple[list[Autoscaler], Shares, list[str]]:
    """The autoscalers with maxima that fit together; a share for each whose pods have limits of GPUs; and warnings.

    Raises: HopError if the nodes cannot be counted, or if the minima do not fit on them.
    """
    _check_nodes(reader)
    templates = {key: pod_spec(target.manifest or {}) for key, target in reader.targets.items()}
    sharers = {autoscaler.key: gpus for autoscaler in autoscalers if (gpus := gpus_per_pod(templates[autoscaler.key]))}
    claimants = [
        Claimant(
            str(autoscaler),
            templates[autoscaler.key],
            sharers[autoscaler.key],
            floor=max(1, autoscaler.min_replicas),
            most=autoscaler.max_replicas,
            pods=pods_per_replica(_manifest(reader, autoscaler)),
            priority=autoscaler.priority,
        )
        for autoscaler in autoscalers
        if autoscaler.key in sharers
    ]
    maxima = dict(zip(sharers, divide(claimants, reader.nodes, _claimable(reader)), strict=True))
    changed = [
        replace(autoscaler, max_replicas=maxima.get(autoscaler.key, autoscaler.max_replicas))
        for autoscaler in autoscalers
    ]
    shares = [
        {
            "namespace": autoscaler.namespace,
            "name": autoscaler.name,
            "priority": autoscaler.priority,
            "wanted": autoscaler.max_replicas,
            "max_replicas": maxima[autoscaler.key],
            "summary": f"{autoscaler}: at most {maxima[autoscaler.key]} of {autoscaler.max_replicas} replicas, "
            f"priority {autoscaler.priority}",
        }
        for autoscaler in autoscalers
        if autoscaler.key in maxima
    ]
    claiming = [
        str(autoscaler)
        for autoscaler in autoscalers
        if templates[autoscaler.key].get("resourceClaims")
        or limits_of(templates[autoscaler.key]).keys() - sharers.get(autoscaler.key, {}).keys()
    ]
    warnings = [
        f"the pods of {enumeration(claiming)} have resource claims, which divide_gpus does not count: other pods may "
        "get their GPUs"
    ]
    return changed, shares, warnings if claiming else []


def _claimable(reader: ChangeReader) -> dict[str, int]:
    """GPUs of each node that a DeviceClass offers to limits of whole GPUs."""
    if reader.known_classes is not None and class_of(f"{NVIDIA}gpu", reader.known_classes) is None:
        return {}
    return {node: whole_gpus(devices) for node, devices in devices_of(reader.resource_slices).items()}


def _check_nodes(reader: ChangeReader) -> None:
    if not reader.is_known("nodes"):
        raise HopError(
            Hop.SPEC,
            seen=f"divide_gpus needs the nodes of the cluster: {reader.gaps.unavailable['nodes']}",
            fix="grant this right (docs/rights.yml), or set divide_gpus to false",
        )
    if nodes_are_added(reader.nodes):
        raise HopError(
            Hop.SPEC,
            seen="divide_gpus needs a fixed number of GPUs, and nodes are added to this cluster on demand",
            fix="set divide_gpus to false, and limit the GPUs by the node pool or by a ResourceQuota",
        )


def _manifest(reader: ChangeReader, autoscaler: Autoscaler) -> Manifest:
    return reader.targets[autoscaler.key].manifest or {}
