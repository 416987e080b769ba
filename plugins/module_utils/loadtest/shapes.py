# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""How the load of a load test changes over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

BEFORE, RISE, LOAD, AFTER = "before", "rise", "load", "after"

# Seconds by shape, where none are given: for the load to rise, and for how long it is held.
RISE_S = {"step": 0, "ramp": 120, "spike": 0, "soak": 0}
HOLD_S = {"step": 120, "ramp": 120, "spike": 20, "soak": 1800}


@dataclass(frozen=True)
class Stage:
    """A part of the test. Rates are in requests per second, at its first moment and at its last."""

    name: str
    seconds: int
    first: float
    last: float

    def sentence(self) -> str:
        if not (self.first or self.last):  # also for a generator with unknown rates
            return f"{self.name}: {self.seconds} s"
        rate = f"{self.first:g}" if self.first == self.last else f"{self.first:g} to {self.last:g}"
        return f"{self.name}: {rate} requests/s for {self.seconds} s"

    def rate(self, into_s: float) -> float:
        """Requests per second, so many seconds after it began."""
        share = min(1.0, max(0.0, into_s / self.seconds))
        return self.first + share * (self.last - self.first)


def stages_of(
    shape: str,
    *,
    low: float,
    high: float,
    settle_s: int,
    fall_s: int,
    rise_s: int | None = None,
    hold_s: int | None = None,
) -> list[Stage]:
    """The stages of a shape, one after the other without a gap.

    low, high: requests per second before and after, and under load.
    settle_s:  for which the low rate goes before.
    fall_s:    maximum time afterwards, until replicas have scaled down.
    rise_s:    from low to high in a straight line; 0 is a jump.
    hold_s:    for which the high rate is held.
    """
    rise = RISE_S[shape] if rise_s is None else rise_s
    stages = [
        Stage(BEFORE, settle_s, low, low),
        Stage(RISE, rise, low, high),
        Stage(LOAD, HOLD_S[shape] if hold_s is None else hold_s, high, high),
        Stage(AFTER, fall_s, low, low),
    ]
    return [stage for stage in stages if stage.seconds]


def as_dicts(stages: list[Stage]) -> list[dict[str, Any]]:
    return [{**asdict(stage), "sentence": stage.sentence()} for stage in stages]


def from_dict(stage: Mapping[str, Any]) -> Stage:
    return Stage(stage["name"], int(stage["seconds"]), float(stage["first"]), float(stage["last"]))
