# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Simulates how the HPA controller applies windows, policies and bounds to a proposal.

Source: kubernetes/kubernetes v1.36.3, pkg/controller/podautoscaler/horizontal.go
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from operator import ge, le
from typing import Any, Literal, NamedTuple

from ..kube.quantity import parse_quantity
from .replicas import DEFAULT_TOLERANCE, Tolerance
from .scaling_rules import ScalingPolicy, ScalingRules

Limit = Literal["", "policy", "disabled", "maximum", "minimum"]

# Defaults of the API server. Source: pkg/apis/autoscaling/v2/defaults.go
_API_UP = ScalingRules(0, (ScalingPolicy("Pods", 4, 15), ScalingPolicy("Percent", 100, 15)), "Max")
_API_DOWN = ScalingRules(300, (ScalingPolicy("Percent", 100, 15),), "Max")


@dataclass(frozen=True)
class Behavior:
    """How fast an HPA may go in both directions.

    is_given: set in the HPA. Otherwise each decision may double the pods or set them to four, and the window
              applies to both directions: an older recommendation can still add pods.
    """

    scale_up: ScalingRules = _API_UP
    scale_down: ScalingRules = _API_DOWN
    is_given: bool = True

    @property
    def tolerance(self) -> Tolerance:
        up, down = self.scale_up.tolerance, self.scale_down.tolerance
        default = DEFAULT_TOLERANCE
        return Tolerance(default.up if up is None else up, default.down if down is None else down)

    @classmethod
    def of_hpa(cls, spec: Mapping[str, Any]) -> Behavior:
        """In the format of an HPA's spec."""
        given = spec.get("behavior")
        if not given:
            return cls(is_given=False)
        return cls(_rules(given.get("scaleUp"), _API_UP), _rules(given.get("scaleDown"), _API_DOWN))


def _rules(given: Mapping[str, Any] | None, default: ScalingRules) -> ScalingRules:
    given = given or {}
    policies = [
        {"type": policy["type"], "value": policy["value"], "period_seconds": policy["periodSeconds"]}
        for policy in given.get("policies") or ()
    ]
    return default.overridden(
        {
            "stabilization_window_seconds": given.get("stabilizationWindowSeconds"),
            "select_policy": given.get("selectPolicy"),
            "policies": policies or None,
            "tolerance": None if given.get("tolerance") is None else parse_quantity(str(given["tolerance"])),
        }
    )


class Decision(NamedTuple):
    """One sync of the controller.

    current:    replicas before.
    wanted:     proposal of the metrics; None if the controller did not query them.
    stabilized: the proposal after the windows.
    replicas:   replicas after.
    limit:      why `replicas` differs from `stabilized`; empty if it does not.
    """

    current: int
    wanted: int | None
    stabilized: int
    replicas: int
    limit: Limit = ""


class Controller:
    """State of one HPA.

    is_new: the first sync is the first ever, in which the existing replicas count as proposed.
    """

    def __init__(self, minimum: int, maximum: int, behavior: Behavior, *, is_new: bool = True) -> None:
        self.minimum, self.maximum, self.behavior = minimum, maximum, behavior
        self._lowest = _Window(behavior.scale_up.stabilization_window_seconds, ge)
        self._highest = _Window(behavior.scale_down.stabilization_window_seconds, le)
        self._ups = _Events(behavior.scale_up.policies)
        self._downs = _Events(behavior.scale_down.policies)
        self._is_new = is_new

    def decide(self, now_s: float, current: int, wanted: int | None) -> Decision:
        """One sync, and its effects. Has the arguments of `weigh`."""
        decision = self.weigh(now_s, current, wanted)
        self.note(now_s, current, decision.replicas)
        return decision

    def weigh(self, now_s: float, current: int, wanted: int | None) -> Decision:
        """One sync without a change of the replicas. Time must not decrease.

        current: `spec.replicas` of the target.
        wanted:  the largest proposal of the metrics; None if no metric has a value, which keeps the count.
        """
        if self._is_new:
            self._remember(now_s, current)
            self._is_new = False
        if current == 0 and self.minimum:
            return Decision(0, None, 0, 0, "disabled")
        if not self.minimum <= current <= self.maximum:
            replicas = self.maximum if current > self.maximum else self.minimum
            return Decision(current, None, current, replicas, "maximum" if current > self.maximum else "minimum")
        if wanted is None:
            return Decision(current, None, current, current)
        stabilized = wanted
        if not self.behavior.is_given:
            stabilized = self._highest.extreme(now_s, wanted)
        elif wanted > current:
            stabilized = max(current, self._lowest.extreme(now_s, wanted))
        elif wanted < current:
            stabilized = min(current, self._highest.extreme(now_s, wanted))
        self._remember(now_s, wanted)
        if stabilized == current:
            return Decision(current, wanted, current, current)
        replicas, limit = self._limited(now_s, current, stabilized)
        return Decision(current, wanted, stabilized, replicas, limit)

    def stays(self, now_s: float, current: int) -> None:
        """A sync in which the metrics propose the current count, within the bounds. With a behavior nothing changes.

        Only the last of several in a row is needed, because windows remember nothing else of them.
        """
        self._is_new = False
        self._remember(now_s, current)

    def note(self, now_s: float, current: int, replicas: int) -> None:
        """Record a change of the replicas, which policies count."""
        if replicas > current:
            self._ups.add(now_s, replicas - current)
        elif replicas < current:
            self._downs.add(now_s, current - replicas)

    def _remember(self, now_s: float, wanted: int) -> None:
        if self.behavior.scale_up.stabilization_window_seconds:
            self._lowest.add(now_s, wanted)
        if self.behavior.scale_down.stabilization_window_seconds:
            self._highest.add(now_s, wanted)

    def _limited(self, now_s: float, current: int, stabilized: int) -> tuple[int, Limit]:
        if stabilized > current:
            allowed, limit = self._up_limit(now_s, current)
            if allowed >= self.maximum:
                allowed, limit = self.maximum, "maximum"
            return (allowed, limit) if stabilized > allowed else (stabilized, "")
        allowed, limit = self._down_limit(now_s, current)
        if allowed <= self.minimum:
            allowed, limit = self.minimum, "minimum"
        return (allowed, limit) if stabilized < allowed else (stabilized, "")

    def _up_limit(self, now_s: float, current: int) -> tuple[int, Limit]:
        rules = self.behavior.scale_up
        if not self.behavior.is_given:
            return max(2 * current, 4), "policy"
        if rules.select_policy == "Disabled":
            return current, "disabled"
        proposals = [
            start + policy.value if policy.type == "Pods" else ceil(start * (1 + policy.value / 100))
            for policy in rules.policies
            for start in [self._at_start(now_s, current, policy)]
        ]
        select = min if rules.select_policy == "Min" else max
        return max(current, select(proposals)), "policy"

    def _down_limit(self, now_s: float, current: int) -> tuple[int, Limit]:
        rules = self.behavior.scale_down
        if not self.behavior.is_given:
            return self.minimum, "policy"
        if rules.select_policy == "Disabled":
            return current, "disabled"
        proposals = [
            start - policy.value if policy.type == "Pods" else int(start * (1 - policy.value / 100))
            for policy in rules.policies
            for start in [self._at_start(now_s, current, policy)]
        ]
        select = max if rules.select_policy == "Min" else min
        return min(current, select(proposals)), "policy"

    def _at_start(self, now_s: float, current: int, policy: ScalingPolicy) -> int:
        """Replicas when the policy's period began. Both directions count in each policy."""
        since_s = now_s - policy.period_seconds
        return current - self._ups.since(since_s) + self._downs.since(since_s)


class _Window:
    """The lowest or highest recommendation in the window, without values that a later one supersedes.

    outdone: whether a stored value can no longer be the extreme once a new one exists.
    """

    def __init__(self, seconds: int, outdone: Callable[[Any, Any], bool]) -> None:
        self._seconds, self._outdone = seconds, outdone
        self._kept: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, value: int) -> None:
        kept = self._kept
        while kept and self._outdone(kept[-1][1], value):
            kept.pop()
        kept.append((now_s, value))

    def extreme(self, now_s: float, value: int) -> int:
        """The extreme of the window and a new value. A value exactly as old as the window is outside."""
        kept, since_s = self._kept, now_s - self._seconds
        while kept and kept[0][0] <= since_s:
            kept.popleft()
        if kept and not self._outdone(kept[0][1], value):
            return kept[0][1]
        return value


class _Events:
    """Changes of the replicas in one direction.

    A change older than all policies of its direction is replaced by the next one, although policies of the
    other direction may still need it, as in the controller.
    """

    def __init__(self, policies: Sequence[ScalingPolicy]) -> None:
        self._longest_s = max((policy.period_seconds for policy in policies), default=0)
        self._events: list[tuple[float, int]] = []

    def add(self, now_s: float, change: int) -> None:
        outdated = [at for at, (time, _change) in enumerate(self._events) if time < now_s - self._longest_s]
        if outdated:
            self._events[outdated[-1]] = (now_s, change)
        else:
            self._events.append((now_s, change))

    def since(self, since_s: float) -> int:
        return sum(change for time, change in self._events if time > since_s)
