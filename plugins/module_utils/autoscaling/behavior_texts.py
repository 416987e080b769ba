# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Describes scaling rules in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .scaling_rules import ScalingRules
from .spec import Autoscaler


def describe_behaviors(autoscalers: Iterable[Autoscaler]) -> tuple[list[dict[str, Any]], list[int]]:
    """The distinct scaling rules in words, and for each autoscaler the index of its rules."""
    behaviors: list[dict[str, Any]] = []
    places = []
    for autoscaler in autoscalers:
        behavior = _describe(autoscaler)
        if behavior not in behaviors:
            behaviors.append(behavior)
        places.append(behaviors.index(behavior))
    return behaviors, places


def _describe(autoscaler: Autoscaler) -> dict[str, Any]:
    """The scaling rules in words, and the dead time from which they were computed, if the user does not set them.

    With a demand, scaling up does not depend on the dead time.
    """
    given = {"scale_up": autoscaler.given_scale_up, "scale_down": autoscaler.given_scale_down}
    return {
        "dead_time_s": autoscaler.dead_time,
        "measured": autoscaler.is_measured,
        "demand": autoscaler.follows_demand,
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
