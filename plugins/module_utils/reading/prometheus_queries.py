# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The doctor's queries to Prometheus, whose number is independent of the autoscalers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from ..autoscaling.dcgm_fields import ENGINE_ACTIVE, GPU_UTIL, any_of, either, in_1x, in_todays
from ..autoscaling.keda_rules import POD_STATES
from ..autoscaling.metrics import MOST_OF_A_RATIO, MOST_OF_PROCESSES
from ..autoscaling.spec import KEDA, PODS, Autoscaler
from ..chain.rule_queries import labels_joined
from ..chain.state.prometheus import PrometheusState, ReplicaState, Row
from ..cluster.errors import ApiError, QueryError
from ..cluster.parallel import in_parallel
from ..cluster.prometheus_client import PrometheusClient
from ..kube.objects import Manifest
from .metric_values import sources_of
from .unread_parts import UnreadParts, attempt, message_of

_IDENTIFIED = f'{GPU_UTIL}{{UUID!=""}}'
_RATIOS = any_of(f"DCGM_FI_PROF_{part}_ACTIVE" for part in ("GRENGINE_ACTIVE", "SM", "DRAM"))
_NAMES = "exported_namespace, exported_pod, namespace, pod"
# How long an earlier series excuses a missing one: the grace period of the findings about it.
_LATELY = "2m"
# Queries by field of PrometheusState; `sources` are the series of the autoscalers' metrics.
_QUERIES = {
    "rows": f'count by (__name__, instance, Hostname, hostname, {_NAMES}) ({{__name__=~"{{sources}}"}})',
    # If a kubelet is briefly unavailable, or its node still counts as ready, the exporter reports no pod names.
    "rows_lately": f'group by ({_NAMES}) (last_over_time({{__name__=~"{{sources}}"}}[{_LATELY}]))',
    # The last Xid error is kept; all other fields are readings. The list of counters of 1.x has these two.
    "serving": f'count by (instance) ({{__name__=~"DCGM_FI_.+|{in_1x("DCGM_FI_DEV_GPU_TEMP")}|{in_1x(GPU_UTIL)}", '
    '__name__!="DCGM_FI_DEV_XID_ERRORS"})',
    "up": "up",
    "up_lately": f"max_over_time(up[{_LATELY}]) > 0",
    # The part of the time in which a target answers, for any interval.
    "slow": "sum_over_time(scrape_duration_seconds[2m]) / 120 > 0.75",
    # A value that a rule may use for a full GPU is not a blank.
    "blanks": f"topk(20, {either(GPU_UTIL)} > {MOST_OF_PROCESSES} or {either(GPU_UTIL)} < 0 or "
    f'{{__name__=~"{_RATIOS}"}} > {MOST_OF_A_RATIO})',
    "frozen": f"{either(f'min_over_time({GPU_UTIL}[5m])')} > 90 "
    f"and on (UUID, instance) {either(f'{GPU_UTIL} offset 5m')} "
    f"and on (UUID, instance) ({either(f'max_over_time({ENGINE_ACTIVE}[5m])')} == 0)",
    "doubled": f"count by (UUID, GPU_I_ID) (count by (UUID, GPU_I_ID, instance, job) ({either(_IDENTIFIED)})) > 1",
}
# Only where an HPA of KEDA reads decisions.
_QUERIES_OF_DECISIONS = {
    "pod_states": f'count by (__name__) ({{__name__=~"{any_of(POD_STATES)}"}})',
    "pod_states_every": "120 / count_over_time(up[2m]) and on (job, instance) count by (job, instance) "
    f'({POD_STATES[0]}{{phase="Running"}})',
}


def ask_prometheus(
    gaps: UnreadParts,
    client: PrometheusClient,
    replicas: Sequence[PrometheusClient],
    clock: float | Exception,
    wanted: Sequence[Autoscaler],
    pods: Sequence[Manifest],
) -> PrometheusState:
    """The state of Prometheus. clock: its time, or why it is unknown. pods: pods behind its Service."""
    if isinstance(clock, ApiError) and clock.status in (401, 403):
        gaps.lack("prometheus", clock)
    if isinstance(clock, Exception):
        return PrometheusState(client.name, error=message_of(clock), pods=pods)
    metrics = [metric_target.metric for autoscaler in wanted for metric_target in autoscaler.metric_targets]
    sources = {GPU_UTIL, ENGINE_ACTIVE} | {source for metric in metrics for source in sources_of(metric)}
    queries = {name: text.replace("{sources}", any_of(sources)) for name, text in _QUERIES.items()}
    if any(_reads_decisions(autoscaler) for autoscaler in wanted):
        queries |= _QUERIES_OF_DECISIONS
    answers = in_parallel(lambda query: _rows(client, query), [*queries.values()])
    rows: dict[str, Any] = {
        name: () if isinstance(found, Exception) else found for name, found in zip(queries, answers, strict=True)
    }
    broken = next((answer for answer in answers if isinstance(answer, Exception)), None)
    if broken:
        gaps.unavailable["prometheus"] = str(broken)
    rules = attempt(client.recording_rules)
    runtime = attempt(client.runtime)
    by_series: dict[str, list[Mapping[str, Any]]] = {}
    for rule in () if isinstance(rules, Exception) else rules:
        by_series.setdefault(rule["name"], []).append(rule)
    recorded = {metric_target.series for autoscaler in wanted for metric_target in autoscaler.metric_targets} - {""}
    return PrometheusState(
        client.name,
        pods=pods,
        rules=None if isinstance(rules, Exception) else by_series,
        runtime={} if isinstance(runtime, Exception) else runtime,  # a proxy has no runtime information
        joined=None if isinstance(rules, Exception) else _joined(client, rules),
        replicas=gaps.take("prometheus_replicas", lambda: _replicas(replicas, sources | recorded), {}),
        **rows,
    )


def _reads_decisions(autoscaler: Autoscaler) -> bool:
    return autoscaler.backend == KEDA and any(target.type == PODS for target in autoscaler.metric_targets)


def _replicas(replicas: Sequence[PrometheusClient], names: AbstractSet[str]) -> dict[str, ReplicaState]:
    """Raises: ApiError if one of them does not answer."""
    series = f'group by (__name__) (last_over_time({{__name__=~"{any_of(names)}"}}[{_LATELY}]))'
    return {
        replica.name: ReplicaState(
            frozenset(row.labels["__name__"] for row in _rows(replica, series)),
            _rows(replica, _QUERIES["up_lately"]),
        )
        for replica in replicas
    }


def _joined(client: PrometheusClient, rules: Iterable[Mapping[str, Any]]) -> frozenset[str] | None:
    """One query for all labels; none if no rule joins any."""
    labels = frozenset().union(*(labels_joined(str(rule.get("query") or "")) for rule in rules))
    if not labels:
        return None
    answer = attempt(lambda: _rows(client, " or ".join(map(_has_label, sorted(labels | {"exported_pod"})))))
    return None if isinstance(answer, Exception) else frozenset(row.labels.get("label", "") for row in answer)


def _has_label(label: str) -> str:
    """PromQL: a series named like a label, if pods' series have that label."""
    series = "kube_pod_labels" if label.startswith("label_") else "kube_pod_(info|owner|labels)"
    return f'label_replace(group({{__name__=~"{series}",{label}!=""}}), "label", "{label}", "", "")'


def _rows(client: PrometheusClient, query: str) -> list[Row]:
    try:
        return [Row(_in_todays(series.labels), series.values[-1]) for series in client.query(query)]
    except QueryError as err:
        raise ApiError(400, str(err), query) from err


def _in_todays(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Labels with DCGM's name of the series, because the checks know no other."""
    return {**labels, "__name__": in_todays(labels["__name__"])} if "__name__" in labels else labels


def with_scrape_errors(
    gaps: UnreadParts, client: PrometheusClient, answered: PrometheusState, targets: Iterable[Row]
) -> PrometheusState:
    """Prometheus' errors of failed scrapes, requested only if a target is down or has no sample.

    targets: `up` of the checked targets.
    """
    down = {row.target for row in targets if not row.value}
    is_empty = not answered.error and not answered.up and "prometheus" not in gaps.unavailable
    answer = attempt(client.targets) if down or is_empty else []
    if isinstance(answer, Exception):  # a proxy in front of several Prometheus may not know them
        return answered
    errors = {
        target: str(entry.get("lastError") or "")
        for entry in answer
        if (target := (entry.get("labels", {}).get("job", ""), entry.get("labels", {}).get("instance", ""))) in down
    }
    unstored = sum(entry.get("health") == "up" for entry in answer) if is_empty else 0
    return replace(answered, scrape_errors=errors, unstored=unstored)
