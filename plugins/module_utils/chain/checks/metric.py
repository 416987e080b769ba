# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from ...autoscaling.replicas import DEFAULT_TOLERANCE
from ...autoscaling.spec import EXTERNAL
from ...autoscaling.spec import PODS as PODS_METRIC
from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...errors import counted, enumeration
from ...hops import Hop
from ...kube.objects import youngest
from ..state.api import ApiState
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from ..state.metric import MetricState

_METRIC = FindingTypes(Hop.METRIC)

METRIC_IN_CAPITALS = _METRIC.error(
    "METRIC_IN_CAPITALS",
    cause="HPAs query external metrics in lower case",
    fix="use a name in lower case at the source of the metric",
)
METRIC_NOT_LISTED = _METRIC.error(
    "METRIC_NOT_LISTED",
    cause="the API does not list the metric: no rule of the adapter maps a series to it, or the series has no samples",
    fix="query {series} in Prometheus. If it has samples, run the prometheus_adapter role: its rules serve each "
    "recorded series as a metric. An existing adapter needs these rules, see docs/existing-clusters.md",
    is_consequence=True,
)
METRIC_WITHOUT_VALUE = _METRIC.error(
    "METRIC_WITHOUT_VALUE",
    cause="the API has no value for these objects: the series lacks them, or the adapter's rule loses the labels "
    "namespace and pod",
    fix="query {series} with these labels in Prometheus. If it exists, fix the query of {owner}: it must keep "
    "namespace and pod (by (<<.GroupBy>>))",
    # Rules ignore rows older than 90 s, but Prometheus returns rows of a removed target for its lookback of 300 s.
    # Until then, nothing shows that a monitor is the cause.
    grace_s=240,
    is_consequence=True,
    evidence=(
        Evidence(
            r"gRPC connection to KEDA|external\.metrics\.k8s\.io/\S*/s\d+-\S+.* timed out",
            "KEDA's metrics server does not reach the operator, although its pod is ready",
            "check that keda-operator runs and that port 9666 is open to it; then kubectl -n keda rollout restart "
            "deployment keda-operator-metrics-apiserver",
        ),
        Evidence(
            r"metric:\S+ encountered error",
            "KEDA got no value from the source of a trigger",
            "read the cause in the log of keda-operator, and try the trigger's query in Prometheus",
        ),
    ),
)
METRIC_DISAGREES = _METRIC.error(
    "METRIC_DISAGREES",
    cause="the value in the API differs from the recorded value: it queries another Prometheus, or a second rule "
    "serves the metric",
    fix="check --prometheus-url of the adapter, and its rules for a second one with that name",
    grace_s=120,
)


@check(
    "each pod has the value that Prometheus has",
    METRIC_IN_CAPITALS,
    METRIC_NOT_LISTED,
    METRIC_WITHOUT_VALUE,
    METRIC_DISAGREES,
    needs=("metrics",),
)
def values(state: State) -> Iterator[CheckResult]:
    apis = {api.group: api for api in state.apis}
    for autoscaler in state.autoscalers:
        name, affected = autoscaler.name, state.affected_by([autoscaler])
        reached = affected | {f"node {node}" for node in autoscaler.nodes}
        for metric in autoscaler.metrics:
            api = apis.get(metric.group, ApiState(metric.group))
            settled_s = [
                state.rule_age_s(metric.series),
                *(state.clock.condition_age_s(pod, "Ready") for pod in api.pods),
            ]
            missing = metric.missing_in_api
            missing_s = state.missing_for_s(autoscaler, missing, of_gpus=metric.is_of_gpus)
            age_s = youngest([missing_s, *settled_s, state.prometheus_age_s])
            template_vars = {"owner": api.owner or metric.group, "series": metric.series or "its series"}
            # Other servers list one name for all metrics, or only some: only prometheus-adapter's list is complete.
            if missing and metric.type == EXTERNAL and metric.name != metric.name.lower():
                seen = f"no value of {metric.name}: HPAs query it in lower case, as {metric.name.lower()}"
                yield CheckResult(METRIC_IN_CAPITALS, name, seen, reached)
            elif missing and metric.listed is False and api.is_prometheus_adapter:
                others = [other for other in sorted(api.listed or ()) if other.rpartition("/")[2] == metric.name]
                seen = f"{api.owner} lists {len(api.listed or ())} metrics, no {metric.name} for {enumeration(missing)}"
                seen += f", but {enumeration(others)}" if others else ""
                grace_s = 2 * api.relist_s + autoscaler.lag_s
                yield CheckResult(METRIC_NOT_LISTED, name, seen, reached, age_s, grace_s, template_vars)
            elif missing:
                seen = f"no {metric.name} for {enumeration(missing)}{metric.refusal and f': {metric.refusal}'}"
                yield CheckResult(METRIC_WITHOUT_VALUE, name, seen, reached, age_s, autoscaler.lag_s, template_vars)
            elif metric.disagreeing:
                seen = _difference(metric, metric.disagreeing[0])
                yield CheckResult(METRIC_DISAGREES, name, seen, affected, youngest(settled_s), autoscaler.lag_s)


REJECTED_BELOW_TARGET = _METRIC.warning(
    "REJECTED_BELOW_TARGET",
    cause="the server rejects what exceeds its own limit (--max-num-queued-reqs of vLLM), and the metric is below the "
    "target of the HPA there. So the HPA adds no replicas while users are turned away",
    fix="set target_value below the limit, or raise the limit of the server; docs/model.md describes a capped queue",
)
# Part of a pod's requests: occasional bursts are what the limit is for.
_REJECTED_SHARE = 0.05


@check("model servers reject no requests below the target", REJECTED_BELOW_TARGET, needs=("metrics",))
def rejections(state: State) -> Iterator[CheckResult]:
    """No result while the HPA scales on the metric, or at the maximum, where a lower target would not help."""
    for autoscaler in state.autoscalers:
        shares = {name: pod.share for name, pod in autoscaler.rejections.items() if pod.share >= _REJECTED_SHARE}
        if not shares or _is_at_maximum(autoscaler) or any(map(_asks_for_more, autoscaler.metrics)):
            continue
        seen = f"{enumeration(sorted(shares))} rejected up to {max(shares.values()):.0%} of the requests"
        yield CheckResult(REJECTED_BELOW_TARGET, autoscaler.name, f"{seen}; {_averages(autoscaler)}")


SATURATED_BELOW_TARGET = _METRIC.warning(
    "SATURATED_BELOW_TARGET",
    cause="requests wait in every pod, and the metric is below the target of the HPA there: it does not rise any "
    "further. So the HPA adds no replicas however many requests wait",
    fix="use the metric llm or llm_in_flight, which count waiting requests, or lower target_value; "
    "gpu_loadtest_find_target: true measures a target for a latency goal",
)


@check("no requests wait below the target", SATURATED_BELOW_TARGET, needs=("metrics",))
def saturation(state: State) -> Iterator[CheckResult]:
    """Silent if one pod had an empty queue once in five minutes, while the HPA scales, and at its maximum."""
    for autoscaler in state.autoscalers:
        ready = [pod["metadata"]["name"] for pod in autoscaler.ready_pods]
        waiting = [autoscaler.waiting.get(name, 0.0) for name in ready]
        if (
            not waiting
            or not all(waiting)
            or _is_at_maximum(autoscaler)
            or any(map(_asks_for_more, autoscaler.metrics))
        ):
            continue
        seen = f"at least {min(waiting):g} requests waited in each of {enumeration(sorted(ready))} for 5 minutes"
        yield CheckResult(SATURATED_BELOW_TARGET, autoscaler.name, f"{seen}; {_averages(autoscaler)}")


def _averages(autoscaler: AutoscalerState) -> str:
    return ", ".join(
        f"{metric.name} is {_average(metric):g}, target {metric.target_value:g}" for metric in autoscaler.metrics
    )


def _is_at_maximum(autoscaler: AutoscalerState) -> bool:
    return (autoscaler.replicas or 0) >= autoscaler.hpa["spec"]["maxReplicas"]


def _asks_for_more(metric: MetricState) -> bool:
    """True if it is unknown."""
    if metric.type != PODS_METRIC or not metric.target_value or metric.expected_objects.isdisjoint(metric.values):
        return True
    return _average(metric) > DEFAULT_TOLERANCE.band[1] * metric.target_value


def _average(metric: MetricState) -> float:
    """Over the pods of the autoscaler: the values may be those of all pods of its namespace."""
    return fmean(value for name, value in metric.values.items() if name in metric.expected_objects)


def _difference(metric: MetricState, name: str) -> str:
    samples = metric.recorded[name]
    recorded = f"Prometheus recorded {min(samples):g} to {max(samples):g}"
    return f"{metric.name} of {name} is {metric.values[name]:g}, {recorded}"


def summary(state: State) -> str:
    return f"{counted(sum(len(autoscaler.metrics) for autoscaler in state.autoscalers), 'metric')} checked"


def nothing(state: State) -> str:
    expected = any(metric.expected_objects for autoscaler in state.autoscalers for metric in autoscaler.metrics)
    return "" if expected else "no autoscaler has ready pods that need a value"
