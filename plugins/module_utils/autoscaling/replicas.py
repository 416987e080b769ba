# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Computes the HPA controller's proposals, before min/max and behavior policies.

Values are as in Prometheus, targets as in the HPA. The controller converts both to whole thousandths
and divides doubles. This matters near the edge of the tolerance and near whole numbers, so it is done here, too.
Source: kubernetes/kubernetes v1.36.3, pkg/controller/podautoscaler/replica_calculator.go and horizontal.go
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil

from ..errors import HopError
from ..hops import Hop


@dataclass(frozen=True)
class Tolerance:
    """Half-widths of the dead band around usage/target = 1, no unit, whole thousandths."""

    up: float = 0.1
    down: float = 0.1

    @property
    def band(self) -> tuple[float, float]:
        """The lowest and the highest ratio within the band."""
        return 1 - _double(self.down), 1 + _double(self.up)

    def covers(self, ratio: float) -> bool:
        return 1 - _double(self.down) <= ratio <= 1 + _double(self.up)


DEFAULT_TOLERANCE = Tolerance()


def desired_replicas(
    usage: Sequence[float],
    target: float,
    *,
    current: int,
    missing: int = 0,
    unready: int = 0,
    tolerance: Tolerance = DEFAULT_TOLERANCE,
) -> int:
    """Replicas for one Pods metric.

    usage:   one value per pod that has one, >= 0; ready or not, but not pending, failed or terminating.
    target:  `averageValue` of the HPA, same unit, > 0.
    current: `spec.replicas` of the target's scale subresource, > 0.
    missing: pods without a value that are neither pending, failed nor terminating.
    unready: pods that are pending; their values do not count.
    Returns: whole number >= 0.
    Raises:  HopError if `usage` is empty; the controller then leaves the count alone.
    Source:  calcPlainMetricReplicas
    """
    if not usage:
        raise HopError(Hop.METRIC, seen="no running pod has a value", fix="run the verify playbook")
    values, target_thousandths = [_value(value) for value in usage], in_thousandths(target)
    ratio = _mean(values) / target_thousandths
    damping = unready if ratio > 1 else 0
    if not missing and not damping:
        return current if tolerance.covers(ratio) else ceil(ratio * len(values))
    # Pods without a value count with the value that opposes the change. Exactly on target nothing changes.
    assumed = [] if ratio == 1 else [target_thousandths if ratio < 1 else 0] * missing
    filled = [*values, *assumed, *[0] * damping]
    cautious = _mean(filled) / target_thousandths
    if tolerance.covers(cautious) or (ratio - 1) * (cautious - 1) < 0:
        return current
    wanted = ceil(cautious * len(filled))
    against = wanted > current if cautious < 1 else wanted < current
    return current if against else wanted


def desired_replicas_by_value(
    value: float, target: float, *, current: int, ready: int, tolerance: Tolerance = DEFAULT_TOLERANCE
) -> int:
    """Replicas for one Object or External metric with target type Value.

    value:   value of the object; for an External metric the sum of its series.
    target:  `value` of the HPA, same unit, > 0.
    current: `spec.replicas` of the target's scale subresource, > 0.
    ready:   running and ready pods, including terminating ones. Each multiplies the ratio, also a new one.
    Returns: whole number >= 0.
    Source:  getUsageRatioReplicaCount
    """
    ratio = _value(value) / in_thousandths(target)
    return current if tolerance.covers(ratio) else ceil(ratio * ready)


def desired_replicas_by_total(
    value: float, target: float, *, status_replicas: int, tolerance: Tolerance = DEFAULT_TOLERANCE
) -> int:
    """Replicas for one Object or External metric with target type AverageValue: enough that each has `target` of it.

    value:           value of the object; for an External metric the sum of its series.
    target:          `averageValue` of the HPA, same unit, > 0.
    status_replicas: `status.replicas` of the target's scale subresource: existing, not desired replicas.
    Returns:         whole number >= 0.
    Source:          GetObjectPerPodMetricReplicas, GetExternalPerPodMetricReplicas
    """
    total, target_thousandths = _value(value), in_thousandths(target)
    if status_replicas and tolerance.covers(total / (target_thousandths * status_replicas)):
        return status_replicas
    return ceil(total / target_thousandths)


def desired_replicas_together(proposals: Sequence[int | None], *, current: int) -> int:
    """Replicas for several metrics: the largest proposal wins. A metric without a value forbids scaling down.

    proposals: proposal of each metric, None for a metric without a value; at least one.
    current:   `spec.replicas` of the target's scale subresource, > 0.
    Source:    computeReplicasForMetrics
    """
    return max(current if proposal is None else proposal for proposal in proposals)


def _value(value: float) -> int:
    """In thousandths, truncated as by prometheus-adapter."""
    return int(value * 1000)


def in_thousandths(target: float) -> int:
    """A target in thousandths, as the controller reads it: rounded up."""
    return ceil(Decimal(str(target)) * 1000)


def _double(tolerance: float) -> float:
    """As the controller reads it: 700m is 0.7000000000000001."""
    return round(tolerance * 1000) * 1e-3


def _mean(values: Sequence[int]) -> int:
    """In thousandths, truncated like values."""
    return sum(values) // len(values)
