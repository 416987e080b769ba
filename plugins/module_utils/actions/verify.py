# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..autoscaling.spec import Autoscaler
from ..chain.state.autoscaler import AutoscalerState
from ..chain.state.cluster import Scope
from ..cluster.kube import KubeClient
from ..cluster.prometheus_client import PrometheusClient
from ..errors import HopError, enumeration
from ..kube.objects import Key, start_s
from ..reading.intervals import Intervals
from ..reading.metric_values import Observer
from ..reading.prometheus_replicas import read_replicas
from .outcome import Outcome
from .wait import Deadline, wait_until

# Seconds between two readings, after the first ones.
LONGEST_POLL_S = 5.0


def verify(
    kube: KubeClient,
    prometheus: PrometheusClient,
    autoscalers: Sequence[Autoscaler],
    deadline: Deadline,
    outcome: Outcome,
) -> None:
    """Wait until each autoscaler is proven: its pods have values that agree with Prometheus, and the HPA acts on them.

    Does not wait for a target without pods, because it has no values. The outcome's entries get the evidence. Its
    errors get the first error of each autoscaler that is not proven.
    """
    observer = Observer(kube, prometheus, read_replicas(kube, prometheus))
    states = _observe_until(observer, autoscalers, deadline)
    describe(kube, prometheus, autoscalers, states, outcome)
    unproven = [
        autoscaler
        for autoscaler in autoscalers
        if not states[autoscaler.key].is_proven and not states[autoscaler.key].is_meant_to_be_at_zero
    ]
    if unproven:
        outcome.errors += first_errors(kube, prometheus, unproven)


def first_errors(kube: KubeClient, prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler]) -> list[HopError]:
    """The leftmost error of each of these autoscalers. Autoscalers with the same error are listed together."""
    # Imported here, because a run whose proof succeeds need not compile all checks.
    from ..chain.first_error import first_error
    from ..chain.health_report import findings_of
    from ..reading.doctor_reader import DoctorReader

    keys = [autoscaler.key for autoscaler in autoscalers]
    state = DoctorReader(kube, prometheus, scope=Scope(), facts={}, history_s=0, only=keys).state()
    findings = findings_of(state, grace=False)
    states = {autoscaler.key: autoscaler for autoscaler in state.autoscalers}
    errors: dict[str, HopError] = {}
    users: dict[str, list[str]] = {}
    for autoscaler in autoscalers:
        error = first_error(states.get(autoscaler.key), findings)
        errors.setdefault(str(error), error)
        users.setdefault(str(error), []).append(str(autoscaler))
    return [error.of(f"autoscaler {enumeration(users[text])}") for text, error in errors.items()]


def describe(
    kube: KubeClient,
    prometheus: PrometheusClient,
    autoscalers: Sequence[Autoscaler],
    states: Mapping[Key, AutoscalerState],
    outcome: Outcome,
) -> None:
    """Add the evidence and the expected reaction time to the entries of the outcome."""
    intervals = Intervals(kube, prometheus)
    for entry, autoscaler in zip(outcome.result["autoscalers"], autoscalers, strict=True):
        state = states[autoscaler.key]
        entry.update(
            state.describe(),
            dead_times=_dead_times(autoscaler, state, intervals),
            budget=_budget(autoscaler, state, intervals),
        )


def _observe_until(
    observer: Observer, autoscalers: Sequence[Autoscaler], deadline: Deadline
) -> dict[Key, AutoscalerState]:
    """The last reading of each autoscaler, or the one that proved it."""
    states: dict[Key, AutoscalerState] = {}

    def may_still_come(autoscaler: Autoscaler) -> bool:
        state = states.get(autoscaler.key)
        return state is None or not (state.is_proven or state.is_hopeless)

    def observe_the_rest() -> list[Autoscaler]:
        states.update(observer.observe([autoscaler for autoscaler in autoscalers if may_still_come(autoscaler)]))
        return [autoscaler for autoscaler in autoscalers if may_still_come(autoscaler)]

    wait_until(observe_the_rest, lambda left: not left, deadline, longest_poll_s=LONGEST_POLL_S)
    return states


def _dead_times(autoscaler: Autoscaler, state: AutoscalerState, intervals: Intervals) -> dict[str, float | None]:
    """Seconds by ready pod until its start is visible in the metric. Shows the user what to shorten."""
    if not autoscaler.metric_targets:
        return {}
    lag_s = intervals.budget(autoscaler.metric_targets[0]).metric_lag_s
    starts = {pod["metadata"]["name"]: start_s(pod) for pod in state.ready_pods}
    return {name: None if start is None else round(start + lag_s, 1) for name, start in sorted(starts.items())}


def _budget(autoscaler: Autoscaler, state: AutoscalerState, intervals: Intervals) -> dict[str, Any]:
    """The configured periods of the leading metric, and the age of the HPA's value."""
    if not autoscaler.metric_targets:
        return {}
    budget = intervals.budget(autoscaler.metric_targets[0])
    age_s = state.metrics[0].oldest_sample_s if state.metrics else None
    is_late = age_s is not None and age_s > budget.metric_lag_s
    return {**budget.describe(), "seen_age_s": age_s, "kept": not is_late}
