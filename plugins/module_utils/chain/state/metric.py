# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""One metric of an autoscaler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from math import isnan
from typing import Any

from ...autoscaling.dcgm_fields import GPU_UTIL
from ...autoscaling.promql import DCGM_EXPORTER
from ...autoscaling.spec import ADAPTER
from ...hops import CHAIN, Hop

# A value agrees with Prometheus if it differs from its samples by at most this part of the target value.
TOLERANCE = 0.05
# The metrics API rounds values to this.
_MILLI = 0.001


@dataclass(frozen=True)
class MetricState:
    """One metric of one autoscaler, along the chain.

    group:            the API that the HPA queries.
    type:             of the HPA's entry: Pods, Object or External.
    backend:          serves the metric to the HPA controller.
    series:           the recorded series behind it; empty for an external metric without a rule.
    sources:          the exporters' series that the rule reads. reporter: what serves these.
    expected_objects: objects that must have a value: each ready pod, or the target itself.
    listed:           whether the API lists the metric; None if the API does not answer.
    refusal:          the API's error instead of values.
    values:           of the API, by object. recorded: the latest samples in Prometheus, by object.
    sampled_s:        time of the latest of these samples, by object. now_s: Prometheus' clock. Unix seconds.
    agreed:           objects whose value agreed with Prometheus in an earlier reading.
    """

    name: str
    group: str
    type: str
    _by_name: KW_ONLY
    backend: str = ADAPTER
    series: str = ""
    sources: tuple[str, ...] = ()
    reporter: str = ""
    unit: str = ""
    target_value: float | None = None
    expected_objects: frozenset[str] = frozenset()
    listed: bool | None = True
    refusal: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    recorded: Mapping[str, Sequence[float]] = field(default_factory=dict)
    sampled_s: Mapping[str, float] = field(default_factory=dict)
    now_s: float = 0.0
    agreed: frozenset[str] = frozenset()

    @property
    def is_of_gpus(self) -> bool:
        return self.reporter == DCGM_EXPORTER.name

    @property
    def path(self) -> tuple[Hop, ...]:
        """The hops of its value: all for GPUs, else from what its rule reads, or from the metrics API alone."""
        first = Hop.LABELS if self.sources else Hop.RULE if self.series else Hop.METRICS_API
        first = CHAIN[0] if self.is_of_gpus else first
        return CHAIN[CHAIN.index(first) :]

    @property
    def needs_profiling(self) -> bool:
        return bool(self.sources) and all("_PROF_" in source for source in self.sources)

    @property
    def is_blank_on_mig(self) -> bool:
        """The driver reports no utilisation of MIG instances."""
        return set(self.sources) == {GPU_UTIL}

    @property
    def missing_in_api(self) -> list[str]:
        return sorted(self.expected_objects - set(self.values))

    @property
    def missing_in_prometheus(self) -> list[str]:
        return sorted(self.expected_objects - set(self.recorded)) if self.series else []

    @property
    def disagreeing(self) -> list[str]:
        """Objects whose value in the API differs from all recent values in Prometheus; NaN is ignored."""
        if not self.series:
            return []
        known = self.expected_objects & set(self.values) & set(self.recorded) - self.agreed
        return sorted(name for name in known if not self.agrees(name) and not isnan(self.recorded[name][-1]))

    @property
    def is_proven(self) -> bool:
        is_complete = bool(self.expected_objects) and not self.missing_in_api
        return is_complete and not self.missing_in_prometheus and not self.disagreeing

    @property
    def oldest_sample_s(self) -> float | None:
        """Age in seconds of the oldest of the objects' latest samples."""
        newest = [self.sampled_s[name] for name in self.expected_objects & set(self.sampled_s)]
        return round(self.now_s - min(newest), 1) if newest else None

    def agrees(self, name: str) -> bool:
        """Whether Prometheus, or another replica of it, may have recorded the object's value recently.

        Replicas scrape at different moments, and the Service answers with either. So a value may be as far from the
        samples as these are from each other, or TOLERANCE of the target value, or of the samples without
        one.
        """
        samples = self.recorded.get(name)
        if not samples:
            return False
        low, high = min(samples), max(samples)
        slack = max(high - low, TOLERANCE * (self.target_value or max(abs(low), abs(high))), _MILLI)
        return low - slack <= self.values[name] <= high + slack

    def describe(self) -> dict[str, Any]:
        """In the format of modules."""
        seen = sorted(self.expected_objects & set(self.recorded))
        return {
            "metric": self.name,
            "type": self.type,
            "target_value": self.target_value,
            "listed": bool(self.listed),
            "pod_values": {name: self.values[name] for name in sorted(self.expected_objects & set(self.values))},
            "prometheus": {name: round(self.recorded[name][-1], 3) for name in seen},
            "age_s": self.oldest_sample_s,
        }
