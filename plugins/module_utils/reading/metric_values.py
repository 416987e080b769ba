# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the state of autoscalers: HPAs, targets, pods, and values of metrics. No checks here."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ..autoscaling.dcgm_fields import in_todays, is_field
from ..autoscaling.manifests import backend_behind, horizontal_pod_autoscaler
from ..autoscaling.metrics import Metric
from ..autoscaling.promql import DCGM_EXPORTER, one_of
from ..autoscaling.spec import PODS as PODS_METRIC
from ..autoscaling.spec import WORKLOAD_LABELS, Autoscaler, MetricTarget
from ..chain.state.autoscaler import AutoscalerState
from ..chain.state.metric import MetricState
from ..cluster.errors import ApiError, QueryError
from ..cluster.kube import HPAS, KubeClient
from ..cluster.listing import list_in
from ..cluster.metrics_api import CUSTOM_METRICS, MetricsApi, MetricValue, group_of
from ..cluster.parallel import in_parallel
from ..cluster.prometheus_client import PrometheusClient, Series, merged_series
from ..errors import HopError
from ..kube.label_selectors import format_selector
from ..kube.objects import Key, Manifest, is_ready
from .demands import read_demands
from .pods import AUTOSCALERS_ASKED_ALONE, read_pods
from .rejected_requests import read_rejections
from .served_metrics import served_metrics
from .targets import TargetState, read_targets

# Under load, values change between the reads of adapter and Prometheus: any sample of this window counts.
AGREEMENT_WINDOW_S = 30
# A matcher with more namespaces than this costs Prometheus more than their series do.
_NAMESPACES_IN_QUERY = 20


@dataclass(frozen=True)
class _Answer:
    """The metrics API's response for one metric: values by object, or the error."""

    values: Mapping[str, float] = field(default_factory=dict)
    refusal: str = ""


class Observer:
    """Reads autoscalers. One reading shares common parts; targets and rules are read only once.

    A value that agreed with Prometheus in one reading need not agree in the next: among many pods one always changes.
    """

    def __init__(
        self,
        kube: KubeClient,
        prometheus: PrometheusClient,
        replicas: Sequence[PrometheusClient] = (),
    ) -> None:
        """replicas: pods behind the Service of Prometheus, if there are several that may be queried."""
        self._kube = kube
        self._prometheus = prometheus
        self._replicas = list(replicas)
        self._api = MetricsApi(kube.get_raw)
        self._served = served_metrics(self._api, prometheus)
        self._targets: dict[Key, TargetState] = {}
        self._intervals: dict[str, float] | None = None
        self._agreed: dict[tuple[Key, str, str], frozenset[str]] = {}

    def observe(self, autoscalers: Sequence[Autoscaler]) -> dict[Key, AutoscalerState]:
        """One reading. Prometheus is read last, so that its window covers the values of the metrics API.

        Raises: ApiError, also without permission for a target or its scale.
        """
        if not autoscalers:
            return {}
        unknown = [autoscaler for autoscaler in autoscalers if autoscaler.key not in self._targets]
        refused: dict[Key, ApiError] = {}
        self._targets.update(read_targets(self._kube, unknown, refused=refused))
        if refused:  # without its pods an autoscaler would appear broken
            raise next(iter(refused.values()))
        pods = read_pods(self._kube, autoscalers, self._targets)
        hpas = list_in(self._kube, HPAS, {autoscaler.namespace for autoscaler in autoscalers})
        listed = self._listed(autoscalers)
        answers = self._values(autoscalers, self._targets)
        recorded, now_s = self._recorded(autoscalers)
        demands = read_demands(self._prometheus, autoscalers, now_s)
        rejections = read_rejections(self._prometheus, autoscalers)
        states = {}
        for autoscaler in autoscalers:
            target = self._targets[autoscaler.key]
            ready = frozenset(pod["metadata"]["name"] for pod in pods[autoscaler.key] if is_ready(pod))
            states[autoscaler.key] = AutoscalerState(
                _hpa_of(autoscaler, hpas.get(autoscaler.key)),
                target.manifest,
                pods=pods[autoscaler.key],
                metrics=[
                    self._metric_state(
                        autoscaler,
                        metric_target,
                        ready,
                        listed[group_of(autoscaler, metric_target)],
                        answers[autoscaler.key, metric_target.metric.name, metric_target.type],
                        recorded.get((metric_target.series, autoscaler.namespace), {}),
                        now_s,
                    )
                    for metric_target in autoscaler.metric_targets
                ],
                replicas=target.replicas if target.manifest is not None else None,
                demand=demands.get(autoscaler.key),
                rejections={pod: seen for pod, seen in rejections.get(autoscaler.key, {}).items() if pod in ready},
            )
            if not ready:  # such a target may be changed in the meantime
                del self._targets[autoscaler.key]
        return states

    def _metric_state(
        self,
        autoscaler: Autoscaler,
        metric_target: MetricTarget,
        ready: frozenset[str],
        offered: set[str] | None,
        answer: _Answer,
        recorded: Mapping[str, Series],
        now_s: float,
    ) -> MetricState:
        metric, group = metric_target.metric, group_of(autoscaler, metric_target)
        listed = None
        if offered is not None:
            listed = self._served[autoscaler.backend].discovery_name(metric_target, autoscaler) in offered
            # KEDA lists one name for all metrics, so only a listed name is significant.
            listed = listed if group == CUSTOM_METRICS else listed or None
        of_target = {autoscaler.target.name} if ready else ()
        place = autoscaler.key, metric.name, metric_target.type
        state = MetricState(
            metric.name,
            group,
            metric_target.type,
            backend=autoscaler.backend,
            series=metric_target.series,
            sources=sources_of(metric),
            reporter=metric.reporter or (DCGM_EXPORTER.name if is_field(metric.name) else ""),
            unit=metric.unit,
            target_value=metric_target.value,
            expected_objects=ready if metric_target.type == PODS_METRIC else frozenset(of_target),
            listed=listed,
            refusal=answer.refusal,
            values=answer.values,
            recorded={name: series.values for name, series in recorded.items()},
            sampled_s={name: series.times[-1] for name, series in recorded.items()},
            now_s=now_s,
            agreed=self._agreed.get(place, frozenset()),
        )
        known = state.expected_objects & set(state.values)
        self._agreed[place] = state.agreed | {name for name in known if state.agrees(name)}
        return state

    def _listed(self, autoscalers: Sequence[Autoscaler]) -> dict[str, set[str] | None]:
        """Metrics listed by each API, by group; None if it does not answer."""
        listed: dict[str, set[str] | None] = {}
        groups = {group_of(autoscaler, target) for autoscaler in autoscalers for target in autoscaler.metric_targets}
        for group in groups:
            try:
                listed[group] = self._api.listed(group)
            except ApiError:
                listed[group] = None
        return listed

    def _values(
        self, autoscalers: Sequence[Autoscaler], targets: Mapping[Key, TargetState]
    ) -> dict[tuple[Key, str, str], _Answer]:
        """Values by autoscaler, metric and type.

        Many autoscalers with the same namespace and metric share one query for all pods of the namespace.
        """
        sharers: dict[tuple[str, str, str], list[Autoscaler]] = {}
        wanted = [(autoscaler, target) for autoscaler in autoscalers for target in autoscaler.metric_targets]

        def place_of(autoscaler: Autoscaler, target: MetricTarget) -> tuple[str, str, str]:
            return autoscaler.backend, autoscaler.namespace, target.metric.name

        for autoscaler, target in wanted:
            if target.type == PODS_METRIC:
                sharers.setdefault(place_of(autoscaler, target), []).append(autoscaler)

        def request(autoscaler: Autoscaler, target: MetricTarget) -> tuple[str, ...]:
            place = place_of(autoscaler, target)
            if target.type != PODS_METRIC:
                return (*place, target.type, autoscaler.target.name)
            is_alone = len(sharers[place]) <= AUTOSCALERS_ASKED_ALONE
            return (*place, target.type, format_selector(targets[autoscaler.key].selector or {}) if is_alone else "")

        requests = {request(autoscaler, target): (autoscaler, target) for autoscaler, target in wanted}

        def read(item: tuple[tuple[str, ...], tuple[Autoscaler, MetricTarget]]) -> list[MetricValue]:
            (*_place, pods), (autoscaler, target) = item
            return self._served[autoscaler.backend].read(target, autoscaler, pods)

        answers = dict(zip(requests, in_parallel(read, list(requests.items())), strict=True))
        return {
            (autoscaler.key, target.metric.name, target.type): _answer(answers[request(autoscaler, target)], autoscaler)
            for autoscaler, target in wanted
        }

    def _recorded(self, autoscalers: Sequence[Autoscaler]) -> tuple[dict[tuple[str, str], dict[str, Series]], float]:
        names = {target.series for autoscaler in autoscalers for target in autoscaler.metric_targets} - {""}
        return self.recorded(names, {autoscaler.namespace for autoscaler in autoscalers})

    def recorded(
        self, names: Collection[str], namespaces: Collection[str]
    ) -> tuple[dict[tuple[str, str], dict[str, Series]], float]:
        """Samples of the window by recorded series and namespace, then by object; none if Prometheus does not answer.

        All replicas are queried, because the metrics API returns the value of any. Objects that are unknown to
        one of them are dropped, because their value is intermittent.
        """
        matcher = f"{{{one_of('namespace', sorted(namespaces))}}}" if len(namespaces) <= _NAMESPACES_IN_QUERY else ""
        queries = {name: f"{name}{matcher}[{self._window_s(name)}s]" for name in sorted(names)}
        try:
            return self._samples(queries), self._prometheus.query("time()")[0].values[0]
        except (ApiError, QueryError):
            return {}, 0.0

    def _samples(self, queries: Mapping[str, str]) -> dict[tuple[str, str], dict[str, Series]]:
        """If a replica does not answer, only the Service is queried, now and in later readings."""
        if self._replicas:
            try:
                return _common(_by_object(replica, queries) for replica in self._replicas)
            except (ApiError, QueryError):
                self._replicas = []
        return _common([_by_object(self._prometheus, queries)])

    def _window_s(self, series: str) -> int:
        """Long enough for two samples of a rule that is evaluated rarely."""
        if self._intervals is None:
            self._intervals = {}
            with suppress(ApiError, QueryError):  # a proxy in front of several Prometheus may not know its rules
                rules = self._prometheus.recording_rules()
                self._intervals = {rule["name"]: float(rule.get("interval") or 0) for rule in rules}
        return max(AGREEMENT_WINDOW_S, math.ceil(2 * self._intervals.get(series, 0)))


def _hpa_of(autoscaler: Autoscaler, live: Manifest | None) -> Manifest:
    """The HPA of the autoscaler's backend, or its future state if KEDA has not created or adopted it yet."""
    is_its = live is not None and backend_behind(live) == autoscaler.backend
    return live if live is not None and is_its else horizontal_pod_autoscaler(autoscaler)


def _by_object(prometheus: PrometheusClient, queries: Mapping[str, str]) -> dict[tuple[str, str, str], Series]:
    """Samples by recorded series, namespace and object."""
    return {
        (name, series.labels.get("namespace", ""), _object_of(series)): series
        for name, query in queries.items()
        for series in prometheus.query(query)
    }


def _common(
    answers: Iterable[Mapping[tuple[str, str, str], Series]],
) -> dict[tuple[str, str], dict[str, Series]]:
    """Samples of all replicas, of objects known to each of them; oldest first."""
    first, *others = answers
    found: dict[tuple[str, str], dict[str, Series]] = {}
    for place, series in first.items():
        if all(place in other for other in others):
            found.setdefault(place[:2], {})[place[2]] = merged_series([series, *(other[place] for other in others)])
    return found


def sources_of(metric: Metric) -> tuple[str, ...]:
    """The series of a metric. A field of DCGM, for a metric that others serve under an exporter's name."""
    return metric.sources or ((in_todays(metric.name),) if is_field(metric.name) else ())


def _answer(answer: list[MetricValue] | ApiError | HopError, autoscaler: Autoscaler) -> _Answer:
    if isinstance(answer, ApiError):
        return _Answer(refusal=answer.message)
    if isinstance(answer, HopError):
        return _Answer(refusal=answer.seen)
    # An external metric has no described object: it is the target's.
    return _Answer({value.name or autoscaler.target.name: value.value for value in answer})


def _object_of(series: Series) -> str:
    """The pod or workload of a recorded series."""
    return next((series.labels[label] for label in ("pod", *WORKLOAD_LABELS.values()) if label in series.labels), "")
