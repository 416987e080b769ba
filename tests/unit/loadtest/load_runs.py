"""Load tests as the role writes them down: one that passed, to be changed by a test."""

from __future__ import annotations

from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.shapes import as_dicts, stages_of

BEGAN_S = 1_795_000_000.0
SETTLE_S, HOLD_S, FALL_S = 30, 120, 100
RISES_S, FALLS_S = SETTLE_S, SETTLE_S + HOLD_S


def a_run(
    changes: dict[float, tuple[int, int, float | None]] | None = None, *, shape: str = "step", **more: Any
) -> dict[str, Any]:
    """A look a second.

    changes: seconds of the test from which on so many replicas are wanted, and ready, and what the ratio then is.
    """
    changes = changes or {
        0: (1, 1, 0.25),
        RISES_S + 7: (3, 1, 1.6),
        RISES_S + 15: (5, 3, 1.6),
        RISES_S + 30: (5, 5, 0.92),
        FALLS_S + 60: (1, 5, 0.05),
        FALLS_S + 65: (1, 1, 0.25),
    }
    stages = stages_of(shape, low=2, high=100, settle_s=SETTLE_S, fall_s=FALL_S, hold_s=HOLD_S)
    samples = []
    for second in range(sum(stage.seconds for stage in stages)):
        since = max(at for at in changes if at <= second)
        desired, ready, ratio = changes[since]
        samples.append(
            {"time_s": BEGAN_S + second, "desired": desired, "current": max(desired, ready), "ready": ready}
            | {"ratio": ratio}
        )
    return {
        "namespace": "ml",
        "name": "chat",
        "url": "http://chat:8000/",
        "shape": shape,
        "began_s": BEGAN_S,
        "minimum": 1,
        "maximum": 8,
        "budget_s": 10.0,
        "requests": counted(served=12_000, rejected=35),
        "stages": as_dicts(stages),
        "samples": samples,
        "events": [
            {
                "time": "2026-11-18T11:07:27+00:00",
                "object": "HorizontalPodAutoscaler chat",
                "reason": "SuccessfulRescale",
                "message": "New size: 3; reason: pods metric gpu above target",
            }
        ]
        * 2,
        "pods": [{"name": "chat-1", "made": "2026-11-18T11:07:27+00:00", "scheduled_s": 0.0, "ready_s": 8.0}],
        **more,
    }


def part(**more: Any) -> dict[str, Any]:
    """What locustfile.py prints of the requests of some time."""
    none = {"served": 0, "rejected": 0, "refused_in_stream": 0, "failed": 0, "timed_out": 0}
    return {**none, "latency_ms": None, "ttft_ms": None, "tokens": 0, **more}


def counted(dropped: int = 0, reasons: dict[str, int] | None = None, **load: Any) -> dict[str, Any]:
    """What it prints of a test whose requests were all sent under load."""
    return {"parts": [part(), part(**load), part()], "dropped": dropped, "late_ms": 4.2, "reasons": reasons or {}}


def ended(name: str, began_s: float, ended_s: float | None, uid: str = "", seen_s: float = 1000) -> dict[str, Any]:
    """A pod that ended, in seconds of the test. seen_s: when it was last seen, unless it was gone."""
    last_s = seen_s if ended_s is None else ended_s
    end = {"uid": uid or name, "name": name, "began_s": BEGAN_S + began_s, "seen_s": BEGAN_S + last_s}
    return {**end, "ended_s": ended_s if ended_s is None else BEGAN_S + ended_s}


def of_stages(settled: dict[str, Any] | None = None, **under_load: Any) -> dict[str, Any]:
    """What it prints of a test before, under and after its load, and of the load's second half."""
    calm = part(served=60, latency_ms={"p50": 410.04, "p95": 620, "p99": 700})
    load = part(
        served=900,
        rejected=60,
        refused_in_stream=40,
        latency_ms={"p50": 2195.8, "p95": 3194.2, "p99": 3629},
        ttft_ms={"p50": 830, "p95": 1310.4, "p99": 1400},
        tokens=28_800,
    )
    parts = [calm, load | under_load, calm, *([load | settled] if settled is not None else [])]
    return {"parts": parts, "dropped": 0, "late_ms": 4.2, "reasons": {}}
