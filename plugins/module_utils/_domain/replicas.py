# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from statistics import fmean

from .findings import CUSTOM_METRIC, HopError


def desired_replicas(
    usage: Sequence[float], target: float, *, current: int, missing: int = 0, unready: int = 0, tolerance: float = 0.1
) -> int:
    """Replicas the HPA controller asks for from one Pods metric.

    usage:     one value per pod that runs and reports.
    target:    `averageValue` of the HPA, same unit, > 0.
    current:   replicas that the target's scale subresource reports.
    missing:   pods that run but have no value yet.
    unready:   pods that are pending; their values do not count.
    tolerance: half-width of the dead band around usage/target = 1, no unit.
    Returns:   whole number >= 0, before min/max and behavior policies.
    Raises:    HopError if `usage` is empty; the controller then leaves the count alone.
    Source:    kubernetes/kubernetes pkg/controller/podautoscaler/replica_calculator.go, calcPlainMetricReplicas
    """
    if not usage:
        raise HopError(CUSTOM_METRIC, seen="no running pod has a value", fix="run the verify playbook")
    ratio = fmean(usage) / target
    damping = unready if ratio > 1 else 0
    if not missing and not damping:
        return current if _within(ratio, tolerance) else ceil(ratio * len(usage))
    # The pods that say nothing are taken to say whatever speaks against the change; exactly on target there is none.
    assumed = [] if ratio == 1 else [target if ratio < 1 else 0.0] * missing
    filled = [*usage, *assumed, *[0.0] * damping]
    cautious = fmean(filled) / target
    if _within(cautious, tolerance) or (ratio - 1) * (cautious - 1) < 0:
        return current
    wanted = ceil(cautious * len(filled))
    low, high = (0, current) if cautious < 1 else (current, inf)
    return wanted if low <= wanted <= high else current


def _within(ratio: float, tolerance: float) -> bool:
    return 1 - tolerance <= ratio <= 1 + tolerance
