# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Computes what an HPA wants, from its status."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..kube.objects import condition
from ..kube.quantity import parse_quantity


def wanted_replicas(hpa: Mapping[str, Any]) -> int:
    """Replicas that the HPA wants; if its maximum limits it, what its values require."""
    status = hpa.get("status") or {}
    desired = int(status.get("desiredReplicas") or 0)
    limited = condition(dict(hpa), "ScalingLimited")
    if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
        return max([desired, *_proposals(hpa)])
    return desired


def pods_value(hpa: Mapping[str, Any]) -> float | None:
    """The average of its first Pods metric; None without one, as for KEDA's HPAs."""
    return next((value for type_, _name, value in _averages(hpa) if type_ == "pods"), None)


def _proposals(hpa: Mapping[str, Any]) -> Iterator[int]:
    """Computed from the ratio of each average to its target, times the existing replicas."""
    replicas = int((hpa.get("status") or {}).get("currentReplicas") or 0)
    targets = {
        (type_, part["metric"]["name"]): parse_quantity(str(part["target"]["averageValue"]))
        for type_, part in _parts((hpa.get("spec") or {}).get("metrics"))
        if "averageValue" in part["target"]
    }
    for type_, name, value in _averages(hpa):
        if target := targets.get((type_, name)):
            yield math.ceil(float(value) / float(target) * replicas)


def _averages(hpa: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    for type_, part in _parts((hpa.get("status") or {}).get("currentMetrics")):
        if value := (part.get("current") or {}).get("averageValue"):
            yield type_, part["metric"]["name"], float(parse_quantity(str(value)))


def _parts(entries: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Status of metrics with a name. A metric without a value has an empty entry."""
    for entry in entries or ():
        for type_ in ("pods", "external", "object"):
            if type_ in entry:
                yield type_, entry[type_]
