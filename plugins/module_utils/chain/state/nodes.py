# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Nodes with GPUs, and the GPUs that are available to pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ...kube.capacity import NVIDIA, gpus_of, is_gpu
from ...kube.gpu_labels import has_gpu_label
from ...kube.objects import Manifest, condition, labels_of
from ...kube.quantity import parse_quantity
from .agents import Agents

# Labels with which NVIDIA's GPU operator does not offer a node's GPUs to pods, for example for virtual machines.
_LEFT_ALONE = re.compile(
    r"nvidia\.com/gpu\.deploy\.operands=false|nvidia\.com/gpu\.workload\.config=vm-(passthrough|vgpu)"
)
Facts = Mapping[str, Mapping[str, Any]]


def gpu_nodes(
    nodes: Iterable[Manifest], facts: Facts, claimable_devices: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Manifest]:
    """By name. facts: results of gpu_facts by node. claimable_devices: GPUs that pods can claim, by node."""
    return {
        name: node
        for node in nodes
        if ((name := node["metadata"]["name"]) in claimable_devices or _has_gpus(node, facts.get(name, {})))
        and (not _has_label(node, _LEFT_ALONE) or _has_gpus_of_pods(node))
    }


def _has_gpus(node: Manifest, facts: Mapping[str, Any]) -> bool:
    capacity = (node.get("status") or {}).get("capacity") or {}
    return (
        any(is_gpu(resource) and str(amount) != "0" for resource, amount in capacity.items())
        or offers_gpus(node)
        or has_gpu_label(labels_of(node))
        or bool(facts.get("gpus"))
    )


def is_up(node: Manifest) -> bool:
    """Whether a node's kubelet reports; true without that condition."""
    return condition(node, "Ready").get("status", "True") == "True"


def offers_gpus(node: Manifest) -> bool:
    return any(gpus_of([node]).values())


def open_nodes(agents: Agents, nodes: Iterable[Manifest], proven: Mapping[str, str]) -> list[str]:
    """Names of the nodes whose GPUs pods can get without a request.

    proven: `visible` or `denied` by node; it counts more than what the device plugin shows.
    """
    shown = agents.nodes_with_variable()
    return [
        name
        for node in nodes
        if proven.get(name := node["metadata"]["name"], "visible" if name in shown and offers_gpus(node) else "")
        == "visible"
    ]


def _has_gpus_of_pods(node: Manifest) -> bool:
    """Number of GPUs, healthy or not. GPUs of virtual machines have other names, by their model."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    return any(
        resource.startswith((f"{NVIDIA}gpu", f"{NVIDIA}mig-")) and str(amount) != "0"
        for resource, amount in capacity.items()
    )


def _has_label(node: Manifest, pattern: re.Pattern[str]) -> bool:
    return any(pattern.fullmatch(f"{key}={value}") for key, value in labels_of(node).items())


def lost_gpus(node: Manifest) -> str:
    """Unhealthy GPUs of a node, by its device plugin; empty if none."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    allocatable = gpus_of([node])
    return ", ".join(
        f"{allocatable.get(resource, 0)} of {int(parse_quantity(str(amount)))} {resource} are allocatable"
        for resource, amount in capacity.items()
        if is_gpu(resource) and allocatable.get(resource, 0) < parse_quantity(str(amount))
    )
