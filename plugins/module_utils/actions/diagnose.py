# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ..autoscaling.spec import PODS, Autoscaler
from ..cluster.errors import ApiError, QueryError
from ..cluster.prometheus import PrometheusClient, Series
from ..errors import ADAPTER, CUSTOM_METRIC, EXPORTER, HPA, RULE, SERIES, WORKLOAD, Finding, enumeration
from .backend import Backend
from .observe import GoalEvidence, Observation
from .snapshot import GROUPS


class Chain:
    """What Prometheus and the metrics APIs say of the chain as a whole: asked once, however many autoscalers ask."""

    def __init__(self, prometheus: PrometheusClient, backend: Backend) -> None:
        self.prometheus = prometheus
        self.backend = backend
        self._rows: dict[tuple[str, ...], list[Series] | str] = {}

    def rows(self, sources: tuple[str, ...]) -> list[Series] | str:
        """How many series of these names each pod has, by the labels of all layouts; or why there is no answer."""
        if sources not in self._rows:
            names = "|".join(sources)
            labels = "exported_namespace, exported_pod, namespace, pod"
            try:
                self._rows[sources] = self.prometheus.query(f'count by ({labels}) ({{__name__=~"{names}"}})')
            except (ApiError, QueryError) as err:
                self._rows[sources] = err.message if isinstance(err, ApiError) else str(err)
        return self._rows[sources]

    @cached_property
    def rules(self) -> Mapping[str, list[dict[str, Any]]] | str:
        """The loaded recording rules by series; or why there is no answer."""
        found: dict[str, list[dict[str, Any]]] = {}
        try:
            for rule in self.prometheus.recording_rules():
                found.setdefault(rule["name"], []).append(rule)
        except (ApiError, QueryError) as err:
            return str(err)
        return found


HopCheck = Callable[[Chain, Autoscaler, Observation, GoalEvidence], Finding | None]


def first_broken_hop(chain: Chain, autoscaler: Autoscaler, seen: Observation) -> Finding:
    """Walk the chain from left to right and stop where it is broken: what lies right of it is only a consequence."""
    if (finding := _workload(autoscaler, seen)) is not None:
        return finding
    for goal in seen.goals:
        for check in HOPS:
            if (finding := check(chain, autoscaler, seen, goal)) is not None:
                return finding
    return _hpa(autoscaler, seen) or _finding(
        autoscaler, HPA, "all hops work now, but not before wait_timeout ended", "raise wait_timeout"
    )


def _workload(autoscaler: Autoscaler, seen: Observation) -> Finding | None:
    target = f"{autoscaler.target.kind} {autoscaler.namespace}/{autoscaler.target.name}"
    kubectl = f"kubectl -n {autoscaler.namespace}"
    if not seen.exists:
        return _finding(autoscaler, WORKLOAD, f"{target} is gone", "create it, then run again")
    if not seen.replicas:
        return _finding(
            autoscaler,
            WORKLOAD,
            f"{target} has 0 replicas: an HPA leaves that alone",
            f"{kubectl} scale {autoscaler.target.kind}/{autoscaler.target.name} --replicas={autoscaler.min_replicas}",
        )
    if not seen.ready_pods:
        return _finding(
            autoscaler,
            WORKLOAD,
            f"none of the {len(seen.pods)} pods of {target} is ready; it is to have {seen.replicas}",
            f"{kubectl} describe pods; run again when one is ready, by gpu_autoscaler_info for instance",
        )
    return None


def _exporter(chain: Chain, autoscaler: Autoscaler, seen: Observation, goal: GoalEvidence) -> Finding | None:
    metric = goal.goal.metric
    if not metric.sources:
        return None
    rows = chain.rows(metric.sources)
    if isinstance(rows, str):
        return _finding(
            autoscaler,
            EXPORTER,
            f"Prometheus {chain.prometheus.name} does not answer: {rows}",
            "run the prometheus_stack role, then again",
        )
    names = " or ".join(metric.sources)
    exporter = "dcgm-exporter" if metric.is_of_gpus else "the workload's pods"
    if not rows:
        return _finding(
            autoscaler,
            EXPORTER,
            f"Prometheus has no series {names}",
            f"see that the ServiceMonitor or PodMonitor of {exporter} has the label release that Prometheus selects; "
            "the dcgm_exporter role sets it for the exporter",
        )
    named = {
        (
            row.labels.get("exported_namespace") or row.labels.get("namespace"),
            row.labels.get("exported_pod") or row.labels.get("pod"),
        )
        for row in rows
    }
    missing = [pod for pod in sorted(seen.ready_pods) if (autoscaler.namespace, pod) not in named]
    if missing:
        total = sum(int(row.values[-1]) for row in rows)
        return _finding(
            autoscaler,
            EXPORTER,
            f"{names}: {total} series, none names {_pods(autoscaler, missing)}",
            "see that the pod has an nvidia.com/gpu limit, that dcgm-exporter runs on its node, "
            "has DCGM_EXPORTER_KUBERNETES=true and mounts the kubelet's pod-resources folder"
            if metric.is_of_gpus
            else "see that a PodMonitor scrapes the pod and that Prometheus shows its target as up",
        )
    return None


def _rule(chain: Chain, autoscaler: Autoscaler, _seen: Observation, goal: GoalEvidence) -> Finding | None:
    series = goal.goal.series
    if not series:
        return None
    if isinstance(chain.rules, str):
        return _finding(
            autoscaler,
            RULE,
            f"Prometheus {chain.prometheus.name} does not say its rules: {chain.rules}",
            "see that prometheus.service is a Prometheus, not something in front of several",
        )
    rules = chain.rules.get(series)
    if not rules:
        return _finding(
            autoscaler,
            RULE,
            f"Prometheus {chain.prometheus.name} has not loaded the rule that records {series}",
            "set prometheus.rule_labels and .rule_namespace to what the Prometheus object's ruleSelector and "
            "ruleNamespaceSelector ask for",
        )
    failed = [rule for rule in rules if rule.get("health") == "err"]
    if failed:
        return _finding(
            autoscaler,
            RULE,
            f"rule {series} fails: {failed[0].get('lastError')}",
            "look for other rules that record the same series, or correct the query",
        )
    return None


def _series(_chain: Chain, autoscaler: Autoscaler, _seen: Observation, goal: GoalEvidence) -> Finding | None:
    if not goal.unrecorded:
        return None
    metric = goal.goal.metric
    return _finding(
        autoscaler,
        SERIES,
        f"{goal.goal.series} has no value for {_holders(autoscaler, goal, goal.unrecorded)}",
        "see in Prometheus whether the query gives a value for it: what is outside 0..100 is left out"
        if metric.is_percent
        else "see in Prometheus whether the query gives one series per namespace and pod",
    )


def _adapter(chain: Chain, autoscaler: Autoscaler, _seen: Observation, goal: GoalEvidence) -> Finding | None:
    group, name = GROUPS[goal.goal.type], chain.backend.listing(goal.goal, autoscaler.target)
    if goal.listed is None:
        return _finding(
            autoscaler,
            ADAPTER,
            f"{group} does not answer{goal.refusal and ': '}{goal.refusal}",
            f"kubectl describe apiservice v1beta1.{group}; see the log of prometheus-adapter",
        )
    if goal.listed:
        return None
    return _finding(
        autoscaler,
        ADAPTER,
        f"{goal.goal.series or 'the metric'} exists, but {group} does not list {name}"
        if goal.goal.series
        else f"{group} does not list {name}",
        "run the prometheus_adapter role: its generic rules make a metric of each recorded series"
        if goal.goal.series
        else "see what serves that API: it has to know the metric",
    )


def _custom_metric(_chain: Chain, autoscaler: Autoscaler, _seen: Observation, goal: GoalEvidence) -> Finding | None:
    metric = goal.goal.metric.name
    if goal.silent:
        whom = _holders(autoscaler, goal, goal.silent)
        return _finding(
            autoscaler,
            CUSTOM_METRIC,
            f"no {metric} for {whom}{goal.refusal and ': '}{goal.refusal}",
            "see the log of prometheus-adapter; its rule has to keep the labels namespace and pod",
        )
    if goal.disagreeing:
        holder = goal.disagreeing[0]
        recorded = goal.recorded[holder].values
        return _finding(
            autoscaler,
            CUSTOM_METRIC,
            f"{metric} of {_holders(autoscaler, goal, [holder])} is {goal.values[holder]:g}, "
            f"Prometheus recorded {min(recorded):g} to {max(recorded):g}",
            "see that prometheus-adapter asks the same Prometheus and has no second rule for this metric",
        )
    return None


def _hpa(autoscaler: Autoscaler, seen: Observation) -> Finding | None:
    if seen.is_scaling and seen.unread:
        return _finding(
            autoscaler,
            HPA,
            f"the HPA has no current value of {enumeration(seen.unread)}, so it cannot scale down",
            f"kubectl -n {autoscaler.namespace} describe hpa {autoscaler.name}; CPU and memory need metrics-server",
        )
    if seen.is_scaling:
        return None
    condition = seen.conditions.get("ScalingActive")
    return _finding(
        autoscaler,
        HPA,
        f"ScalingActive is False, {condition['reason']}: {condition['message']}"
        if condition
        else "the HPA has no condition yet: its controller has not seen it",
        f"kubectl -n {autoscaler.namespace} describe hpa {autoscaler.name}",
    )


HOPS: tuple[HopCheck, ...] = (_exporter, _rule, _series, _adapter, _custom_metric)


def _finding(autoscaler: Autoscaler, hop: str, seen: str, fix: str) -> Finding:
    return Finding(hop, seen, fix, subjects=(str(autoscaler),))


def _holders(autoscaler: Autoscaler, goal: GoalEvidence, names: Sequence[str]) -> str:
    if goal.goal.type == PODS:
        return _pods(autoscaler, names)
    return f"{autoscaler.target.kind} {autoscaler.namespace}/{autoscaler.target.name}"


def _pods(autoscaler: Autoscaler, names: Sequence[str]) -> str:
    return f"pod {enumeration([f'{autoscaler.namespace}/{name}' for name in names])}"
