"""The latency of requests where only the ready pods were recorded: the balancer's own arithmetic, played again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from scaling_bench.balancer import COST_MS, TICK_S, Workload
from scaling_bench.evaluation import Seen, count_at, latency_ms

# As the balancer runs in the bench: one served and eight waiting.
COST_S, PLACES = COST_MS / 1000, 9
# Of the low load before, in which queues get to what is usual.
SETTLE_S = 10.0


def replayed(seen: Seen, seed: int) -> tuple[Sequence[float] | None, float]:
    """p50, p95 and p99 of served requests in milliseconds, and the share of rejected ones, to be compared."""
    workload = Workload(COST_S, PLACES, random.Random(seed))
    workload.trace = [list(point) for point in seen.shape.points]
    latencies = []
    offered = rejected = 0
    for tick in range(round((SETTLE_S + seen.until_s) / TICK_S)):
        begin = tick * TICK_S - SETTLE_S
        workload.set_pods({str(number) for number in range(int(count_at(seen.ready, begin)))}, begin)
        if begin <= 0:
            offered, rejected = workload.offered, workload.rejected
        workload.tick(begin, begin + TICK_S)
        latencies.append((begin + TICK_S, list(workload.latencies)))
    share = (workload.rejected - rejected) / max(workload.offered - offered, 1)
    return latency_ms(replace(seen, latencies=latencies)), share
