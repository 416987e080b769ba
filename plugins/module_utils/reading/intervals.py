# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the actual periods of the reaction time: from the configuration if readable, otherwise from samples."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from statistics import median

from ..autoscaling.dcgm_fields import in_1x
from ..autoscaling.metrics import Metric, smoothed_evaluations, smoothed_interval_s
from ..autoscaling.reaction_budget import Period, ReactionBudget
from ..autoscaling.spec import MetricTarget
from ..chain.exporter_options import given_collect_interval_s
from ..cluster.errors import ApiError, QueryError
from ..cluster.kube import DAEMON_SETS, PODS, KubeClient
from ..cluster.prometheus_client import PrometheusClient, Series
from ..kube.known_components import EXPORTER
from ..kube.objects import seconds

# dcgm-exporter's own default is 30 s, Prometheus' and Kubernetes' are in their reference documentation.
_STOCK = {"collect": 30.0, "scrape": 30.0, "evaluate": 30.0, "sync": 15.0}

_SYNC_FLAG = "--horizontal-pod-autoscaler-sync-period="


class Intervals:
    """Read once, then used for each metric."""

    def __init__(self, kube: KubeClient, prometheus: PrometheusClient, evaluate_s: int | None = None) -> None:
        """evaluate_s: interval of rules that will be written; None for those that Prometheus has."""
        self._prometheus = prometheus
        self._collect = _collect_period(kube)
        self._sync = sync_period(kube)
        self._scrape: dict[tuple[str, ...], Period] = {}
        self._written_s = evaluate_s
        self._evaluate = {} if evaluate_s else _evaluation_periods(prometheus)

    def budget(self, metric_target: MetricTarget) -> ReactionBudget:
        metric = metric_target.metric
        return ReactionBudget(
            collect=self._collect if metric.is_of_gpus else Period(0, "assumed"),
            scrape=self._scrape_period(metric),
            evaluate=self._evaluate_period(metric_target),
            sync=self._sync,
        )

    def _evaluate_period(self, metric_target: MetricTarget) -> Period:
        """Seconds until the recorded series shows a step that the HPA acts on.

        Series of a workload use the series of its pods, in a separate group.
        """
        metric, series = metric_target.metric, metric_target.series
        if series == metric.series:
            return self._pods_period(metric_target)
        of_workload = self._interval(series)
        if not metric.query or metric.per == "workload" or not self._is_recorded(metric.series):
            return of_workload
        return replace(of_workload, seconds=of_workload.seconds + self._pods_period(metric_target).seconds)

    def _pods_period(self, metric_target: MetricTarget) -> Period:
        """A smoothed series needs more than one evaluation."""
        metric = metric_target.metric
        found = self._interval(metric.series, metric.is_smoothed)
        if metric.is_smoothed and self._is_recorded(metric.latest):
            return replace(found, seconds=smoothed_evaluations(metric_target.value) * found.seconds)
        return found

    def _interval(self, series: str, is_smoothed: bool = False) -> Period:
        if self._written_s:
            return Period(smoothed_interval_s(self._written_s) if is_smoothed else self._written_s)
        return self._evaluate.get(series, Period(_STOCK["evaluate"], "assumed"))

    def _is_recorded(self, series: str) -> bool:
        return bool(self._written_s) or series in self._evaluate

    def _scrape_period(self, metric: Metric) -> Period:
        if metric.sources not in self._scrape:
            self._scrape[metric.sources] = _seen_scrape_period(self._prometheus, metric.sources)
        return self._scrape[metric.sources]


def _collect_period(kube: KubeClient) -> Period:
    """The interval of the slowest dcgm-exporter, by its arguments or its environment."""
    try:
        daemon_sets = kube.list(DAEMON_SETS) or ()
    except ApiError:
        daemon_sets = ()
    containers = [container for daemon_set in daemon_sets if (container := EXPORTER.container(daemon_set))]
    given = [interval_s for container in containers if (interval_s := given_collect_interval_s(container))]
    return Period(max(given)) if given else Period(_STOCK["collect"], "assumed")


def _seen_scrape_period(prometheus: PrometheusClient, sources: tuple[str, ...]) -> Period:
    """Median interval of samples, from the series with most samples: new series have too few."""
    for source in dict.fromkeys((*sources, *map(in_1x, sources))):
        for window in ("1m", "5m"):  # the longer one is for scrape intervals of a minute, and costs more
            try:
                longest = prometheus.query(f"topk(1, count_over_time({source}[{window}]))")
                if longest and (period := _spacing(prometheus.query(f"{source}{_selector(longest[0])}[{window}]"))):
                    return Period(period, "seen")
            except (ApiError, QueryError):
                return Period(_STOCK["scrape"], "assumed")
    return Period(_STOCK["scrape"], "assumed")


def _selector(series: Series) -> str:
    labels = (f"{name}={json.dumps(value)}" for name, value in series.labels.items() if name != "__name__")
    return "{" + ",".join(labels) + "}"


def _spacing(found: list[Series]) -> float:
    """Median seconds between two samples; 0 if there are not two."""
    gaps = [later - earlier for series in found for earlier, later in pairwise(series.times)]
    return median(gaps) if gaps else 0.0


def _evaluation_periods(prometheus: PrometheusClient) -> dict[str, Period]:
    """Intervals by recorded series."""
    try:
        rules = prometheus.recording_rules()
    except (ApiError, QueryError):
        return {}
    return {rule["name"]: Period(float(rule["interval"])) for rule in rules if rule.get("interval")}


def sync_period(kube: KubeClient) -> Period:
    """Flags of the controller manager, if its pods are visible. A managed control plane hides them."""
    try:
        pods = kube.list(PODS, namespace="kube-system", label_selector="component=kube-controller-manager") or ()
    except ApiError:
        pods = ()
    for pod in pods:
        for container in pod["spec"]["containers"]:
            for argument in [*(container.get("command") or ()), *(container.get("args") or ())]:
                if argument.startswith(_SYNC_FLAG):
                    return Period(seconds(argument.removeprefix(_SYNC_FLAG)) or _STOCK["sync"])
    return Period(_STOCK["sync"]) if pods else Period(_STOCK["sync"], "assumed")
