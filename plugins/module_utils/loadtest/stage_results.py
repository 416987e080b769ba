# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What users of a load test got, stage by stage, and whether that meets their goals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .shapes import LOAD

# By name of files/pace.py of the role gpu_loadtest, and what was due while all users waited for answers.
SENT = ("served", "rejected", "refused_in_stream", "failed", "timed_out")
OUTCOMES = (*SENT, "dropped")
_TIMES = ("latency_ms", "ttft_ms")
_STATISTICS = ("p50", "p95", "p99")

# The generator's clock begins up to a second and a look before the watch's.
_CLOCKS_S = 2.0

Answers = dict[str, Any]


def counts(run: Mapping[str, Any]) -> dict[str, int]:
    """Requests of the whole test by outcome; empty for a generator that does not report them."""
    requests = run.get("requests") or {}
    if not requests:
        return {}
    sums = {outcome: sum(stage[outcome] for stage in answers(run)) for outcome in SENT}
    return {**sums, "dropped": int(requests["dropped"])}


def answers(run: Mapping[str, Any]) -> list[Answers]:
    """Of each stage: `name`, requests by outcome, `latency_ms` and `ttft_ms` with p50, p95 and p99, or None, `tokens`.

    latency_ms: of served requests, until the last byte. ttft_ms: of streams, until the first token.
    A request belongs to the stage in which it was sent.
    """
    parts = (run.get("requests") or {}).get("parts") or []
    return [{"name": stage["name"], **_answers(got)} for stage, got in zip(run["stages"], parts, strict=False)]


def settled(run: Mapping[str, Any]) -> Answers | None:
    """The same of the second half of the time for which the load was held; None if that is not known."""
    parts = (run.get("requests") or {}).get("parts") or []
    return _answers(parts[-1]) if len(parts) > len(run["stages"]) else None


def _answers(got: Mapping[str, Any]) -> Answers:
    return {
        **{outcome: int(got[outcome]) for outcome in SENT},
        **{times: _rounded(got.get(times)) for times in _TIMES},
        "tokens": int(got.get("tokens", 0)),
    }


def scale_downs(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Times at which pods of the workload ended, in their order. Pods that ended together are one scale-down.

    pods: names. began_s, ended_s: seconds of the test; ended_s is None if a pod was not gone in the end.
    lost: requests in flight meanwhile that failed or timed out, streams included: a server that ends may leave them
          without an answer, which is known much later. None for a generator that does not report when.
    """
    test_s = float(run["began_s"])
    found: list[dict[str, Any]] = []
    for end in _ends(run):
        row = {"pods": [end["name"]], "began_s": end["began_s"], "ended_s": end["ended_s"]}
        last = found[-1] if found else None
        if last and (last["ended_s"] is None or row["began_s"] <= last["ended_s"] + _CLOCKS_S):
            last["pods"].append(end["name"])
            last["ended_s"] = (
                None if None in (last["ended_s"], row["ended_s"]) else max(last["ended_s"], row["ended_s"])
            )
        else:
            found.append(row)
    lost_at = (run.get("requests") or {}).get("lost_at")
    left = list(lost_at or ())
    for row in found:
        row["began_s"] = round(row["began_s"] - test_s, 1)
        row["ended_s"] = None if row["ended_s"] is None else round(row["ended_s"] - test_s, 1)
        within = [loss for loss in left if _was_in_flight(loss, row["began_s"], row["ended_s"])]
        left = [loss for loss in left if loss not in within]  # each is lost once
        row["lost"] = None if lost_at is None else sum(many for _sent, _known, many in within)
    return found


def _ends(run: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Each pod once: it may have ended in several stages, each of which has its own watch, or between two of them."""
    ends: dict[str, dict[str, Any]] = {}
    for end in run.get("ends") or ():
        ends.setdefault(end["uid"], dict(end)).update(seen_s=end["seen_s"], ended_s=end["ended_s"])
    for end in ends.values():
        if end["ended_s"] is None:
            later = (sample["time_s"] for sample in run["samples"] if sample["time_s"] > end["seen_s"])
            end["ended_s"] = min(later, default=None)
    return sorted(ends.values(), key=lambda end: end["began_s"])


def _was_in_flight(loss: Sequence[int], began_s: float, ended_s: float | None) -> bool:
    """loss: the seconds in which requests were sent, and in which it was known that they are lost, and how many."""
    sent, known, _many = loss
    return known + 1 > began_s - _CLOCKS_S and (ended_s is None or sent < ended_s + _CLOCKS_S)


def rejected_percent(got: Mapping[str, Any]) -> float | None:
    """Of the requests that were sent; None if there were none."""
    sent = sum(got[outcome] for outcome in SENT)
    return 100 * (got["rejected"] + got["refused_in_stream"]) / sent if sent else None


def goal_problems(run: Mapping[str, Any]) -> Iterator[str]:
    """Goals that were not met while the load was held, and those that cannot be judged."""
    under_load = next((got for got in answers(run) if got["name"] == LOAD), None)
    for name, goal in given_goals(run).items():
        seen = seen_of(name, under_load) if under_load else None
        unit = "%" if name == "rejected_percent" else "ms"
        if seen is None:
            yield f"the goal {name} cannot be judged: no such request was answered under load"
        elif seen > goal:
            yield f"{_GOALS[name]} under load: {seen:,.4g} {unit}, and the goal is {goal:,.4g} {unit}"


def settled_goals(run: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Each goal, what was seen of it in the second half of the load, and the goal's value.

    By then the autoscaler has had time to add replicas, so it shows whether its target holds the goal.
    """
    if got := settled(run):
        for name, goal in given_goals(run).items():
            if (seen := seen_of(name, got)) is not None:
                yield name, seen, goal


def given_goals(run: Mapping[str, Any]) -> dict[str, float]:
    """An option that is left out comes as None."""
    return {name: float(goal) for name, goal in (run.get("goals") or {}).items() if goal is not None}


_GOALS = {
    "p95_ms": "95th percentile of the latency",
    "ttft_p95_ms": "95th percentile of the time to first token",
    "rejected_percent": "rejected requests",
}


def seen_of(goal: str, got: Mapping[str, Any]) -> float | None:
    """What requests say of a goal; None if none was answered."""
    if goal == "rejected_percent":
        return rejected_percent(got)
    times = got["latency_ms" if goal == "p95_ms" else "ttft_ms"]
    return times["p95"] if times else None


def _rounded(times: Mapping[str, float] | None) -> dict[str, float] | None:
    return {name: round(times[name], 1) for name in _STATISTICS} if times else None
