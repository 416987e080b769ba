# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the last hops show for each autoscaler: the evidence. Judging it is left to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..autoscaling.manifests import Manifest
from ..autoscaling.spec import PODS as PODS_METRIC
from ..autoscaling.spec import WORKLOAD_LABELS, Autoscaler, Goal
from ..cluster.errors import ApiError, QueryError
from ..cluster.kube import HPAS, PODS, KubeClient
from ..cluster.metrics_api import MetricValue
from ..cluster.parallel import in_parallel
from ..cluster.prometheus import PrometheusClient, Series
from ..cluster.selectors import selects
from ..errors import HopError
from .backend import Backend
from .snapshot import Key, TargetState, key_of, list_in, pod_selector, read_targets

# Under load the adapter's value and Prometheus' move between two reads: any value of this window agrees.
AGREEMENT_WINDOW_S = 30
# The adapter rounds to thousandths.
ROUNDING = 0.01
# A matcher that names more namespaces than this costs Prometheus more than their series do.
_NAMESPACES_IN_QUERY = 20


@dataclass(frozen=True)
class GoalEvidence:
    """What the chain shows of one metric of one autoscaler.

    holders:  who has to have a value: the ready pods, or the target itself.
    listed:   the metrics API offers the metric; None if it does not answer.
    values:   of the metrics API, by holder; refusal: what it answered instead.
    recorded: the samples in Prometheus, by holder.
    now_s:    Prometheus' clock, Unix seconds.
    """

    goal: Goal
    holders: frozenset[str]
    listed: bool | None = True
    values: Mapping[str, float] = field(default_factory=dict)
    refusal: str = ""
    recorded: Mapping[str, Series] = field(default_factory=dict)
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
        return sorted(holder for holder in self.holders & set(self.values) if not self._agrees(holder))

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

    def _agrees(self, holder: str) -> bool:
        series = self.recorded.get(holder)
        return series is not None and (
            min(series.values) - ROUNDING <= self.values[holder] <= max(series.values) + ROUNDING
        )


@dataclass(frozen=True)
class Observation:
    """What the cluster shows of one autoscaler.

    exists:      its target is there.   replicas: that the target is to have.
    pods, ready_pods: names of the target's pods.
    goals:       one entry for each metric of ours.
    desired:     replicas that the HPA wants; conditions: of the HPA, by type.
    """

    exists: bool
    replicas: int
    pods: frozenset[str]
    ready_pods: frozenset[str]
    goals: tuple[GoalEvidence, ...]
    desired: int | None
    conditions: Mapping[str, Mapping[str, Any]]

    @property
    def is_idle(self) -> bool:
        """Nothing of the target runs, so there is nothing to be seen of it, however long one waits."""
        return not self.ready_pods

    @property
    def is_verified(self) -> bool:
        return not self.is_idle and all(goal.is_right for goal in self.goals) and self.is_scaling

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
    """Reads what autoscalers show. What several of them share is read once a round."""

    def __init__(self, kube: KubeClient, prometheus: PrometheusClient, backend: Backend) -> None:
        self._kube = kube
        self._prometheus = prometheus
        self._backend = backend

    def observe(self, autoscalers: Sequence[Autoscaler]) -> dict[Key, Observation]:
        """One round. Prometheus is read last, so that its window covers what the metrics API said."""
        if not autoscalers:
            return {}
        targets = self._targets(autoscalers)
        pods = self._pods(autoscalers, targets)
        hpas = {key_of(hpa): hpa for hpa in self._kube.list(HPAS) or ()}
        listed = self._listed(autoscalers)
        values = self._values(autoscalers, targets)
        recorded, now_s = self._recorded(autoscalers)
        found = {}
        for each in autoscalers:
            its_pods = pods[each.key]
            ready = frozenset(name for name, is_ready in its_pods.items() if is_ready)
            goals = []
            for goal in each.goals:
                holders = ready if goal.type == PODS_METRIC else frozenset({each.target.name} if ready else ())
                offered = listed[goal.type]
                goals.append(
                    GoalEvidence(
                        goal,
                        holders,
                        listed=None if offered is None else self._backend.listing(goal, each.target) in offered,
                        **values[each.key, goal.metric.name, goal.type],
                        recorded=recorded.get((goal.series, each.namespace), {}),
                        now_s=now_s,
                    )
                )
            hpa = hpas.get(each.key, {})
            found[each.key] = Observation(
                exists=targets[each.key].exists,
                replicas=targets[each.key].replicas,
                pods=frozenset(its_pods),
                ready_pods=ready,
                goals=tuple(goals),
                desired=(hpa.get("status") or {}).get("desiredReplicas"),
                conditions=_conditions(hpa),
            )
        return found

    def _targets(self, autoscalers: Sequence[Autoscaler]) -> dict[Key, _Scale]:
        """Replicas and selector of each target; from the object where we know its shape, else from its scale."""
        states = read_targets(self._kube, autoscalers)
        unknown = [each for each in autoscalers if _is_there(states[each.key]) and not _selector(states[each.key])]
        scales = dict(zip((each.key for each in unknown), in_parallel(self._scale, unknown), strict=True))
        return {
            each.key: _scale_of_answer(scales[each.key])
            if each.key in scales
            else _scale_of_object(states[each.key].manifest)
            for each in autoscalers
        }

    def _scale(self, autoscaler: Autoscaler) -> Manifest | None:
        target = autoscaler.target
        resource = self._kube.discover(target.api_version)[target.kind]
        return self._kube.get(resource, target.name, autoscaler.namespace, subresource="scale")

    def _pods(self, autoscalers: Sequence[Autoscaler], targets: Mapping[Key, _Scale]) -> dict[Key, dict[str, bool]]:
        """The pods of each target by name, and whether each is ready."""
        by_namespace: dict[str, list[Manifest]] = {}
        for pod in list_in(self._kube, PODS, {each.namespace for each in autoscalers}).values():
            if not pod["metadata"].get("deletionTimestamp"):
                by_namespace.setdefault(pod["metadata"]["namespace"], []).append(pod)
        found = {}
        for each in autoscalers:
            is_its = selects(targets[each.key].selector)
            its = [pod for pod in by_namespace.get(each.namespace, ()) if is_its(pod)]
            found[each.key] = {pod["metadata"]["name"]: _is_ready(pod) for pod in its}
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
        self, autoscalers: Sequence[Autoscaler], targets: Mapping[Key, _Scale]
    ) -> dict[tuple[Key, str, str], dict[str, Any]]:
        """By autoscaler, metric and type: the values by holder, or the refusal.

        Autoscalers that share a namespace and a metric are asked for together, with all pods of the namespace.
        """
        sharers: dict[tuple[str, str], list[Autoscaler]] = {}
        wanted = [(each, goal) for each in autoscalers for goal in each.goals]
        for each, goal in wanted:
            if goal.type == PODS_METRIC:
                sharers.setdefault((each.namespace, goal.metric.name), []).append(each)

        def request(each: Autoscaler, goal: Goal) -> tuple[str, ...]:
            if goal.type != PODS_METRIC:
                return (each.namespace, goal.metric.name, goal.type, each.target.name)
            alone = len(sharers[each.namespace, goal.metric.name]) == 1
            return (each.namespace, goal.metric.name, goal.type, targets[each.key].selector if alone else "")

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
                for series in self._prometheus.query(f"{name}{matcher}[{AGREEMENT_WINDOW_S}s]"):
                    place = name, series.labels.get("namespace", "")
                    found.setdefault(place, {})[_holder(series)] = series
            return found, self._prometheus.query("time()")[0].values[0]
        except (ApiError, QueryError):
            return {}, 0.0


@dataclass(frozen=True)
class _Scale:
    exists: bool
    replicas: int
    selector: str


def _is_there(state: TargetState) -> bool:
    return state.served and state.manifest is not None


def _selector(state: TargetState) -> str:
    return pod_selector(state.manifest)


def _scale_of_object(manifest: Manifest | None) -> _Scale:
    if manifest is None:
        return _Scale(exists=False, replicas=0, selector="")
    return _Scale(exists=True, replicas=manifest["spec"].get("replicas", 1), selector=pod_selector(manifest))


def _scale_of_answer(scale: Manifest | ApiError | HopError | None) -> _Scale:
    if not isinstance(scale, dict):
        return _Scale(exists=False, replicas=0, selector="")
    selector = (scale.get("status") or {}).get("selector", "")
    return _Scale(exists=True, replicas=scale["spec"].get("replicas", 0), selector=selector)


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


def _is_ready(pod: Manifest) -> bool:
    return _conditions(pod).get("Ready", {}).get("status") == "True"


def _conditions(manifest: Manifest) -> dict[str, Manifest]:
    return {each["type"]: each for each in (manifest.get("status") or {}).get("conditions") or ()}
