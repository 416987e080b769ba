"""What `make bench` measures, round by round: pure but for the clock and the cluster that it is handed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from scaling_bench.configurations import MAXIMUM, MINIMUM, TARGET_PERCENT, Workload
from scaling_bench.evaluation import Outcome, Seen, evaluate
from scaling_bench.shapes import LOW, SHAPES, Shape, long_enough

# Of the slowest interval of any configuration: the load changes at any moment of it.
LONGEST_INTERVAL_S = 30
# Until nothing of an earlier load is in a minute's average that is collected and scraped every half one.
FORGET_S = 90
# From an HPA's start until its first load: it has looked then, whatever its period.
HPA_S = 20


@dataclass(frozen=True)
class Round:
    """One load on all workloads at once, each at a moment of its own.

    sync_s: period of the HPA controller. settle_s: of low load before.
    """

    shape: Shape
    sync_s: int
    pod_start_s: int
    settle_s: float = FORGET_S

    @property
    def looks_s(self) -> float:
        """From a workload's first change of load until it has been seen enough of."""
        return long_enough(self.shape, self.pod_start_s)

    @property
    def lasts_s(self) -> float:
        return self.settle_s + LONGEST_INTERVAL_S + self.looks_s

    @property
    def kind(self) -> tuple[str, int, int]:
        return self.shape.name, self.sync_s, self.pod_start_s


def full(lanes: int, others: int = 5) -> list[Round]:
    """Each load once, so that a run that is ended early has some of all; the steps; so many phases of the others."""
    once, few = each(lanes), -(-others // lanes)
    return [*once, *steps(lanes)[1:], *once[1:] * (few - 1)]


def each(lanes: int) -> list[Round]:
    """One round of each kind at the shorter period."""
    step, spike, ramp = SHAPES["step"], SHAPES["spike"], SHAPES["ramp"]
    return [Round(step, 5, 0), Round(spike, 5, 0), Round(ramp, 5, 0), *slow(lanes)]


def others(lanes: int) -> list[Round]:
    """All of them but the step that is the quickest to play: 21 minutes, and each lane is a phase."""
    return each(lanes)[1:]


def slow(_lanes: int) -> list[Round]:
    """Pods that take their time to start."""
    return [Round(SHAPES["step"], 5, pod_start_s) for pod_start_s in (30, 90)]


def steps(lanes: int) -> list[Round]:
    """Twenty phases of the step at both periods, by turns: a run that is ended early has some of both."""
    many = -(-20 // lanes)
    return [Round(SHAPES["step"], sync_s, 0) for _turn in range(-(-many // 2)) for sync_s in (5, 5, 15, 15)]


def quick(_lanes: int) -> list[Round]:
    return [Round(SHAPES["step"], 5, 0, settle_s=60)]


def small(lanes: int) -> list[Round]:
    """Twenty phases of the step and slow pods, at the HPA controller's period for a small fleet."""
    step = SHAPES["step"]
    return [*[Round(step, 2, 0)] * -(-20 // lanes), *(Round(step, 2, pod_start_s) for pod_start_s in (30, 90))]


def only(rounds: Sequence[Round], sync_s: int | None, pod_start_s: int | None) -> list[Round]:
    """Those at one period of the HPA controller, and with one start of pods, seconds; None is all."""
    return [
        round_ for round_ in rounds if sync_s in (None, round_.sync_s) and pod_start_s in (None, round_.pod_start_s)
    ]


def begins(round_: Round, lanes: int, now: float, chance: random.Random) -> list[float]:
    """By lane, when the load begins to change: lanes share out the longest interval, by chance within."""
    part = LONGEST_INTERVAL_S / lanes
    return [now + round_.settle_s + (lane + chance.random()) * part for lane in range(lanes)]


def trace(shape: Shape, begin: float, now: float) -> list[list[float]]:
    """Of a workload from now on."""
    return [[now, LOW], *shape.from_time(begin)]


@dataclass(frozen=True)
class Hops:
    """Seconds from the load's change until each hop of the chain first said more than the target; None is never."""

    scraped: float | None
    recorded: float | None
    decided: float | None
    ready: float | None


@dataclass(frozen=True)
class Result:
    """One workload in one round."""

    configuration: str
    lane: int
    shape: str
    sync_s: int
    pod_start_s: int
    looks_s: float
    seen: Seen
    outcome: Outcome
    hops: Hops

    @property
    def kind(self) -> tuple[str, int, int]:
        return self.shape, self.sync_s, self.pod_start_s


def judge(
    round_: Round,
    workload: Workload,
    begin: float,
    record: dict[str, list[list[float]]],
    desired: Sequence[tuple[float, int]],
    scraped: Sequence[tuple[float, float]],
    recorded: Sequence[tuple[float, float]],
) -> Result:
    """What came of it. Times of all that is handed in are Unix times.

    record: the balancer's of this workload. scraped, recorded: samples of its utilisation and of its recorded series.
    """
    until_s = round_.looks_s

    def since(points: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
        return [(point[0] - begin, point[1]) for point in points]

    seen = Seen(
        round_.shape,
        until_s,
        desired=_kept(since(desired), until_s),
        ready=_kept(since(record["ready"]), until_s),
        requests=[(row[0] - begin, int(row[1]), int(row[2]), int(row[3])) for row in record["counts"]],
        latencies=[(row[0] - begin, [int(count) for count in row[1:]]) for row in record.get("latencies", ())],
    )
    outcome = evaluate(seen, TARGET_PERCENT, (MINIMUM, MAXIMUM))

    def first_above(samples: Sequence[tuple[float, float]]) -> float | None:
        return next((round(at - begin, 2) for at, value in samples if at > begin and value > TARGET_PERCENT), None)

    before = next((count for at, count in reversed(seen.ready) if at <= 0), 1)
    more = next((round(at, 2) for at, count in seen.ready if at > 0 and count > before), None)
    hops = Hops(first_above(scraped), first_above(recorded), _rounded(outcome.reaction_s), more)
    return Result(
        workload.configuration.name, workload.lane, *round_.kind, round_.looks_s, seen=seen, outcome=outcome, hops=hops
    )


def _kept(counts: Sequence[tuple[float, float]], until_s: float) -> list[tuple[float, float]]:
    """What changed in the time that is looked at, after what there was at its begin."""
    before = [count for at, count in counts if at <= 0][-1:]
    return [*((0.0, count) for count in before), *((at, count) for at, count in counts if 0 < at <= until_s)]


def _rounded(second: float | None) -> float | None:
    return None if second is None else round(second, 2)
