# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How fast each autoscaler may go: what its scaling rules follow from, measured where the user has not chosen them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from ..autoscaling.manifests import DEAD_TIME_ANNOTATION, Manifest
from ..autoscaling.scaling import ScalingRules, dead_time_s
from ..autoscaling.spec import Autoscaler
from ..cluster.errors import ApiError
from ..cluster.kube import PODS, KubeClient
from ..cluster.prometheus import PrometheusClient
from ..cluster.selectors import selects
from .intervals import Intervals
from .snapshot import Key, Objects, Surroundings, is_managed, list_in, pod_selector


def pace(
    kube: KubeClient,
    prometheus: PrometheusClient,
    autoscalers: Sequence[Autoscaler],
    objects: Objects,
    around: Surroundings,
) -> list[Autoscaler]:
    """The autoscalers with the dead time that was measured, for those that leave their scaling rules to us.

    It is measured once, as soon as the target has ready pods, and then kept on the HPA: rules that change with each
    run's measurement would be changes that nobody asked for.
    """
    kept = {each.key: dead_time for each in autoscalers if (dead_time := _kept(objects.hpas.get(each.key)))}
    open_ones = [each for each in autoscalers if each.needs_dead_time and each.key not in kept]
    measured = _measure(kube, prometheus, open_ones, around) if open_ones else {}
    known = {**kept, **measured}
    return [
        each.with_dead_time(known[each.key]) if each.needs_dead_time and each.key in known else each
        for each in autoscalers
    ]


def explain_pace(autoscaler: Autoscaler) -> dict[str, Any]:
    """The scaling rules in words, and what they come from: the dead time, but for the directions that are given."""
    given = {"scale_up": autoscaler.given_scale_up, "scale_down": autoscaler.given_scale_down}
    return {
        "dead_time_s": autoscaler.dead_time,
        "measured": autoscaler.is_measured,
        "given": [direction for direction, rules in given.items() if rules.get("policies")],
        "scale_up": _in_words(autoscaler.scale_up),
        "scale_down": _in_words(autoscaler.scale_down),
    }


def _in_words(rules: ScalingRules) -> str:
    if rules.select_policy == "Disabled":
        return "never"
    policies = " or ".join(
        f"{policy.value} {'pods' if policy.type == 'Pods' else 'percent'} in {policy.period_seconds} s"
        for policy in rules.policies
    )
    which = "the larger of " if rules.select_policy == "Max" else "the smaller of "
    window = rules.stabilization_window_seconds
    return f"{which if len(rules.policies) > 1 else ''}{policies}" + (f" after {window} s" if window else " at once")


def _kept(hpa: Manifest | None) -> int:
    if hpa is None or not is_managed(hpa):
        return 0
    text = (hpa["metadata"].get("annotations") or {}).get(DEAD_TIME_ANNOTATION, "")
    return int(text) if text.isdigit() else 0


def _measure(
    kube: KubeClient, prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler], around: Surroundings
) -> dict[Key, int]:
    try:
        pods = list_in(kube, PODS, {each.namespace for each in autoscalers})
    except ApiError:
        return {}  # no right to see pods: what is assumed then is on the safe side
    starts = _pod_starts(autoscalers, around, pods.values())
    if not starts:
        return {}
    intervals = Intervals(kube, prometheus)
    return {
        each.key: dead_time_s(starts[each.key], intervals.budget(each.goals[0]).metric_lag_s)
        for each in autoscalers
        if each.key in starts
    }


def _pod_starts(autoscalers: Sequence[Autoscaler], around: Surroundings, pods: Iterable[Manifest]) -> dict[Key, float]:
    """Median seconds from creation to readiness of each target's pods that have not been restarted."""
    started: dict[str, list[tuple[Manifest, float]]] = {}
    for pod in pods:
        if (start := _start_s(pod)) is not None:
            started.setdefault(pod["metadata"]["namespace"], []).append((pod, start))
    found = {}
    for autoscaler in autoscalers:
        is_its = selects(pod_selector(around.targets[autoscaler.key].manifest))
        its = [start for pod, start in started.get(autoscaler.namespace, ()) if is_its(pod)]
        if its:
            found[autoscaler.key] = median(its)
    return found


def _start_s(pod: Manifest) -> float | None:
    status = pod.get("status") or {}
    ready = next((each for each in status.get("conditions") or () if each["type"] == "Ready"), {})
    restarted = any(each.get("restartCount") for each in status.get("containerStatuses") or ())
    if ready.get("status") != "True" or restarted or not ready.get("lastTransitionTime"):
        return None
    created, since = (_time(text) for text in (pod["metadata"]["creationTimestamp"], ready["lastTransitionTime"]))
    return max((since - created).total_seconds(), 0.0)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
