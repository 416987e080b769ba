"""What one workload did under one load: from what was seen of it to the numbers that are reported."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from scaling_bench.balancer import COST_MS, STEPS_OF_COST
from scaling_bench.shapes import Shape, times

# Of the areas under the replicas.
STEP_S = 0.5

# Ascending times and the count from then on.
Counts = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Seen:
    """Seconds since the load began to change; negative ones were before.

    desired, ready: replicas that the Deployment was told to have, and pods that were ready.
    requests:       second, offered, served, rejected: counters.
    latencies:      second, and the served requests by their latency, in the balancer's steps: counters.
    """

    shape: Shape
    until_s: float
    desired: Counts
    ready: Counts
    requests: Sequence[tuple[float, int, int, int]] = ()
    latencies: Sequence[tuple[float, Sequence[int]]] = ()


@dataclass(frozen=True)
class Outcome:
    """None is what did not happen until the end.

    reaction_s: until the replicas were raised.
    wanted_s, capacity_s: until as many were wanted, or ready, as the highest load needs.
    wasted, overloaded: GPU-minutes held above the ideal number, and missing below it.
    turns:      changes of direction.
    latency_ms: p50, p95 and p99 of served requests, as the balancer's steps have them; None where it was not recorded.
    """

    reaction_s: float | None
    wanted_s: float | None
    capacity_s: float | None
    offered: int
    rejected: int
    peak: int
    ideal: int
    wasted: float
    overloaded: float
    turns: int
    latency_ms: Sequence[float] | None = None

    @property
    def rejected_share(self) -> float:
        return self.rejected / self.offered if self.offered else 0.0


def evaluate(seen: Seen, target_percent: float, bounds: tuple[int, int]) -> Outcome:
    moments = times(0, seen.until_s, STEP_S)
    ideals = [seen.shape.ideal(second, target_percent, bounds) for second in moments]
    most = max(ideals)
    before = count_at(seen.desired, 0)
    desired = [count_at(seen.desired, second) for second in moments]
    ready = [count_at(seen.ready, second) for second in moments]
    minutes = STEP_S / 60
    counts = [count for second, count in seen.desired if 0 <= second <= seen.until_s]
    begin, end = _counters_at(seen, 0), _counters_at(seen, seen.until_s)
    return Outcome(
        reaction_s=next((second for second, count in seen.desired if second > 0 and count > before), None),
        wanted_s=_reached(seen.desired, most, seen.until_s),
        capacity_s=_reached(seen.ready, most, seen.until_s),
        offered=end[0] - begin[0],
        rejected=end[2] - begin[2],
        peak=int(max(max(desired), max(ready))),
        ideal=most,
        # What is wanted is held, also while it starts.
        wasted=sum(max(count - ideal, 0) for count, ideal in zip(desired, ideals, strict=True)) * minutes,
        overloaded=sum(max(ideal - count, 0) for count, ideal in zip(ready, ideals, strict=True)) * minutes,
        turns=direction_changes([before, *counts]),
        latency_ms=latency_ms(seen),
    )


def latency_ms(seen: Seen) -> list[float] | None:
    """p50, p95 and p99 of served requests: the upper end of the step that each is in. None without a record."""

    def until(second: float) -> Sequence[int]:
        rows = [counts for at, counts in seen.latencies if at <= second]
        return rows[-1] if rows else [0] * len(seen.latencies[0][1])

    if not seen.latencies:
        return None
    counts = [end - begin for begin, end in zip(until(0), until(seen.until_s), strict=True)]
    below = list(accumulate(counts))
    if not below[-1]:
        return None
    steps = [bisect_left(below, math.ceil(share * below[-1])) for share in (0.5, 0.95, 0.99)]
    return [(step + 1) * COST_MS / STEPS_OF_COST for step in steps]


def count_at(counts: Counts, second: float) -> float:
    place = bisect_right(counts, second, key=lambda point: point[0])
    return counts[place - 1][1] if place else (counts[0][1] if counts else 0)


def direction_changes(counts: Sequence[float]) -> int:
    """How often replicas that went up go down, or the other way round."""
    ups = [later > earlier for earlier, later in pairwise(counts) if later != earlier]
    return sum(one != following for one, following in pairwise(ups))


def _reached(counts: Counts, enough: int, until_s: float) -> float | None:
    return next((second for second, count in counts if 0 < second <= until_s and count >= enough), None)


def _counters_at(seen: Seen, second: float) -> tuple[int, int, int]:
    """Offered, served, rejected as of the last record until then."""
    earlier = [row for row in seen.requests if row[0] <= second]
    found = earlier[-1] if earlier else (seen.requests[0] if seen.requests else (0, 0, 0, 0))
    return found[1], found[2], found[3]


@dataclass(frozen=True)
class Spread:
    """Of several seconds; None among them counts as longer than all, and the mean as if it had ended with the look."""

    minimum: float | None
    median: float | None
    p95: float | None
    maximum: float | None
    mean: float
    missing: int
    number: int


def spread(values: Sequence[float | None], until_s: float) -> Spread:
    """until_s: how long was looked, which is the least that a value which is missing would have been."""
    ordered = sorted(math.inf if value is None else value for value in values)

    def rank(share: float) -> float | None:
        found = ordered[max(math.ceil(share * len(ordered)), 1) - 1]
        return None if found == math.inf else round(found, 1)

    middle = statistics.median(ordered)
    known = [min(value, until_s) for value in ordered]
    return Spread(
        rank(0),
        None if middle == math.inf else round(middle, 1),
        rank(0.95),
        rank(1),
        round(sum(known) / len(known), 2),
        ordered.count(math.inf),
        len(ordered),
    )
