# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans one autoscaler: what the current and other settings would have done on its load, and which one to use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from math import isfinite
from typing import Any

from .controller import Behavior
from .explanation import RecordedDecisions, explain
from .recommendation import recommend
from .replay import PlannedMetric, Replay, Setting, Trace, replay

TODAY = "today"

# Overload in percent, per ready pod, by the first metric. Other metrics have no maximum: it is relative to the target.
OVERLOAD_PERCENT = 90.0
_OVERLOAD_OF_TARGET = 1.5
# Default settings to try.
_PERCENTS = (40.0, 50.0, 60.0, 70.0, 80.0)
_OF_TARGET = (0.5, 0.75, 1.25, 1.5)
# Points in a history, as many as a plot shows.
_POINTS = 120


@dataclass(frozen=True)
class Subject:
    """One autoscaler with its recorded series.

    identity:     first fields of its entry in the result.
    units:        unit in texts, by metric.
    recent:       its last hour, for explanations; None if its replicas were not recorded.
    notes:        what the numbers do not include.
    """

    identity: Mapping[str, Any]
    today: Setting
    trace: Trace
    units: Mapping[str, str]
    gpus_per_replica: int = 1
    recent: RecordedDecisions | None = None
    notes: tuple[str, ...] = ()


def overload_of(first: PlannedMetric, given: float | None) -> float:
    if given is not None:
        return given
    return OVERLOAD_PERCENT if first.most is not None else _OVERLOAD_OF_TARGET * first.target


def candidates(today: Setting, changes: Sequence[Mapping[str, Any]]) -> dict[str, Setting]:
    """The current setting and each changed one, by name. Without changes: other targets, and one more minimum replica.

    changes: each with any of name, target_value (of the first metric and of its demand), min_replicas, max_replicas,
             pod_start, scale_up and scale_down.
    """
    found = {TODAY: today}
    for change in changes or _usual_changes(today):
        given = {key: value for key, value in change.items() if value is not None}
        setting = _changed(today, given)
        if setting != today:
            found[_free(given.get("name") or _name_of(given), found)] = setting
    return found


def _free(name: str, taken: Collection[str]) -> str:
    """The name, with a number if another setting has it."""
    numbered = (f"{name} ({number})" for number in count(2))
    return next(free for free in chain([name], numbered) if free not in taken)


def _usual_changes(today: Setting) -> list[dict[str, Any]]:
    first = today.metrics[0]
    values = _PERCENTS if first.most is not None else tuple(first.target * part for part in _OF_TARGET)
    more = [{"min_replicas": today.minimum + 1}] if today.minimum < today.maximum else []
    return [*({"target_value": value} for value in values if value != first.target), *more]


def _changed(today: Setting, given: Mapping[str, Any]) -> Setting:
    behavior = today.behavior
    if "scale_up" in given or "scale_down" in given:
        behavior = Behavior(
            behavior.scale_up.overridden(given.get("scale_up")), behavior.scale_down.overridden(given.get("scale_down"))
        )
    minimum = given.get("min_replicas", min(today.minimum, given.get("max_replicas", today.minimum)))
    return replace(
        today,
        metrics=_retargeted(today.metrics, given.get("target_value")),
        minimum=minimum,
        maximum=given.get("max_replicas", max(today.maximum, minimum)),
        behavior=behavior,
        pod_start_s=given.get("pod_start", today.pod_start_s),
    )


def _retargeted(metrics: tuple[PlannedMetric, ...], target: float | None) -> tuple[PlannedMetric, ...]:
    if target is None:
        return metrics
    return tuple(
        replace(metric, target=target) if place == 0 or metric.shares_target else metric
        for place, metric in enumerate(metrics)
    )


_WORDS = {
    "target_value": "target {:g}",
    "min_replicas": "minimum {}",
    "max_replicas": "maximum {}",
    "pod_start": "pods start in {} s",
    "scale_up": "other scale_up",
    "scale_down": "other scale_down",
}


def _name_of(given: Mapping[str, Any]) -> str:
    return ", ".join(words.format(given[key]) for key, words in _WORDS.items() if key in given)


def plan(subject: Subject, changes: Sequence[Mapping[str, Any]], bound_minutes: float) -> dict[str, Any]:
    """The entry of one autoscaler in the result."""
    settings = candidates(subject.today, changes)
    replays = {name: replay(subject.trace, setting) for name, setting in settings.items()}
    recommendation = recommend(
        replays, today=TODAY, gpus_per_replica=subject.gpus_per_replica, bound_minutes=bound_minutes
    )
    trace, first = subject.trace, subject.today.metrics[0]
    steps = range(0, trace.steps, max(1, trace.steps // _POINTS))
    loads = trace.loads[first.name]
    recorded = trace.replicas or [float("nan")] * trace.steps
    return {
        **subject.identity,
        "gpus_per_replica": subject.gpus_per_replica,
        "overload": subject.today.overload,
        "history": {
            "step_s": trace.step_s,
            "times": [trace.start_s + step * trace.step_s for step in steps],
            "load": [_number(loads[step]) for step in steps],
            "replicas": [_whole(recorded[step]) for step in steps],
        },
        "settings": [
            {"name": name, **_described(settings[name], subject, found), "replicas": found.at(steps)}
            for name, found in replays.items()
        ],
        "recommended": recommendation.name,
        "sentence": recommendation.sentence,
        "decisions": list(explain(subject.recent, subject.today)) if subject.recent else [],
        "notes": [*subject.notes, *_blind_spots(subject)],
    }


def _described(setting: Setting, subject: Subject, found: Replay) -> dict[str, Any]:
    return {
        "target_value": setting.metrics[0].target,
        "min_replicas": setting.minimum,
        "max_replicas": setting.maximum,
        "pod_start_s": setting.pod_start_s,
        "gpu_minutes": round(found.replica_minutes * subject.gpus_per_replica, 1),
        "overload_minutes": round(found.overload_minutes, 2),
        "direction_changes": found.direction_changes,
        "peak": found.peak,
    }


def _blind_spots(subject: Subject) -> list[str]:
    """Limitations of the recorded load."""
    trace, first = subject.trace, subject.today.metrics[0]
    loads, notes = trace.loads[first.name], []
    unknown = sum(not isfinite(load) for load in loads) * trace.step_s / 60
    if unknown:
        notes.append(f"{unknown:,.4g} minutes have no sample of {subject.identity['metric']}; nothing is decided there")
    if first.most is not None and trace.replicas and not subject.identity.get("demand"):
        full = sum(
            load >= 0.99 * first.most * pods
            for load, pods in zip(loads, trace.replicas, strict=False)
            if isfinite(load) and isfinite(pods) and pods
        )
        if full:
            minutes = full * trace.step_s / 60
            notes.append(
                f"all pods were full for {minutes:,.4g} minutes: the load may have been higher than what is recorded"
            )
    return notes


def _number(value: float) -> float | None:
    return round(value, 2) if isfinite(value) else None


def _whole(value: float) -> int | None:
    return int(value) if isfinite(value) else None
