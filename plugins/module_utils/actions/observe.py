# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the last hops show for each autoscaler: the evidence. Judging it is left to others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..autoscaling.manifests import Manifest
from ..autoscaling.spec import PODS as PODS_METRIC
from ..autoscaling.spec import WORKLOAD_LABELS, Autoscaler, Goal
from ..chain.objects import is_ready
from ..chain.selectors import format_selector
from ..cluster.errors import ApiError, QueryError
from ..cluster.kube import HPAS, KubeClient
from ..cluster.metrics_api import MetricValue
from ..cluster.parallel import in_parallel
from ..cluster.prometheus import PrometheusClient, Series
from ..errors import HopError
from .backend import Backend
from .targets import AUTOSCALERS_ASKED_ALONE, Key, TargetState, list_in, read_pods, read_targets

# Under load the adapter's value and Prometheus' move between two reads: any value of this window agrees.
AGREEMENT_WINDOW_S = 30
# Two replicas of Prometheus scrape at other moments, and the service answers with either of them: a value agrees that
# lies as far beside the window as the window is wide, or this share of the target value.
TOLERANCE = 0.05
# A matcher that names more namespaces than this costs Prometheus more than their series do.
_NAMESPACES_IN_QUERY = 20


@dataclass(frozen=True)
class GoalEvidence:
    """What the chain shows of one metric of one autoscaler.

    holders:  who has to have a value: the ready pods, or the target itself.
    listed:   the metrics API offers the metric; None if it does not answer.
    values:   of the metrics API, by holder; refusal: what it answered instead.
    recorded: the samples in Prometheus, by holder.
    agreed:   holders whose value agreed with Prometheus in an earlier look.
    now_s:    Prometheus' clock, Unix seconds.
    """

    goal: Goal
    holders: frozenset[str]
    listed: bool | None = True
    values: Mapping[str, float] = field(default_factory=dict)
    refusal: str = ""
    recorded: Mapping[str, Series] = field(default_factory=dict)
    agreed: frozenset[str] = frozenset()
    now_s: float = 0.0

    @property
    def silent(self) -> list[str]:
        """Holders without a value in the metrics API."""
        return sorted(self.holders - set(self.values))

    @property
    def unrecorded(self) -> list[str]:
        """Holders without a recorded series."""
        return sorted(self.holders - set(self.recorded)) if self.goal.series else []

    @property
    def disagreeing(self) -> list[str]:
        """Holders whose value is none of those that Prometheus has recorded lately."""
        if not self.goal.series:
            return []
        return sorted(holder for holder in self.holders & set(self.values) - self.agreed if not self.agrees(holder))

    @property
    def is_right(self) -> bool:
        return bool(self.holders) and not self.silent and not self.disagreeing

    @property
    def age_s(self) -> float | None:
        """Seconds since the oldest of the holders' newest samples."""
        newest = [series.times[-1] for holder, series in self.recorded.items() if holder in self.holders]
        return round(self.now_s - min(newest), 1) if newest else None

    def describe(self) -> dict[str, Any]:
        return {
            "metric": self.goal.metric.name,
            "type": self.goal.type,
            "target_value": self.goal.value,
            "listed": bool(self.listed),
            "values": {holder: self.values[holder] for holder in sorted(self.holders & set(self.values))},
            "prometheus": {
                holder: round(self.recorded[holder].values[-1], 3)
                for holder in sorted(self.holders & set(self.recorded))
            },
            "age_s": self.age_s,
        }

    def agrees(self, holder: str) -> bool:
        """Whether Prometheus has lately recorded such a value."""
        series = self.recorded.get(holder)
        if series is None:
            return False
        low, high = min(series.values), max(series.values)
        slack = max(high - low, TOLERANCE * self.goal.value)
        return low - slack <= self.values[holder] <= high + slack


@dataclass(frozen=True)
class Observation:
    """What the cluster shows of one autoscaler.

    exists:      its target is there.   replicas: that the target is to have.
    pods, ready_pods: names of the target's pods.
    goals:       one entry for each metric of ours.
    desired:     replicas that the HPA wants; conditions: of the HPA, by type.
    unread:      metrics of the HPA's spec for which its status has no current value.
    """

    exists: bool
    replicas: int
    pods: frozenset[str]
    ready_pods: frozenset[str]
    goals: tuple[GoalEvidence, ...]
    desired: int | None
    conditions: Mapping[str, Mapping[str, Any]]
    unread: tuple[str, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Nothing of the target runs now."""
        return not self.ready_pods

    @property
    def is_hopeless(self) -> bool:
        """Nothing of the target runs, and nothing is about to."""
        return self.is_idle and not (self.replicas and self.pods)

    @property
    def is_verified(self) -> bool:
        return not self.is_idle and all(goal.is_right for goal in self.goals) and self.is_scaling and not self.unread

    @property
    def is_scaling(self) -> bool:
        return self.conditions.get("ScalingActive", {}).get("status") == "True"

    def describe(self) -> dict[str, Any]:
        return {
            "verified": self.is_verified,
            "replicas": self.replicas,
            "desired_replicas": self.desired,
            "ready_pods": sorted(self.ready_pods),
            "values": self.goals[0].describe()["values"] if self.goals else {},
            "metrics": [goal.describe() for goal in self.goals],
            "conditions": [
                {key: condition.get(key) for key in ("type", "status", "reason", "message")}
                for condition in self.conditions.values()
            ],
        }


class Observer:
    """Reads what autoscalers show. What several of them share is read once a look, targets and rules once.

    A value that has agreed with Prometheus in one look need not agree in the next: among many pods one always moves.
    """

    def __init__(self, kube: KubeClient, prometheus: PrometheusClient, backend: Backend) -> None:
        self._kube = kube
        self._prometheus = prometheus
        self._backend = backend
        self._targets: dict[Key, TargetState] = {}
        self._intervals: dict[str, float] | None = None
        self._agreed: dict[tuple[Key, str, str], frozenset[str]] = {}

    def observe(self, autoscalers: Sequence[Autoscaler]) -> dict[Key, Observation]:
        """One look. Prometheus is read last, so that its window covers what the metrics API said."""
        if not autoscalers:
            return {}
        to_read = [each for each in autoscalers if each.key not in self._targets]
        self._targets.update(read_targets(self._kube, to_read))
        targets = self._targets
        pods = read_pods(self._kube, autoscalers, targets)
        hpas = list_in(self._kube, HPAS, {each.namespace for each in autoscalers})
        listed = self._listed(autoscalers)
        values = self._values(autoscalers, targets)
        recorded, now_s = self._recorded(autoscalers)
        found = {}
        for each in autoscalers:
            ready = frozenset(pod["metadata"]["name"] for pod in pods[each.key] if is_ready(pod))
            goals = []
            for goal in each.goals:
                holders = ready if goal.type == PODS_METRIC else frozenset({each.target.name} if ready else ())
                offered, place = listed[goal.type], (each.key, goal.metric.name, goal.type)
                evidence = GoalEvidence(
                    goal,
                    holders,
                    listed=None if offered is None else self._backend.listing(goal, each.target) in offered,
                    **values[place],
                    recorded=recorded.get((goal.series, each.namespace), {}),
                    agreed=self._agreed.get(place, frozenset()),
                    now_s=now_s,
                )
                known = evidence.holders & set(evidence.values)
                self._agreed[place] = evidence.agreed | {holder for holder in known if evidence.agrees(holder)}
                goals.append(evidence)
            hpa = hpas.get(each.key, {})
            found[each.key] = Observation(
                exists=targets[each.key].manifest is not None,
                replicas=targets[each.key].replicas,
                pods=frozenset(pod["metadata"]["name"] for pod in pods[each.key]),
                ready_pods=ready,
                goals=tuple(goals),
                desired=(hpa.get("status") or {}).get("desiredReplicas"),
                conditions=_conditions(hpa),
                unread=_unread_metrics(hpa),
            )
            if not ready:  # what has nothing to show may be changed meanwhile
                del self._targets[each.key]
        return found

    def _listed(self, autoscalers: Sequence[Autoscaler]) -> dict[str, set[str] | None]:
        """The metrics that the API for each type offers, None if it does not answer."""
        listed: dict[str, set[str] | None] = {}
        for metric_type in {goal.type for each in autoscalers for goal in each.goals}:
            try:
                listed[metric_type] = self._backend.listed(metric_type)
            except ApiError:
                listed[metric_type] = None
        return listed

    def _values(
        self, autoscalers: Sequence[Autoscaler], targets: Mapping[Key, TargetState]
    ) -> dict[tuple[Key, str, str], dict[str, Any]]:
        """By autoscaler, metric and type: the values by holder, or the refusal.

        Many autoscalers that share a namespace and a metric are asked for together, with all pods of the namespace.
        """
        sharers: dict[tuple[str, str], list[Autoscaler]] = {}
        wanted = [(each, goal) for each in autoscalers for goal in each.goals]
        for each, goal in wanted:
            if goal.type == PODS_METRIC:
                sharers.setdefault((each.namespace, goal.metric.name), []).append(each)

        def request(each: Autoscaler, goal: Goal) -> tuple[str, ...]:
            if goal.type != PODS_METRIC:
                return (each.namespace, goal.metric.name, goal.type, each.target.name)
            alone = len(sharers[each.namespace, goal.metric.name]) <= AUTOSCALERS_ASKED_ALONE
            selector = format_selector(targets[each.key].selector or {}) if alone else ""
            return (each.namespace, goal.metric.name, goal.type, selector)

        requests = {request(each, goal): (each, goal) for each, goal in wanted}

        def read(item: tuple[tuple[str, ...], tuple[Autoscaler, Goal]]) -> list[MetricValue]:
            (namespace, _metric, _type, pods), (each, goal) = item
            return self._backend.read(goal, each.target, namespace, pods)

        answers = dict(zip(requests, in_parallel(read, list(requests.items())), strict=True))
        return {
            (each.key, goal.metric.name, goal.type): _by_holder(answers[request(each, goal)], each)
            for each, goal in wanted
        }

    def _recorded(self, autoscalers: Sequence[Autoscaler]) -> tuple[dict[tuple[str, str], dict[str, Series]], float]:
        """The samples of the window by recorded series and namespace, then by holder; none while Prometheus is away."""
        found: dict[tuple[str, str], dict[str, Series]] = {}
        namespaces = sorted({each.namespace for each in autoscalers})
        matcher = f'{{namespace=~"{"|".join(namespaces)}"}}' if len(namespaces) <= _NAMESPACES_IN_QUERY else ""
        try:
            for name in sorted({goal.series for each in autoscalers for goal in each.goals} - {""}):
                for series in self._prometheus.query(f"{name}{matcher}[{self._window_s(name)}s]"):
                    place = name, series.labels.get("namespace", "")
                    found.setdefault(place, {})[_holder(series)] = series
            return found, self._prometheus.query("time()")[0].values[0]
        except (ApiError, QueryError):
            return {}, 0.0

    def _window_s(self, series: str) -> int:
        """Long enough for two samples of a rule that is evaluated rarely."""
        if self._intervals is None:
            self._intervals = {}
            with suppress(ApiError, QueryError):  # something in front of several Prometheus may not know its rules
                rules = self._prometheus.recording_rules()
                self._intervals = {rule["name"]: float(rule.get("interval") or 0) for rule in rules}
        return max(AGREEMENT_WINDOW_S, math.ceil(2 * self._intervals.get(series, 0)))


def _by_holder(answer: list[MetricValue] | ApiError | HopError, autoscaler: Autoscaler) -> dict[str, Any]:
    if isinstance(answer, ApiError):
        return {"refusal": answer.message}
    if isinstance(answer, HopError):
        return {"refusal": answer.seen}
    # An external metric has no described object: it is the target's.
    return {"values": {value.name or autoscaler.target.name: value.value for value in answer}}


def _holder(series: Series) -> str:
    """The pod that a recorded series is of, or the workload."""
    return next((series.labels[label] for label in ("pod", *WORKLOAD_LABELS.values()) if label in series.labels), "")


def _unread_metrics(hpa: Manifest) -> tuple[str, ...]:
    """Metrics that the HPA controller has no value for: their entry in the status is missing or empty.

    Its condition ScalingActive stays True as long as one of several metrics works. Before it has looked at any there is
    neither.
    """
    entries = (hpa.get("status") or {}).get("currentMetrics")
    if entries is None:
        return ()
    current = {_metric_id(entry) for entry in entries}
    wanted = [_metric_id(entry) for entry in (hpa.get("spec") or {}).get("metrics") or ()]
    return tuple(" ".join(filter(None, metric)) for metric in wanted if metric not in current)


def _metric_id(entry: Manifest) -> tuple[str, str, str]:
    kind = entry.get("type") or ""
    content = entry.get(kind[:1].lower() + kind[1:]) or {}
    return kind, content.get("name") or (content.get("metric") or {}).get("name") or "", content.get("container") or ""


def _conditions(manifest: Manifest) -> dict[str, Manifest]:
    return {each["type"]: each for each in (manifest.get("status") or {}).get("conditions") or ()}
