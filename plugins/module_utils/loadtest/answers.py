# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What users of a load test got, stage by stage, and whether that meets their goals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .shapes import LOAD

OUTCOMES = ("served", "rejected", "refused_in_stream", "failed", "dropped")
_TIMES = ("latency_ms", "ttft_ms")
_STATISTICS = ("p50", "p95", "p99")

Answers = dict[str, Any]


def counts(run: Mapping[str, Any]) -> dict[str, int]:
    """Requests of the whole test by outcome; empty for a generator that does not report them."""
    requests = run.get("requests") or {}
    return {outcome: int(requests.get(outcome, 0)) for outcome in OUTCOMES} if requests else {}


def answers(run: Mapping[str, Any]) -> list[Answers]:
    """Of each stage: `name`, requests by outcome, `latency_ms` and `ttft_ms` with p50, p95 and p99, or None.

    latency_ms: of served requests, until the last byte. ttft_ms: of requests for one token, beside the load.
    A request belongs to the stage in which it was sent.
    """
    seen = (run.get("requests") or {}).get("stages") or ()
    return [
        {
            "name": stage["name"],
            **{outcome: int(got.get(outcome, 0)) for outcome in OUTCOMES if outcome != "dropped"},
            **{times: _rounded(got.get(times)) for times in _TIMES},
        }
        for stage, got in zip(run["stages"], seen, strict=False)
    ]


def rejected_percent(got: Mapping[str, Any]) -> float | None:
    """Of the requests that were sent; None if there were none."""
    sent = sum(got[outcome] for outcome in OUTCOMES if outcome != "dropped")
    return 100 * (got["rejected"] + got["refused_in_stream"]) / sent if sent else None


def goal_problems(run: Mapping[str, Any]) -> Iterator[str]:
    """Goals that were not met while the load was held, and those that cannot be judged."""
    goals = {name: float(goal) for name, goal in (run.get("goals") or {}).items() if goal is not None}
    under_load = next((got for got in answers(run) if got["name"] == LOAD), None)
    for name, goal in goals.items():
        seen = _seen(name, under_load) if under_load else None
        unit = "%" if name == "rejected_percent" else "ms"
        if seen is None:
            yield f"the goal {name} cannot be judged: no such request was answered under load"
        elif seen > goal:
            yield f"{_GOALS[name]} under load: {seen:,.4g} {unit}, and the goal is {goal:,.4g} {unit}"


_GOALS = {
    "p95_ms": "95th percentile of the latency",
    "ttft_p95_ms": "95th percentile of the time to first token",
    "rejected_percent": "rejected requests",
}


def _seen(goal: str, got: Mapping[str, Any]) -> float | None:
    if goal == "rejected_percent":
        return rejected_percent(got)
    times = got["latency_ms" if goal == "p95_ms" else "ttft_ms"]
    return times["p95"] if times else None


def _rounded(times: Mapping[str, float] | None) -> dict[str, float] | None:
    return {name: round(times[name], 1) for name in _STATISTICS} if times else None
