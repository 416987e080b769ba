"""Plays loads against ways to scale. One run is a load, a way, a target, the start of a pod, and a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import fmean

import numpy as np

from traces.loads import PLANNED_PERCENT, Load
from traces.plant import Chain, Plant
from traces.scalers import Hpa, Knative, Oracle, Scaler, Static, Way

STATIC, ORACLE = "static", "oracle"
ORACLE_TARGETS = tuple(float(target) for target in range(30, 95, 5))
SYNC_S = 15
STARTS_S = (10, 60, 300)


@dataclass(frozen=True)
class Run:
    """What came of one run.

    target:      percent, or of KEDA requests that wait; of a static pool its pods.
    within_goal: share of the requests. gpu_share: GPU-hours as a share of the planned static pool's.
    changes:     pods added or removed in an hour. turns: changes of direction in an hour.
    """

    load: str
    way: str
    target: float
    start_s: float
    seed: int
    within_goal: float
    gpu_share: float
    changes: float = 0.0
    turns: float = 0.0
    rejected: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    lost: int = 0
    requests: int = 0
    peak: int = 0


@dataclass
class Log:
    """Replicas over time: the time of each change, and the new number."""

    changes: list[tuple[float, int]] = field(default_factory=list)


def play(plant: Plant, scaler: Scaler, until_s: float) -> Log:
    """Let a scaler decide until a time."""
    log, due_s = Log([(0.0, plant.pods)]), scaler.phase_s
    while due_s < until_s:
        plant.advance(due_s)
        replicas = scaler(plant)
        if replicas != plant.pods:
            log.changes.append((plant.now_s, replicas))
            plant.scale(replicas)
        due_s += scaler.period_s
    plant.advance(until_s)
    return log


@dataclass(frozen=True)
class Played:
    """A load as it was drawn with a seed."""

    load: Load
    seed: int
    arrivals: np.ndarray
    planned: int
    maximum: int

    @classmethod
    def of(cls, load: Load, seed: int) -> Played:
        arrivals = load.arrivals(seed)
        planned = load.planned_pods(arrivals)
        return cls(load, seed, arrivals, planned, 2 * planned)

    def first_pods(self) -> int:
        """What the first two minutes need."""
        return max(1, math.ceil(self.first_gpus() * 100 / PLANNED_PERCENT))

    def first_gpus(self) -> float:
        """GPU-seconds a second of the first two minutes."""
        return float(self.load.gpus(self.arrivals, 120)[0])

    def run(self, way: str, target: float, start_s: float, scaler: Scaler, chain: Chain, pods: int) -> Run:
        plant = Plant(self.arrivals, self.load.service, chain, pods=pods, start_s=start_s, seed=self.seed)
        log = play(plant, scaler, self.load.seconds)
        outcome, counts = plant.outcome(), [count for _at, count in log.changes]
        ways = [later > earlier for earlier, later in pairwise(counts)]
        return Run(
            self.load.name,
            way,
            target,
            start_s,
            self.seed,
            within_goal=round(outcome["within_goal"], 6),
            gpu_share=round(outcome["gpu_hours"] / (self.planned * self.load.hours), 5),
            changes=round(sum(abs(later - earlier) for earlier, later in pairwise(counts)) / self.load.hours, 2),
            turns=round(sum(one != other for one, other in pairwise(ways)) / self.load.hours, 2),
            rejected=round(outcome["rejected"], 6),
            lost=int(outcome["lost"]),
            requests=int(outcome["requests"]),
            peak=max(counts),
            **{name: round(outcome[name], 4) for name in ("p50", "p95", "p99")},
        )

    def of_way(self, way: Way, target: float, start_s: float, sync_s: float) -> Run:
        chance = random.Random(f"{self.seed} {way.name} {target}")
        service_s, scaler = self.load.service.service_s, None
        if way.kind == "knative":
            scaler = Knative(target, self.maximum, service_s, chance)
        else:
            scaler = Hpa(
                way,
                target=target,
                maximum=self.maximum,
                sync_s=sync_s,
                start_s=start_s,
                service_s=service_s,
                chance=chance,
                is_small=sync_s <= 2,
            )
        return self.run(way.name, target, start_s, scaler, way.chain(is_small=sync_s <= 2), self.first_pods())

    def static(self) -> Iterator[Run]:
        """Pools from the smallest that could serve the load's mean to one above the planned."""
        least = max(1, math.ceil(float(self.load.gpus(self.arrivals).mean())))
        for pods in range(least, self.planned + 2):
            yield self.run(STATIC, pods, 0, Static(pods), Chain(), pods)

    def oracle(self, start_s: float) -> Iterator[Run]:
        for target in ORACLE_TARGETS:
            scaler = Oracle(
                self.arrivals,
                target=target,
                service_s=self.load.service.service_s,
                start_s=start_s,
                until_s=self.load.seconds,
            )
            yield self.run(ORACLE, target, start_s, scaler, Chain(), int(scaler._pods[0]))


def plays(
    load: Load, ways: Sequence[Way], seed: int, starts_s: Sequence[float], sync_s: float
) -> list[dict[str, object]]:
    """All runs of a load with a seed, as JSON has them."""
    played = Played.of(load, seed)
    found = list(played.static())
    for start_s in starts_s:
        found += played.oracle(start_s)
        found += [played.of_way(way, target, start_s, sync_s) for way in ways for target in way.targets]
    return [asdict(run) for run in found]


def at_goal(runs: Sequence[Run], goal: float) -> tuple[float, float] | None:
    """GPU-hours, and the target, with which this share is within the goal; None if no target reaches it.

    Between two targets it is interpolated. If each reaches it, it is the cheapest. runs: of one way, of all seeds.
    """
    points = sorted(means(runs).items())
    found = [(gpu, target) for target, (within, gpu) in points if within >= goal]
    for (low, (within, gpu)), (high, (next_within, next_gpu)) in pairwise(points):
        if (within - goal) * (next_within - goal) < 0:
            part = (goal - within) / (next_within - within)
            found.append((gpu + part * (next_gpu - gpu), low + part * (high - low)))
    return min(found) if found else None


def means(runs: Sequence[Run]) -> dict[float, tuple[float, float]]:
    """By target: the share within the goal, and GPU-hours, each the mean of the seeds."""
    targets = sorted({run.target for run in runs})
    of = {target: [run for run in runs if run.target == target] for target in targets}
    return {
        target: (fmean(run.within_goal for run in some), fmean(run.gpu_share for run in some))
        for target, some in of.items()
    }
