# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..autoscaling.spec import Autoscaler
from ..cluster.kube import KubeClient
from ..cluster.prometheus import PrometheusClient
from .backend import Backend
from .diagnose import Chain, first_broken_hop
from .intervals import Intervals
from .observe import Observation, Observer
from .outcome import Outcome
from .targets import Key
from .wait import Deadline, wait_until

# Between two looks, once it takes long.
LONGEST_POLL_S = 5.0


def verify(
    kube: KubeClient,
    prometheus: PrometheusClient,
    backend: Backend,
    autoscalers: Sequence[Autoscaler],
    deadline: Deadline,
    outcome: Outcome,
) -> None:
    """Wait until each ready pod of each target has a value that agrees with Prometheus, and each HPA acts on it.

    A target without pods is not waited for: nothing can be seen of it. What was seen goes into the outcome's entries,
    and for each autoscaler that is not verified its first broken hop into the errors.
    """
    seen = _observe_until(Observer(kube, prometheus, backend), autoscalers, deadline)
    describe(kube, prometheus, autoscalers, seen, outcome)
    chain = Chain(prometheus, backend)
    broken = [each for each in autoscalers if not seen[each.key].is_verified]
    outcome.errors += [first_broken_hop(chain, each, seen[each.key]).error() for each in broken]


def describe(
    kube: KubeClient,
    prometheus: PrometheusClient,
    autoscalers: Sequence[Autoscaler],
    seen: Mapping[Key, Observation],
    outcome: Outcome,
) -> None:
    """Put the evidence, and the reaction time to be expected, into the entries of the outcome."""
    intervals = Intervals(kube, prometheus)
    for entry, autoscaler in zip(outcome.result["autoscalers"], autoscalers, strict=True):
        observation = seen[autoscaler.key]
        entry.update(observation.describe(), budget=_budget(autoscaler, observation, intervals))


def _observe_until(observer: Observer, autoscalers: Sequence[Autoscaler], deadline: Deadline) -> dict[Key, Observation]:
    """What was seen last of each, or when it was verified."""
    seen: dict[Key, Observation] = {}

    def observe_the_rest() -> list[Autoscaler]:
        left = [each for each in autoscalers if each.key not in seen or _may_still_come(seen[each.key])]
        seen.update(observer.observe(left))
        return [each for each in left if _may_still_come(seen[each.key])]

    wait_until(observe_the_rest, lambda left: not left, deadline, longest_poll_s=LONGEST_POLL_S)
    return seen


def _may_still_come(seen: Observation) -> bool:
    return not seen.is_verified and not seen.is_hopeless


def _budget(autoscaler: Autoscaler, seen: Observation, intervals: Intervals) -> dict[str, Any]:
    """Of the leading metric: the periods as configured, and beside them the age of what the HPA gets to see."""
    if not autoscaler.goals:
        return {}
    budget = intervals.budget(autoscaler.goals[0])
    age_s = seen.goals[0].age_s if seen.goals else None
    late = age_s is not None and age_s > budget.metric_lag_s
    return {**budget.describe(), "seen_age_s": age_s, "kept": not late}
