# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Explains each decision of an HPA in a sentence, from recorded series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from .controller import Controller, Decision
from .replay import PlannedMetric, Setting, Trace
from .replicas import (
    desired_replicas,
    desired_replicas_by_total,
    desired_replicas_by_value,
    desired_replicas_together,
)
from .scaling_rules import ScalingRules

# A decision is visible up to one scrape of kube-state-metrics later.
_LATE_S = 60


@dataclass(frozen=True)
class RecordedDecisions:
    """Recorded series of an HPA, one sample per step.

    trace:    its metrics; `replicas` are those set by the HPA.
    speaking: number of pods with a value, by Pods metric.
    units:    unit in texts, by metric.
    """

    trace: Trace
    speaking: Mapping[str, Sequence[float]]
    units: Mapping[str, str]


@dataclass(frozen=True)
class _Look:
    """A decision with the metric that proposed most, and the reason."""

    decision: Decision
    because: str


def explain(recorded: RecordedDecisions, setting: Setting) -> Iterator[dict[str, Any]]:
    """Changes of the replicas, oldest first: time_s, before, after, sentence, and whether the arithmetic agrees.

    It agrees if the values recorded just before result in that number of replicas.
    """
    trace = recorded.trace
    controller = Controller(setting.minimum, setting.maximum, setting.behavior, is_new=False)
    looks: list[_Look] = []
    current: int | None = None
    for step in range(trace.steps):
        now_s, count = step * trace.step_s, trace.replicas[step]
        if not isfinite(count):
            continue
        if current is not None and int(count) != current:
            # The controller may have read the values of this step.
            looks.append(_look(recorded, setting, controller, step, current))
            yield _explained(looks, trace.start_s + now_s, current, int(count), setting, trace.step_s)
            controller.note(now_s, current, int(count))
            looks = []
        else:
            looks.append(_look(recorded, setting, controller, step, int(count)))
        current = int(count)


def _explained(
    looks: Sequence[_Look], time_s: float, before: int, after: int, setting: Setting, step_s: float
) -> dict[str, Any]:
    lately = looks[-(1 + round(_LATE_S / step_s)) :]
    agreeing = [look for look in lately if look.decision.replicas == after]
    look = (agreeing or lately)[-1]
    words = _sentence(look, setting)
    if not agreeing:
        words += f"; the HPA set {after}, so it saw values that were not recorded, or another client set them"
    return {"time_s": time_s, "before": before, "after": after, "sentence": words, "agrees": bool(agreeing)}


def _look(recorded: RecordedDecisions, setting: Setting, controller: Controller, step: int, current: int) -> _Look:
    proposals = {metric: _proposal(metric, recorded, step, current, setting) for metric in setting.metrics}
    known = {metric: proposal for metric, proposal in proposals.items() if proposal is not None}
    wanted, because = None, "no metric had a value"
    if known:
        leading = max(known, key=lambda metric: known[metric])
        because = _values(leading, recorded, step, current)
        if desired_replicas_together([*proposals.values()], current=current) == known[leading]:
            wanted = known[leading]
        else:
            because += ", and a metric without a value forbids fewer"
    return _Look(controller.weigh(step * recorded.trace.step_s, current, wanted), because)


def _proposal(
    metric: PlannedMetric, recorded: RecordedDecisions, step: int, current: int, setting: Setting
) -> int | None:
    load, tolerance = recorded.trace.loads[metric.name][step], setting.behavior.tolerance
    if not isfinite(load):
        return None
    if metric.form == "total":
        return desired_replicas_by_total(load, metric.target, status_replicas=current, tolerance=tolerance)
    if metric.form == "average":
        return (
            desired_replicas_by_value(
                load / current, metric.target, current=current, ready=current, tolerance=tolerance
            )
            if current
            else None
        )
    speaking = recorded.speaking[metric.name][step]
    if not isfinite(speaking) or not speaking:
        return None
    pods = int(speaking)
    unready = max(current - pods, 0)
    return desired_replicas([load / pods] * pods, metric.target, current=current, unready=unready, tolerance=tolerance)


def _values(metric: PlannedMetric, recorded: RecordedDecisions, step: int, current: int) -> str:
    load, unit = recorded.trace.loads[metric.name][step], recorded.units.get(metric.name, "")
    target = _with_unit(metric.target, unit)
    if metric.form == "total":
        return f"{_with_unit(load, unit)} in all against {target} a pod"
    pods = int(recorded.speaking[metric.name][step]) if metric.form == "pods" else current
    silent = f", {current - pods} not counted yet" if current > pods else ""
    return f"{_counted(pods)} at {_with_unit(load / pods, unit)} against {target}{silent}"


def _sentence(look: _Look, setting: Setting) -> str:
    decision, behavior = look.decision, setting.behavior
    if decision.wanted is None:
        if decision.limit in ("minimum", "maximum"):
            bound = setting.minimum if decision.limit == "minimum" else setting.maximum
            return f"set to the {decision.limit} {bound} without the metrics"
        return f"wanted nothing: {look.because}"
    parts = [f"wanted {decision.wanted}: {look.because}"]
    if decision.stabilized != decision.wanted:
        is_lowest = decision.stabilized < decision.wanted
        window_s = (behavior.scale_up if is_lowest else behavior.scale_down).stabilization_window_seconds
        extreme = "lowest" if is_lowest else "highest"
        parts.append(f"held at {decision.stabilized}, the {extreme} of the last {window_s} s")
    up = decision.stabilized > decision.current
    rules = behavior.scale_up if up else behavior.scale_down
    if decision.limit == "policy":
        parts.append(f"limited to {decision.replicas} by {_policies(rules, behavior.is_given)}")
    elif decision.limit == "disabled":
        parts.append(f"kept at {decision.replicas}: scaling {'up' if up else 'down'} is disabled")
    elif decision.limit:
        parts.append(f"limited to {decision.replicas} by the {decision.limit}")
    return ", ".join(parts)


def _policies(rules: ScalingRules, is_given: bool) -> str:
    if not is_given:
        return "the stock pace, twice the pods or four"
    words = [
        f"{_counted(policy.value) if policy.type == 'Pods' else f'{policy.value} %'} in {policy.period_seconds} s"
        for policy in rules.policies
    ]
    which = "the larger of " if rules.select_policy == "Max" else "the smaller of "
    return (which if len(words) > 1 else "") + " and ".join(words)


def _counted(pods: int) -> str:
    return "1 pod" if pods == 1 else f"{pods} pods"


def _with_unit(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}".strip()
