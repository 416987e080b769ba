# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite, isnan, nan
from multiprocessing import get_all_start_methods, get_context
from typing import Any

from ..autoscaling.controller import Behavior
from ..autoscaling.explanation import RecordedDecisions
from ..autoscaling.manifests import as_decided
from ..autoscaling.pod_names import are_cut
from ..autoscaling.replay import Form, PlannedMetric, Setting, Trace
from ..autoscaling.replay_plan import TODAY, Subject, overload_of, plan
from ..autoscaling.spec import PODS, SMALLEST_TARGET, Autoscaler, MetricTarget
from ..cluster.kube import KubeClient
from ..cluster.prometheus_client import PrometheusClient
from ..errors import HopError
from ..kube.capacity import gpus_per_pod
from ..kube.objects import Key, Manifest, pod_spec
from ..reading.existing_autoscalers import read_autoscalers
from ..reading.intervals import sync_period
from ..reading.prometheus_replicas import fullest, read_replicas
from ..reading.targets import TargetState, read_targets
from .load_history import Recorded, Window, demand_series, read_loads, recorded_samples
from .outcome import Outcome

# The hop of errors about invalid options.
PLAN = "plan"
# Number of processes; for fewer autoscalers than this a second process is not worthwhile.
PROCESSES, WORTH_PROCESSES = 2, 20
# Reasons why nothing can be replayed.
_UNRECORDED = "Prometheus has recorded none of its metrics in that time"
_UNTOLD = "its load is found by the names of its pods, in which such a long name is truncated"
# Explanations need a finer step than the replay.
_RECENT_STEP_S = 5


@dataclass(frozen=True)
class PlanOptions:
    """Options of the replay; times are in seconds.

    history_s:         of the load.
    step_s:            sync period; None reads the flag of the controller manager.
    recent_s:          time range whose decisions are explained.
    pod_start_s:       None for the value that the HPA was computed with.
    overload:          None for the default of the metric.
    load:              replaces the recorded load, one value per step; None for the recorded load.
    """

    history_s: int
    step_s: int | None
    recent_s: int
    pod_start_s: int | None
    overload: float | None
    bound_minutes: float
    changes: Sequence[Mapping[str, Any]]
    load: Sequence[float] | None = None

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> PlanOptions:
        """Parses a user's options. Raises: HopError at hop "plan" if they are invalid."""
        for is_wrong, seen, fix in _REFUSALS:
            for wrong in filter(is_wrong, [params, *params["settings"]]):
                raise HopError(PLAN, seen.format(**wrong), fix)
        return cls(
            history_s=params["history"],
            step_s=params["step"],
            recent_s=params["recent"],
            pod_start_s=params["pod_start"],
            overload=params["overload"],
            bound_minutes=params["overload_minutes"],
            changes=params["settings"],
            load=params["load"],
        )


_IsWrong = Callable[[Mapping[str, Any]], bool]


def _is_below(least: float, option: str) -> _IsWrong:
    return lambda params: params.get(option) is not None and params[option] < least


def _is_without_policies(direction: str) -> _IsWrong:
    return lambda params: (params.get(direction) or {}).get("policies") == []


_REFUSALS: tuple[tuple[_IsWrong, str, str], ...] = (
    (_is_below(1, "history"), "history is {history}", "set it to some hours at least, for example 86400 for a day"),
    (_is_below(1, "step"), "step is {step}", "set it to 1 s or more"),
    (
        lambda params: params.get("step") is not None and params["history"] < params["step"],
        "history is {history} s, less than a step of {step} s",
        "set it to some hours at least, for example 86400 for a day",
    ),
    (_is_below(0, "recent"), "recent is {recent}", "set it to a number of seconds, or to 0"),
    (_is_below(0, "pod_start"), "pod_start is {pod_start}", "set it to 0 or more"),
    (_is_below(SMALLEST_TARGET, "overload"), "overload is {overload}", "set it to more than 0, or leave it out"),
    (_is_below(SMALLEST_TARGET, "target_value"), "target_value is {target_value}", f"use {SMALLEST_TARGET} or more"),
    (_is_below(1, "min_replicas"), "min_replicas is {min_replicas}", "set it to 1 or more"),
    (_is_below(1, "max_replicas"), "max_replicas is {max_replicas}", "set it to 1 or more"),
    (
        lambda params: (params.get("max_replicas") or inf) < (params.get("min_replicas") or 1),
        "max_replicas {max_replicas} is below min_replicas {min_replicas}",
        "raise max_replicas or lower min_replicas",
    ),
    (
        lambda params: params.get("name") == TODAY,
        f"a setting is called {TODAY}, as the current one",
        "give it another name",
    ),
    *(
        (_is_without_policies(way), f"policies of {way} are empty", "set at least one, or omit policies")
        for way in ("scale_up", "scale_down")
    ),
    (
        lambda params: "load" in params and params["load"] is not None and not params["load"],
        "load has no value",
        "give a value for each step, or leave it out",
    ),
)


def make_plans(
    kube: KubeClient,
    prometheus: PrometheusClient,
    *,
    namespace: str | None,
    keys: Collection[Key],
    options: PlanOptions,
) -> Outcome:
    """Plan autoscalers: all managed ones in a namespace or the cluster, or those in `keys`. Changes nothing.

    Raises: HopError if one that is named does not exist; ApiError, QueryError if Prometheus does not answer.
    """
    existing = read_autoscalers(kube, prometheus.service[0], namespace=namespace, keys=keys)
    autoscalers = [autoscaler for _hpa, autoscaler in existing]
    targets = read_targets(kube, autoscalers, managers=False)
    prometheus = fullest(prometheus, read_replicas(kube, prometheus), recorded_samples(options.history_s))
    now_s = prometheus.query("time()")[0].values[0]
    with_metrics = [autoscaler for autoscaler in autoscalers if autoscaler.metric_targets]
    step_s = options.step_s or max(1, round(sync_period(kube).seconds))
    window = Window(now_s, options.history_s, step_s)
    recent = Window(now_s, options.recent_s, _RECENT_STEP_S) if options.recent_s else None
    loads = read_loads(prometheus, with_metrics, window)
    lately = read_loads(prometheus, with_metrics, recent) if recent else {}
    subjects, not_planned = [], []
    for hpa, autoscaler in existing:
        made = _subject(autoscaler, hpa, targets[autoscaler.key], loads, lately, window, recent, options)
        if isinstance(made, str):
            not_planned.append({"namespace": autoscaler.namespace, "name": autoscaler.name, "reason": made})
        else:
            subjects.append(made)
    plans = plan_all(subjects, options.changes, options.bound_minutes)
    return Outcome(result={"plans": plans, "not_planned": not_planned})


def plan_all(
    subjects: Sequence[Subject], changes: Sequence[Mapping[str, Any]], bound_minutes: float
) -> list[dict[str, Any]]:
    """One plan per autoscaler, in their order. Many are distributed to processes, because a replay only computes."""
    make = partial(plan, changes=changes, bound_minutes=bound_minutes)
    if len(subjects) < WORTH_PROCESSES or "fork" not in get_all_start_methods():
        return [make(subject) for subject in subjects]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork")) as pool:
        return list(pool.map(make, subjects, chunksize=4))


def _subject(
    autoscaler: Autoscaler,
    hpa: Manifest,
    target: TargetState,
    loads: Mapping[Key, Recorded],
    lately: Mapping[Key, Recorded],
    window: Window,
    recent: Window | None,
    options: PlanOptions,
) -> Subject | str:
    """The autoscalers to plan, or why they cannot be planned."""
    recorded = loads.get(autoscaler.key)
    known = [metric for metric in autoscaler.metric_targets if recorded and metric.series in recorded.loads]
    if options.load is not None:
        known = [metric for metric in autoscaler.metric_targets if _has_the_load(metric, autoscaler)]
    if recorded is None or not known:
        return _UNTOLD if are_cut(autoscaler.target.kind, autoscaler.target.name) else _UNRECORDED
    metrics = tuple(_planned(metric_target, autoscaler) for metric_target in known)
    today = Setting(
        metrics,
        minimum=autoscaler.min_replicas,
        maximum=autoscaler.max_replicas,
        behavior=Behavior.of_hpa(as_decided(hpa)["spec"]),
        pod_start_s=autoscaler.dead_time if options.pod_start_s is None else options.pod_start_s,
        overload=overload_of(metrics[0], options.overload),
    )
    trace, has_demand = _trace(autoscaler, recorded, known, window)
    if options.load is not None:
        trace = Trace(window.start_s, window.step_s, {metric.name: options.load for metric in metrics})
    left_out = [metric.metric.name for metric in autoscaler.metric_targets if metric not in known]
    left_out += [str(raw["type"]) for raw in autoscaler.raw_metrics]
    seen = lately.get(autoscaler.key) if recent else None
    return Subject(
        identity={
            "namespace": autoscaler.namespace,
            "name": autoscaler.name,
            "target": {"kind": autoscaler.target.kind, "name": autoscaler.target.name},
            "metric": known[0].metric.name,
            "unit": known[0].metric.unit,
            "demand": has_demand,
        },
        today=today,
        trace=trace,
        units={metric.series: "%" if metric.metric.is_percent else metric.metric.unit for metric in known},
        gpus_per_replica=_gpus_per_replica(target.manifest or {}) or 1,
        recent=_decisions(autoscaler, seen, known, recent) if seen and recent else None,
        notes=tuple(f"metric {name} is not replayed: it is not recorded" for name in left_out),
    )


def _gpus_per_replica(workload: Manifest) -> int:
    """A replica of a LeaderWorkerSet is a group: a leader, and workers that may have another template."""
    gpus = sum(gpus_per_pod(pod_spec(workload)).values())
    group = (workload.get("spec") or {}).get("leaderWorkerTemplate") or {}
    leader = sum(gpus_per_pod((group.get("leaderTemplate") or {}).get("spec") or {}).values())
    workers = (group.get("size") or 1) - 1
    return (leader if group.get("leaderTemplate") else gpus) + workers * gpus


def _planned(metric_target: MetricTarget, autoscaler: Autoscaler) -> PlannedMetric:
    metric, form = metric_target.metric, _form(metric_target)
    most = 100.0 if metric.is_percent and form != "total" else None
    shares_target = _is_demand(metric_target, autoscaler)
    return PlannedMetric(metric_target.series, form, metric_target.value, most, shares_target)


def _is_demand(metric_target: MetricTarget, autoscaler: Autoscaler) -> bool:
    return metric_target.metric.name == autoscaler.demand_name


def _has_the_load(metric_target: MetricTarget, autoscaler: Autoscaler) -> bool:
    """Whether the user's load replaces this metric: the first metric, and its demand."""
    return metric_target == autoscaler.metric_targets[0] or _is_demand(metric_target, autoscaler)


def _form(metric_target: MetricTarget) -> Form:
    if metric_target.type == PODS:
        return "pods"
    return "total" if metric_target.is_total else "average"


def _trace(
    autoscaler: Autoscaler, recorded: Recorded, known: Sequence[MetricTarget], window: Window
) -> tuple[Trace, bool]:
    """The load, and whether it is the demand rather than the pods' activity."""
    replicas = _replicas(recorded, known)
    loads = {metric.series: _total(metric, recorded, replicas) for metric in known if metric.series in recorded.loads}
    demand, first = recorded.loads.get(demand_series(autoscaler)), known[0].series
    if demand is not None and first in loads and _form(known[0]) != "total":
        pairs = zip(loads[first], demand, strict=True)
        loads[first] = array("d", [done if isnan(asked) or done > asked else asked for done, asked in pairs])
    return Trace(window.start_s, window.step_s, loads, replicas), demand is not None


def _decisions(
    autoscaler: Autoscaler, recorded: Recorded, known: Sequence[MetricTarget], window: Window
) -> RecordedDecisions | None:
    if recorded.desired is None:
        return None
    empty = array("d", [nan]) * window.steps
    whole = Recorded({metric.series: recorded.loads.get(metric.series, empty) for metric in known}, recorded.speaking)
    loads = {metric.series: _total(metric, whole, recorded.desired) for metric in known}
    trace = Trace(window.start_s, window.step_s, loads, recorded.desired)
    speaking = {metric.series: recorded.speaking.get(metric.series, empty) for metric in known}
    units = {metric.series: "%" if metric.metric.is_percent else metric.metric.unit for metric in known}
    return RecordedDecisions(trace, speaking, units)


def _replicas(recorded: Recorded, known: Sequence[MetricTarget]) -> array[float]:
    """Replicas set by the HPA; without kube-state-metrics, the number of pods with a value."""
    if recorded.desired is not None:
        return recorded.desired
    return next(
        (recorded.speaking[metric.series] for metric in known if metric.series in recorded.speaking), array("d")
    )


def _total(metric: MetricTarget, recorded: Recorded, replicas: Sequence[float]) -> array[float]:
    """Total over all pods: for an average, times the replicas at that time."""
    load = recorded.loads[metric.series]
    if _form(metric) != "average":
        return load
    counts = replicas or [1.0] * len(load)
    return array(
        "d",
        [value * count if isfinite(count) else nan for value, count in zip(load, counts, strict=True)],
    )
