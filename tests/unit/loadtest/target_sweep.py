"""What a real server did at several numbers of users."""

from __future__ import annotations

from typing import Any

from load_runs import BEGAN_S, part

# vLLM 0.32.0 with --max-num-seqs 16, recorded on 2026-11-26: 16 s a level. Users, requests, requests a second, running
# and waiting ones, and p50, p95 and p99 of the time to first token and of the latency.
SWEEP = (
    (1, 18, 1.12, 0.94, (44.6, 112.0, 112.0), (799.1, 1759.3, 1759.3)),
    (2, 34, 2.12, 2.0, (55.9, 124.3, 151.5), (979.1, 1519.7, 1591.8)),
    (4, 72, 4.5, 3.5, (63.6, 302.4, 375.0), (879.3, 1431.1, 1523.9)),
    (6, 85, 5.31, 5.38, (64.6, 129.7, 188.1), (966.2, 2637.2, 2982.6)),
    (8, 128, 8.0, 7.62, (53.9, 178.8, 441.4), (935.6, 2849.8, 4109.0)),
    (12, 196, 12.25, 10.12, (70.9, 394.4, 621.5), (932.4, 1712.3, 1884.6)),
    (16, 208, 13.0, 14.12, (71.8, 255.3, 371.2), (1024.2, 2615.6, 2834.0)),
    (20, 213, 13.31, 18.57, (321.9, 805.5, 868.4), (1443.8, 2485.2, 2808.9)),
    (24, 206, 12.88, 21.56, (609.0, 1320.4, 1489.5), (1664.7, 3335.5, 3786.1)),
    (32, 208, 13.0, 31.0, (1203.6, 2607.7, 2785.8), (2397.1, 4460.2, 4843.8)),
)


def a_search(**more: Any) -> dict[str, Any]:
    """The recorded sweep, with a look at the metric twice a second."""
    levels, looks = [], []
    for number, (users, requests, per_second, in_flight, ttft, latency) in enumerate(SWEEP):
        began_s = 30.0 * number + 10
        levels.append(
            {
                "users": users,
                "began_s": began_s,
                "ended_s": began_s + 20,
                "per_second": per_second,
                "tokens_per_second": 0,
                **part(served=requests, latency_ms=named(latency), ttft_ms=named(ttft)),
            }
        )
        # Also while it settles, when the metric is still that of the level before.
        looks += [{"time_s": BEGAN_S + began_s - 5, "pod_values": {"llm_in_flight": 0}}]
        looks += [
            {"time_s": BEGAN_S + began_s + at / 2, "pod_values": {"llm_in_flight": in_flight + (-1) ** at / 10}}
            for at in range(40)
        ]
    return {
        "namespace": "ml",
        "name": "chat",
        "goals": {"ttft_p95_ms": 500, "p95_ms": None},
        "targets": {"llm_in_flight": 30},
        "behavior": {},
        "levels": levels,
        "looks": looks,
        "began_s": BEGAN_S,
        "confirmation": {},
        **more,
    }


def named(times_ms: tuple[float, ...]) -> dict[str, float]:
    return dict(zip(("p50", "p95", "p99"), times_ms, strict=True))
