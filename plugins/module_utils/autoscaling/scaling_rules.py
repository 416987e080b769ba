# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Scaling policies of an HPA, and the computation of their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import ceil
from typing import Any

from .options import INT32_MAX, Options

# Bounds of the API server. Source: kubernetes pkg/apis/autoscaling/validation/validation.go.
LONGEST_WINDOW_S, LONGEST_PERIOD_S = 3600, 1800
_RULES = ("stabilization_window_seconds", "select_policy", "tolerance", "policies")
_POLICY = ("type", "value", "period_seconds")


@dataclass(frozen=True)
class ScalingPolicy:
    """At most `value` pods, or percent of the pods, in `period_seconds`."""

    type: str
    value: int
    period_seconds: int


@dataclass(frozen=True)
class ScalingRules:
    """Scaling rules for one direction.

    stabilization_window_seconds: the most conservative recommendation in this window counts.
    select_policy: Max selects the policy that allows most, Min the one that allows least, Disabled forbids scaling.
    tolerance:     half-width of the dead band around usage/target = 1; None uses the cluster's default (0.1).
    """

    stabilization_window_seconds: int
    policies: tuple[ScalingPolicy, ...]
    select_policy: str
    tolerance: float | None = None

    def overridden(self, given: Mapping[str, Any] | None) -> ScalingRules:
        """These rules with the user's options; None means not set."""
        changes = {key: value for key, value in (given or {}).items() if value is not None}
        if "policies" in changes:
            changes["policies"] = tuple(ScalingPolicy(**policy) for policy in changes["policies"])
        return replace(self, **changes) if changes else self

    def apart_from(self, others: ScalingRules) -> dict[str, Any]:
        """The options that turn `others` into these rules."""
        theirs = asdict(others)
        return {option: value for option, value in asdict(self).items() if value != theirs[option]}


def given_rules(options: Options, direction: str) -> dict[str, Any]:
    """A user's rules for one direction, by option; the others are computed from the dead time.

    Raises: HopError if the API server would reject a rule.
    """
    rules = options.options(direction, _RULES)
    if rules is None:
        return {}
    given: dict[str, Any] = {}
    if "stabilization_window_seconds" in rules:
        given["stabilization_window_seconds"] = rules.whole("stabilization_window_seconds", 0, LONGEST_WINDOW_S)
    if "select_policy" in rules:
        given["select_policy"] = rules.choice("select_policy", ("Max", "Min", "Disabled"))
    if "tolerance" in rules:
        given["tolerance"] = rules.number("tolerance", 0)
    if "policies" in rules:
        given["policies"] = [_policy(policy, path, rules.subject) for path, policy in rules.entries("policies")]
        if not given["policies"]:
            raise rules.error("policies", "is empty", "give at least one policy, or leave policies out")
    return given


def _policy(given: Any, path: str, subject: str) -> dict[str, Any]:
    policy = Options(given, _POLICY, path, subject)
    type_ = policy.choice("type", ("Pods", "Percent"))
    if type_ is None:
        raise policy.error("type", "is missing", "set it to Pods or Percent")
    return {
        "type": type_,
        "value": policy.whole("value", 1, INT32_MAX),
        "period_seconds": policy.whole("period_seconds", 1, LONGEST_PERIOD_S),
    }


# Steps, so that measurements that differ by seconds give the same policies. The last is the API's maximum.
_DEAD_TIMES_S = (
    *(15, 20, 25, 30, 40, 50, 60, 75, 90, 105, 120, 150, 180, 210, 240, 300),
    *(360, 420, 480, 600, 720, 900, 1200, 1500, 1800),
)
LONGEST_DEAD_TIME_S = _DEAD_TIMES_S[-1]
ASSUMED_DEAD_TIME_S = 60


def dead_time_s(pod_start_s: float, metric_lag_s: float) -> int:
    """Seconds until the effect of a decision is visible, rounded up to a step.

    pod_start_s:  from a pod's scheduling until it is ready.
    metric_lag_s: seconds from a change of load until the HPA can see it.
    """
    return next((step for step in _DEAD_TIMES_S if step >= pod_start_s + metric_lag_s), LONGEST_DEAD_TIME_S)


@cache
def default_scale_up(dead_time: int, percent: int = 50) -> ScalingRules:
    """One step per dead time, so that the values for the next step include the effect of the previous one.

    No window, because it would only delay. The rate prevents a delayed metric from overshooting.
    """
    return ScalingRules(0, (ScalingPolicy("Pods", 2, dead_time), ScalingPolicy("Percent", percent, dead_time)), "Max")


def proven_percent(target_value: float) -> int:
    """Percent by which full pods prove that more are needed: n pods at 100 percent need n * 100 / target.

    The HPA counts values of pods that are not ready yet. Pods that compute while they start prove nothing, so a step
    of one dead time is limited to this.
    """
    return max(ceil((100 / target_value - 1) * 100), 1)


def scale_up_to(max_replicas: int) -> ScalingRules:
    """Immediately to the requested replicas, for a demand: it is the whole load, and does not depend on the pods."""
    return ScalingRules(0, (ScalingPolicy("Pods", max_replicas, _DEAD_TIMES_S[0]),), "Max")


# Slowly, one pod or a quarter a minute, because a pod that is removed too early takes its start time to return. The
# window is Kubernetes' default.
DEFAULT_SCALE_DOWN = ScalingRules(300, (ScalingPolicy("Pods", 1, 60), ScalingPolicy("Percent", 25, 60)), "Min")
