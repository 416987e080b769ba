# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an HPA wants, by its own status."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from ..autoscaling.quantity import parse_quantity
from ..chain.objects import condition


def wanted_replicas(hpa: Mapping[str, Any]) -> int:
    """What the HPA wants; where its maximum holds it back, what it would want by its own values."""
    status = hpa.get("status") or {}
    desired = int(status.get("desiredReplicas") or 0)
    limited = condition(dict(hpa), "ScalingLimited")
    if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
        return max([desired, *_proposals(hpa)])
    return desired


def pods_value(hpa: Mapping[str, Any]) -> float | None:
    """The average of its first metric of type Pods; None without one, as on an HPA that KEDA makes."""
    return next((value for type_, _name, value in _averages(hpa) if type_ == "pods"), None)


def _proposals(hpa: Mapping[str, Any]) -> Iterator[int]:
    """By the ratio of each average to its target, which counts for the replicas that there are."""
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
    """Of the metrics with a separate name. A metric without a value is an empty entry."""
    for entry in entries or ():
        for type_ in ("pods", "external", "object"):
            if type_ in entry:
                yield type_, entry[type_]
