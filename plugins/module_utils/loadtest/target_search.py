# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""A search for the target values of an autoscaler: what one pod did at each number of users, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import takewhile
from statistics import fmean
from typing import Any

from ..autoscaling.controller import Behavior
from ..autoscaling.replicas import Tolerance
from .request_schedule import REJECTED_PERCENT
from .stage_results import given_goals, rejected_percent, seen_of
from .target_fit import Level, Target, find_target

# Fewer looks at the metric are no mean. They are half a second apart.
_FEWEST_VALUES = 3
# What the goal of a target is about, and the percentiles of a level that show it.
TIMES = {"ttft_p95_ms": "ttft_ms", "p95_ms": "latency_ms"}


def judge_search(run: Mapping[str, Any]) -> dict[str, Any]:
    """Proposed target values with the levels that they follow from, and `problems`.

    run: `levels`, as locustfile.py prints them, and `looks`, at the metrics of the pod, each with `time_s`, Unix
         seconds, and `pod_values` by metric; `began_s`, when the generator began, by the clock of the looks;
         `confirmation`, the same three of a second run; `targets`, present target values by metric; `goals`;
         `behavior` of the HPA.
    Returns: `levels`, each with the mean of each metric; `metrics`, each with `metric`, `present`, the fields of
             `Target` and `notes`; `confirmation`, what the proposed number of users did in a second run, or None.
    """
    levels = _with_metrics(run)
    goals = given_goals(run)
    goal = next((name for name in TIMES if name in goals), None)
    problems = list(_unusable(levels, run, goal))
    metrics, tolerance = [], Behavior.of_hpa(run).tolerance
    if goal and not problems:
        for metric, present in run["targets"].items():
            found = _find(levels, metric, goal, goals, tolerance)
            notes = [_why_none(found, goal, goals[goal])] if found.value is None else _notes(found, present, tolerance)
            metrics.append({"metric": metric, "present": present, **asdict(found), "notes": [*notes]})
        # The HPA follows the metric that asks for most replicas, so one that holds the goal is enough.
        if all(row["value"] is None for row in metrics):
            problems += [f"{row['metric']}: {row['notes'].pop()}" for row in metrics]
    again = _with_metrics(run["confirmation"]) if run.get("confirmation") else []
    confirmation = _confirmed(again[0], goals) if again else None
    if confirmation and not confirmation["holds"]:
        problems.append(_missed(confirmation))
    return {
        "goal": goal,
        "goals": {"rejected_percent": REJECTED_PERCENT, **goals},
        "levels": levels,
        "metrics": metrics,
        "confirmation": confirmation,
        "problems": problems,
    }


def users_to_confirm(run: Mapping[str, Any]) -> int:
    """The number of users that the proposal is read from; 0 if nothing was found."""
    return next((int(row["users"]) for row in judge_search(run)["metrics"] if row["value"] is not None), 0)


def _with_metrics(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The levels with `metrics`, the mean of each while the level lasted."""
    found = []
    for level in run["levels"]:
        seen: dict[str, list[float]] = {}
        for look in run["looks"]:
            if level["began_s"] <= look["time_s"] - run["began_s"] <= level["ended_s"]:
                for metric, value in look["pod_values"].items():
                    seen.setdefault(metric, []).append(value)
        means = {metric: round(fmean(values), 3) for metric, values in seen.items() if len(values) >= _FEWEST_VALUES}
        found.append({**level, "metrics": means, "rejected_percent": rejected_percent(level)})
    return found


def _unusable(levels: Sequence[Mapping[str, Any]], run: Mapping[str, Any], goal: str | None) -> Iterator[str]:
    if goal is None:
        yield f"no goal is given: set one of {', '.join(TIMES)} in gpu_loadtest_goals"
        return
    if len(levels) < 2:
        yield f"only {len(levels)} number of users was tried, and two are needed: raise gpu_loadtest_most_users"
    for level in levels:
        if level["served"] and not level[TIMES[goal]]:
            yield f"at {level['users']} users no answer was a stream, so none has a first token"
    if levels and not _served(levels):
        yield f"at {min(level['users'] for level in levels)} users no request was served"
    for level in _served(levels):
        for metric in run["targets"]:
            if metric not in level["metrics"]:
                yield f"at {level['users']} users the pod had no value of {metric}, so nothing can be proposed for it"


def _served(levels: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """By ascending users, until none of their requests was served: a server that is too full lets all time out."""
    ordered = sorted(levels, key=lambda level: int(level["users"]))
    return [*takewhile(lambda level: level["served"], ordered)]


def _find(
    levels: Sequence[Mapping[str, Any]], metric: str, goal: str, goals: Mapping[str, float], tolerance: Tolerance
) -> Target:
    rows = [
        Level(
            level["users"],
            level["served"],
            level["per_second"],
            level["metrics"][metric],
            times["p50"],
            times["p95"],
            times["p99"],
            level["rejected_percent"] or 0.0,
        )
        for level in _served(levels)
        for times in (level[TIMES[goal]],)
    ]
    return find_target(
        rows,
        goals[goal],
        rejected_percent=goals.get("rejected_percent", REJECTED_PERCENT),
        is_full_beyond=len(rows) < len(levels),
        tolerance=tolerance,
    )


def _notes(found: Target, present: float, tolerance: Tolerance) -> Iterator[str]:
    """What to know before the value is used."""
    if found.noise_decides:
        yield "noise decides: fewer users missed the goal than the most that hold it, so repeat it with longer levels"
    if found.same_from < found.users:
        yield (
            f"from {found.same_from} users on the metric is nearly the same as at {found.users}, so it cannot hold a "
            "goal between them: requests in flight can"
        )
    if not found.reaches(present, tolerance):
        yield (
            f"the present target of {present:g} cannot be reached: one pod never showed more than {found.top:.4g}, and "
            f"with its tolerance the HPA adds replicas above {present * tolerance.band[1]:.4g}"
        )
    if found.is_past_last:
        yield "the goal was held by all numbers of users that were tried: raise gpu_loadtest_most_users"


def _why_none(found: Target, goal: str, value: float) -> str:
    if not found.top > 0:
        return "it stayed at zero for all numbers of users: it does not show this load"
    if found.is_held:
        return f"it is still zero at {found.users} users, the most that hold the goal, so it scales too late to hold it"
    if found.limited_by == "rejections":
        return "the pod rejects requests of one user"
    return f"no target holds the goal: one user has a {goal} above {value:g} already"


def _missed(confirmation: Mapping[str, Any]) -> str:
    parts = [
        f"{row['goal']} by {100 * (row['seen'] / row['value'] - 1):.0f} %" if row["value"] else row["goal"]
        for row in confirmation["goals"]
        if not row["met"]
    ]
    return f"the second run missed {', '.join(parts)}, so the proposal does not hold: repeat it with longer levels"


def _confirmed(level: Mapping[str, Any], goals: Mapping[str, float]) -> dict[str, Any]:
    """The second run, with what it says of each goal."""
    rows = [
        {"goal": name, "seen": seen, "value": goal, "met": seen <= goal}
        for name, goal in {"rejected_percent": REJECTED_PERCENT, **goals}.items()
        if (seen := seen_of(name, level)) is not None
    ]
    return {"level": dict(level), "goals": rows, "holds": all(row["met"] for row in rows)}
