# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The recorded demand of a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...autoscaling.demand import HELD_S


@dataclass(frozen=True)
class DemandState:
    """Recorded demand of a workload.

    parts:     the latest value of each part, by name; without parts that are not recorded now.
    is_steady: requests have been offered for longer than it takes to learn their cost.
    now_s:     Prometheus' clock, Unix seconds.
    """

    parts: Mapping[str, float]
    is_steady: bool = False
    now_s: float = 0.0

    @property
    def is_in_force(self) -> bool:
        """Whether the HPA uses the demand, and not just the load of the GPUs."""
        return {"offered", "cost"} <= self.parts.keys()

    @property
    def cost_source(self) -> str:
        """Source of the cost: learned now, stored earlier, the user's prior, or none."""
        if "cost" not in self.parts:
            return "none"
        if "learned" in self.parts:
            return "learned"
        return "held" if self.now_s - self.parts.get("learned_time", 0.0) < HELD_S else "prior"

    def describe(self) -> dict[str, Any]:
        """In the format of modules."""
        return {
            "in_force": self.is_in_force,
            "percent": _rounded(self.parts.get("sum"), 1),
            "requests_per_s": _rounded(self.parts.get("offered"), 2),
            "gpu_seconds_per_request": _rounded(self.parts.get("cost"), 6),
            "cost_source": self.cost_source,
        }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
