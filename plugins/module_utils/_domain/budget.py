# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReactionBudget:
    """From a load step to the HPA's decision: the periods that it may have to wait out, seconds.

    collect_s:  DCGM reads the GPU.      scrape_s: Prometheus reads the exporter.
    evaluate_s: the recording rule runs. sync_s:   the HPA asks for the metric.
    """

    collect_s: float
    scrape_s: float
    evaluate_s: float
    sync_s: float

    @property
    def worst_s(self) -> float:
        return self.collect_s + self.scrape_s + self.evaluate_s + self.sync_s

    @property
    def mean_s(self) -> float:
        """The periods are not synchronised, so each is on average half over."""
        return self.worst_s / 2
