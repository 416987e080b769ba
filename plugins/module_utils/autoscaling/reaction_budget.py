# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Period:
    """How often something happens, and the source: read from its configuration, seen in samples, or assumed."""

    seconds: float
    source: Literal["configured", "seen", "assumed"] = "configured"


@dataclass(frozen=True)
class ReactionBudget:
    """The periods from a load step to the HPA's decision.

    collect:  DCGM reads the GPU.      scrape: Prometheus reads the exporter.
    evaluate: the recording rule runs. sync:   the HPA asks for the metric.
    """

    collect: Period
    scrape: Period
    evaluate: Period
    sync: Period

    @property
    def metric_lag_s(self) -> float:
        """Worst case until the metrics API can show the load step."""
        return self.collect.seconds + self.scrape.seconds + self.evaluate.seconds

    @property
    def worst_s(self) -> float:
        return self.metric_lag_s + self.sync.seconds

    @property
    def mean_s(self) -> float:
        """The average: the periods are not synchronized, so each is on average half over."""
        return self.worst_s / 2

    def describe(self) -> dict[str, Any]:
        hops = {"collect": self.collect, "scrape": self.scrape, "evaluate": self.evaluate, "sync": self.sync}
        return {
            **{f"{name}_s": round(period.seconds, 1) for name, period in hops.items()},
            "worst_s": round(self.worst_s, 1),
            "mean_s": round(self.mean_s, 1),
            "sources": {name: period.source for name, period in hops.items()},
        }
