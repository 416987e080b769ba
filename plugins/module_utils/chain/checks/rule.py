# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks recording rules: whether Prometheus loads and evaluates them, and whether their text can work.

Rules of this collection are checked as well, and pass. A text fails only if it is certainly wrong.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...autoscaling.dcgm_fields import reads_fields
from ...autoscaling.manifests import recordings_of
from ...diagnosis.check import CheckResult, Evidence, FindingTypes, check
from ...errors import enumeration
from ...hops import Hop
from ...kube.objects import Manifest, labels_of, name_of, seconds, youngest
from ..controller_reports import rejection
from ..daemon_sets import place_of
from ..finding_texts import labels_text, quote
from ..prometheus_objects import why_not_selected
from ..rule_queries import NODE_LABELS, RATE, WINDOW, joins_pod_alone, labels_joined, labels_read
from ..service_endpoints import services_called, unserved
from ..state.autoscaler import AutoscalerState
from ..state.cluster import State
from ..state.metric import MetricState

_RULE = FindingTypes(Hop.RULE)

_START_GRACE_S = 120
# A group that has missed this many intervals, and this much time, is no longer evaluated.
_MISSED = 5
_MISSED_S = 60
# A sample may be milliseconds late.
_PUNCTUALITY = 0.95
_SERIES = ("prometheus", "metrics")
# Recorded series have colons in their names, by Prometheus' convention.
_RECORDED = re.compile(r"[a-zA-Z_]\w*(?::\w+)+")
# Names of rules of one namespace: of a metric, or of a workload.
_OWNER = re.compile(r"kubegpu[.-]([a-z0-9-]+)\.")
# What they record. In any other series, `exported_namespace` or another label can say whose value it is.
_RECORDED_FOR_ONE = re.compile(r"(namespace_(metric|pod|workload|workload_pod)|external):")

RULE_NOT_SELECTED = _RULE.error(
    "RULE_NOT_SELECTED",
    cause="no Prometheus object selects the PrometheusRule: {why}",
    fix="set prometheus.rule_labels and prometheus.rule_namespace to match ruleSelector and ruleNamespaceSelector",
)


@check(
    "Prometheus selects the rules", RULE_NOT_SELECTED, needs=(*_SERIES, "rule_objects", "prometheuses", "namespaces")
)
def rules_are_selected(state: State) -> Iterator[CheckResult]:
    for series, users in _unloaded(state).items():
        rule_object, why = _not_selected(state, series)
        if rule_object:
            yield CheckResult(
                RULE_NOT_SELECTED,
                f"PrometheusRule {name_of(rule_object)}",
                f"its labels are {labels_text(labels_of(rule_object))}; {why}",
                state.affected_by(users),
                state.clock.last_change_age_s(rule_object),
                template_vars={"why": why},
            )


def _unloaded(state: State) -> dict[str, list[AutoscalerState]]:
    """Series that no loaded rule records, with their users; none if Prometheus does not list its rules.

    For existing autoscalers only metrics without a value count, because others can get one in another way.
    """
    users: dict[str, list[AutoscalerState]] = {}
    for autoscaler, metric in _recorded_metrics(state):
        is_needed = autoscaler.is_managed or metric.missing_in_api
        if is_needed and state.prometheus.rules is not None and metric.series not in state.prometheus.rules:
            users.setdefault(metric.series, []).append(autoscaler)
    return users


def _recorded_metrics(state: State) -> Iterator[tuple[AutoscalerState, MetricState]]:
    for autoscaler in state.autoscalers:
        for metric in autoscaler.metrics:
            if metric.series:
                yield autoscaler, metric


def _not_selected(state: State, series: str) -> tuple[Manifest | None, str]:
    """A PrometheusRule for the series that no Prometheus object selects, and the reason."""
    for rule_object in state.recorders(series)[:1]:
        if why := why_not_selected(state, rule_object, "ruleSelector", "ruleNamespaceSelector"):
            return rule_object, why
    return None, ""


RULE_NOT_LOADED = _RULE.error(
    "RULE_NOT_LOADED",
    cause="Prometheus has not loaded the PrometheusRule: the operator does not run, or a broken rule blocks the reload",
    fix="kubectl get prometheusrules -A; see the logs of the operator and of Prometheus' config-reloader",
    grace_s=_START_GRACE_S,
    evidence=(
        Evidence(
            r"last reload of the configuration failed",
            "Prometheus could not load its last configuration, so the rule has no effect",
            "see PROMETHEUS_RELOAD_FAILS: the log of Prometheus shows the error",
        ),
    ),
)
RULE_REJECTED = _RULE.error(
    "RULE_REJECTED",
    cause="the Prometheus operator rejected the PrometheusRule as invalid and left it out of the configuration",
    fix="correct the field in the message: kubectl -n {namespace} edit prometheusrule {name}",
)
RULE_MISSING = _RULE.error(
    "RULE_MISSING",
    cause="no rule records the series of the metric",
    fix="run gpu_autoscaler for the autoscaler, which creates the PrometheusRule",
    is_consequence=True,
)


@check("rules are loaded", RULE_NOT_LOADED, RULE_REJECTED, RULE_MISSING, needs=_SERIES)
def rules_are_loaded(state: State) -> Iterator[CheckResult]:
    for series, users in _unloaded(state).items():
        rule_objects, prometheus = state.recorders(series), f"Prometheus {state.prometheus.name}"
        if not rule_objects:
            seen = f"{prometheus} has no rule for it"
            yield CheckResult(RULE_MISSING, f"series {series}", seen, state.affected_by(users))
        elif not _not_selected(state, series)[0] and (said := rejection(state, rule_objects[0], "PrometheusRule")):
            yield CheckResult(
                RULE_REJECTED,
                f"PrometheusRule {name_of(rule_objects[0])}",
                said.text,
                state.affected_by(users),
                said.age_s,
                template_vars=place_of(rule_objects[0]),
            )
        elif not _not_selected(state, series)[0]:
            yield CheckResult(
                RULE_NOT_LOADED,
                f"PrometheusRule {name_of(rule_objects[0])}",
                f"it records {series}, which {prometheus} has not loaded{_why_not_loaded(state)}",
                state.affected_by(users),
                state.rule_age_s(series),
            )


def _why_not_loaded(state: State) -> str:
    failed = state.prometheus.runtime.get("reloadConfigSuccess") is False
    return "; its last reload of the configuration failed" if failed else ""


RULE_FAILS = _RULE.error(
    "RULE_FAILS",
    cause="Prometheus cannot evaluate the rule",
    fix="test the query in Prometheus; check for other rules that record the same series",
    grace_s=_START_GRACE_S,
    evidence=(
        Evidence(
            r"many-to-many|duplicate series|same labelset|multiple matches",
            "the rule returns several series with the same labels",
            "aggregate before the join or the rename, by (namespace, pod); check for a second rule of the same series",
        ),
        Evidence(
            r"exceeded limit",
            "the rule returns more series than the limit of its group allows, so Prometheus keeps none of them",
            "raise limit of the group in the PrometheusRule, or narrow the rule",
        ),
        Evidence(
            r"timed out|timeout|too many samples|memory",
            "the rule reads more than Prometheus' limits allow",
            "narrow its selectors, or raise query.timeout and query.max-samples",
        ),
    ),
)
RULE_NOT_EVALUATED = _RULE.error(
    "RULE_NOT_EVALUATED",
    cause="Prometheus has not evaluated the rule's group for a long time: it is overloaded or hangs",
    fix="check prometheus_rule_group_iterations_missed_total; give Prometheus more CPU",
)
RULE_TOO_SLOW = _RULE.warning(
    "RULE_TOO_SLOW",
    cause="an evaluation takes longer than the interval, so some are skipped",
    fix="raise prometheus.evaluation_interval, or give Prometheus more CPU",
)
RULE_TWICE = _RULE.warning(
    "RULE_TWICE",
    cause="several rules record the same series: if a pod has two values, the last one is used, or the rule fails",
    fix="keep one of them: kubectl get prometheusrules -A -o yaml | grep -n {series}",
)


@check("rules are evaluated", RULE_FAILS, RULE_NOT_EVALUATED, RULE_TOO_SLOW, RULE_TWICE, needs=_SERIES)
def rules_are_evaluated(state: State) -> Iterator[CheckResult]:
    rules, users = state.prometheus.rules or {}, _users(state)
    readers: dict[str, list[AutoscalerState]] = {}
    for series, autoscalers in users.items():
        for part in _parts(rules, series):
            readers.setdefault(part, []).extend(autoscalers)
    for series, autoscalers in readers.items():
        for rule in rules.get(series, ()):
            yield from _evaluation(state, series, rule, state.affected_by(autoscalers))
    for series in users:
        # Each workload can have a separate rule for a series, with different labels.
        labels = (tuple(sorted((rule.get("labels") or {}).items())) for rule in rules.get(series, ()))
        several = Counter(labels).most_common(1)
        if several and several[0][1] > 1:
            seen = f"{several[0][1]} rules record it"
            yield CheckResult(RULE_TWICE, f"series {series}", seen, template_vars={"series": series})


RULE_OUTSIDE_NAMESPACE = _RULE.error(
    "RULE_OUTSIDE_NAMESPACE",
    cause="the rule belongs to namespace {owner} by its name, and can record values for the workloads of others",
    fix="find who changed it: kubectl -n {namespace} get prometheusrule {name} --output=yaml --show-managed-fields; "
    "delete it, and create the autoscalers of {owner} again",
)


@check("rules of one namespace record it alone", RULE_OUTSIDE_NAMESPACE, needs=("rule_objects",))
def rules_keep_to_their_namespace(state: State) -> Iterator[CheckResult]:
    """RBAC permits a rule by its name, and does not know its contents."""
    for rule_object in state.rule_objects:
        place = place_of(rule_object)
        owner = _OWNER.match(place["name"])
        outside = [
            recording["record"]
            for recording in recordings_of(rule_object)
            if owner
            and not (
                _RECORDED_FOR_ONE.match(recording["record"])
                and (recording.get("labels") or {}).get("namespace") == owner[1]
            )
        ]
        if owner and outside:
            seen = f"records {enumeration(outside)}, not as series of one namespace, labelled namespace: {owner[1]}"
            title = f"PrometheusRule {name_of(rule_object)}"
            yield CheckResult(RULE_OUTSIDE_NAMESPACE, title, seen, template_vars={**place, "owner": owner[1]})


def _users(state: State) -> dict[str, list[AutoscalerState]]:
    """Rules by recorded series."""
    users: dict[str, list[AutoscalerState]] = {}
    for autoscaler, metric in _recorded_metrics(state):
        users.setdefault(metric.series, []).append(autoscaler)
    return users


def _parts(rules: Mapping[str, Sequence[Mapping[str, Any]]], series: str) -> Iterable[str]:
    """The series and the recorded ones that it is made of: it is empty if one of their rules fails."""
    found: dict[str, None] = {}
    to_read = [series]
    while to_read:
        name = to_read.pop()
        if name not in found:
            found[name] = None
            for rule in rules.get(name, ()):
                to_read += sorted(rules.keys() & set(_RECORDED.findall(str(rule.get("query") or ""))))
    return found


def _evaluation(state: State, series: str, rule: Mapping[str, Any], affected: frozenset[str]) -> Iterator[CheckResult]:
    name, interval_s = f"series {series}", float(rule.get("interval") or 0)
    evaluated = str(rule.get("lastEvaluation", "0001"))
    # Prometheus reports the year 1 for a rule that it has not evaluated yet.
    age_s = None if evaluated.startswith("0001") else state.clock.seconds_since(evaluated)
    if rule.get("health") == "err":
        seen = str(rule.get("lastError"))
        yield CheckResult(RULE_FAILS, name, seen, affected, state.rule_age_s(series), 2 * interval_s)
    elif age_s is not None and age_s > _MISSED * interval_s + _MISSED_S:
        seen = f"evaluated {age_s:.0f} s ago, its interval is {interval_s:g} s"
        yield CheckResult(RULE_NOT_EVALUATED, name, seen, affected, age_s)
    elif interval_s and float(rule.get("evaluationTime") or 0) > interval_s:
        seen = f"an evaluation takes {rule['evaluationTime']:g} s, its interval is {interval_s:g} s"
        yield CheckResult(RULE_TOO_SLOW, name, seen)


RULE_GIVES_NAN = _RULE.error(
    "RULE_GIVES_NAN",
    cause="the rule divides by zero. The adapter turns NaN into 0 unless its own rule leaves NaN out. The HPA then "
    "scales down to the minimum",
    fix="guard the denominator: `x / (y > 0)`",
    grace_s=_START_GRACE_S,
)
RULE_GIVES_NOTHING = _RULE.error(
    "RULE_GIVES_NOTHING",
    cause="the rule returns no value: all values are outside of 0..100, or it selects labels that the series do not "
    "have",
    fix="test the rule's query in Prometheus",
    grace_s=_START_GRACE_S,
    is_consequence=True,
)


@check("rules return a value for each pod", RULE_GIVES_NAN, RULE_GIVES_NOTHING, needs=_SERIES)
def rules_give_values(state: State) -> Iterator[CheckResult]:
    for autoscaler, metric in _recorded_metrics(state):
        name, affected = f"autoscaler {autoscaler}", state.affected_by([autoscaler])
        nan = sorted(pod for pod, samples in metric.recorded.items() if samples and math.isnan(samples[-1]))
        if nan:
            yield CheckResult(
                RULE_GIVES_NAN,
                name,
                f"{metric.series} is NaN for {enumeration(nan)}",
                affected,
                youngest([state.missing_for_s(autoscaler, nan), state.rule_age_s(metric.series)]),
                more_grace_s=autoscaler.lag_s,
            )
        missing = metric.missing_in_prometheus
        if missing and metric.series in (state.prometheus.rules or {}):
            yield CheckResult(
                RULE_GIVES_NOTHING,
                name,
                f"{metric.series} has no value for {enumeration(missing)}",
                affected | {f"node {node}" for node in autoscaler.nodes},
                youngest([state.missing_for_s(autoscaler, missing, of_gpus=metric.is_of_gpus), state.prometheus_age_s]),
                more_grace_s=autoscaler.lag_s,
            )


DEMAND_WITHOUT_COUNTERS = _RULE.warning(
    "DEMAND_WITHOUT_COUNTERS",
    cause="Prometheus has no counter that demand.offered selects. The HPA follows only the load of the GPUs, and does "
    "not see waiting requests",
    fix="check that Prometheus scrapes the source of the request counts, and test the selector there; docs/model.md "
    "lists what each source needs",
    grace_s=_START_GRACE_S,
)
DEMAND_WITHOUT_COST = _RULE.warning(
    "DEMAND_WITHOUT_COST",
    cause="the cost of a request is learned only while GPUs are busy and requests are served. Until it is known, the "
    "HPA follows the load of the GPUs",
    fix="check that demand.served selects requests that use GPU time, at least one in two seconds; or set "
    "demand.prior_gpu_seconds",
)
DEMAND_DISAGREES = _RULE.warning(
    "DEMAND_DISAGREES",
    cause="pods have spare capacity, but their load is much less than the demand: the offered requests include "
    "requests without GPU time or of other workloads",
    fix="exclude health checks, client errors and requests of other workloads from demand.offered",
)
# Load of pods with spare capacity, percent of a GPU; and factor by which the demand may exceed their load.
_ROOM, _FACTOR, _MARGIN = 70, 2, 60


@check(
    "demands are known and plausible",
    DEMAND_WITHOUT_COUNTERS,
    DEMAND_WITHOUT_COST,
    DEMAND_DISAGREES,
    needs=_SERIES,
)
def demands(state: State) -> Iterator[CheckResult]:
    """No result if a workload gets no requests, or has got them only recently."""
    for autoscaler in state.autoscalers:
        demand, name = autoscaler.demand, f"autoscaler {autoscaler}"
        busy = demand.parts.get("busy") if demand else None
        if demand is None or busy is None:
            continue
        pods = len(autoscaler.ready_pods)
        if "counters" not in demand.parts:
            seen = "no counter of the requests that are offered"
            yield CheckResult(DEMAND_WITHOUT_COUNTERS, name, seen, age_s=state.prometheus_age_s)
        elif demand.is_steady and demand.cost_source == "none" and "offered" in demand.parts:
            seen = f"{demand.parts['offered']:.3g} requests a second, {busy:.0f} percent of a GPU, and no cost"
            yield CheckResult(DEMAND_WITHOUT_COST, name, seen)
        elif demand.is_steady and demand.is_in_force and busy < _ROOM * pods:
            percent = demand.parts.get("sum", 0.0)
            if percent > _FACTOR * busy + _MARGIN:
                seen = f"the demand is {percent:.0f} percent of a GPU, {pods} pods together do {busy:.0f} percent"
                yield CheckResult(DEMAND_DISAGREES, name, seen)


RULE_WEBHOOK_UNSERVED = _RULE.warning(
    "RULE_WEBHOOK_UNSERVED",
    cause="the API server calls a webhook for each PrometheusRule, and the webhook does not answer. No rule can be "
    "created or changed",
    fix="check that the Prometheus operator runs; delete the webhook of a removed operator: kubectl delete "
    "validatingwebhookconfiguration {name}, and mutatingwebhookconfiguration",
    grace_s=_START_GRACE_S,
    is_consequence=True,
    explained_by=(Hop.NODE,),
)


@check("webhooks of PrometheusRules answer", RULE_WEBHOOK_UNSERVED, needs=("webhooks", "services", "component_pods"))
def rule_webhooks(state: State) -> Iterator[CheckResult]:
    for config in state.webhooks:
        name = config["metadata"]["name"]
        for place in dict.fromkeys(services_called(config, "prometheusrules")):
            missing, pods = unserved(state, place)
            if missing:
                yield CheckResult(
                    RULE_WEBHOOK_UNSERVED,
                    f"webhook {name}",
                    missing,
                    frozenset(f"node {pod['spec'].get('nodeName')}" for pod in pods),
                    youngest(state.clock.condition_age_s(pod, "Ready") for pod in pods),
                    template_vars={"name": name},
                )


RULE_LABEL_RENAMED = _RULE.warning(
    "RULE_LABEL_RENAMED",
    cause="the name of dcgm-exporter's node label, Hostname or hostname, depends on its version, and the rule uses the "
    "other one",
    fix="write {label} in the rule; better, have the target's relabeling add a label node and use that",
)


@check("rules use existing labels", RULE_LABEL_RENAMED, needs=_SERIES)
def rule_labels(state: State) -> Iterator[CheckResult]:
    """No result for queries that create labels themselves, or if the exporters differ."""
    present = {label for row in state.prometheus.gpu_rows for label in NODE_LABELS if row.labels.get(label)}
    for series, query in _gpu_queries(state) if len(present) == 1 else ():
        read = labels_read(query)
        if read and not read & present:
            label = "".join(present)
            yield CheckResult(
                RULE_LABEL_RENAMED,
                series,
                f"it reads the label {', '.join(read)}, the exporter's series have {label}: {quote(query)}",
                template_vars={"label": label},
            )


def _gpu_queries(state: State) -> Iterator[tuple[str, str]]:
    """Recorded series and query of each loaded rule on the exporter's series."""
    for series, rules in (state.prometheus.rules or {}).items():
        for rule in rules:
            if reads_fields(query := str(rule.get("query") or "")):
                yield f"series {series}", query


RULE_JOINS_WRONG_POD = _RULE.warning(
    "RULE_JOINS_WRONG_POD",
    cause="the rule joins on the label pod, which on kube-state-metrics' series names kube-state-metrics itself. "
    "Nothing matches",
    fix="set honorLabels: true in the monitor of kube-state-metrics, as kube-prometheus-stack does",
)
RULE_POD_LABELS_MISSING = _RULE.warning(
    "RULE_POD_LABELS_MISSING",
    cause="the rule joins a label of pods that kube-state-metrics does not export, so it returns nothing",
    fix="kube-state-metrics' values: metricLabelsAllowlist: ['pods=[{label}]'], plural and with brackets; or join "
    "kube_pod_owner",
)


@check("rules join labels that pods have", RULE_JOINS_WRONG_POD, RULE_POD_LABELS_MISSING, needs=("prometheus",))
def rule_joins(state: State) -> Iterator[CheckResult]:
    """Only if kube-state-metrics exists. Its absence is temporary, or obvious."""
    present = state.prometheus.joined or frozenset()
    for series, query in _gpu_queries(state) if "pod" in present else ():
        joined = labels_joined(query)
        missing = sorted(joined - present)
        if joined and "exported_pod" in present and "exported_pod" not in query:
            seen = f"kube-state-metrics' series have exported_pod, their pod is its own: {quote(query)}"
            yield CheckResult(RULE_JOINS_WRONG_POD, series, seen)
        elif missing:
            seen = f"no series of kube_pod_labels has {', '.join(missing)}: {quote(query)}"
            label = missing[0].removeprefix("label_")
            yield CheckResult(RULE_POD_LABELS_MISSING, series, seen, template_vars={"label": label})


RULE_JOINS_POD_ALONE = _RULE.warning(
    "RULE_JOINS_POD_ALONE",
    cause="the rule joins on the name of the pod without its namespace. If another namespace has a pod of that name, "
    "its GPUs count as well, or the rule fails",
    fix="join on (namespace, pod) and keep namespace in both aggregations; or use a Pods metric: run gpu_autoscaler "
    "for the workload, with adopt: true",
)


@check("rules join pods by namespace and name", RULE_JOINS_POD_ALONE, needs=("prometheus",))
def rule_join_keys(state: State) -> Iterator[CheckResult]:
    for series, query in _gpu_queries(state):
        if joins_pod_alone(query):
            yield CheckResult(RULE_JOINS_POD_ALONE, series, f"no join has namespace: {quote(query)}")


RULE_RATE_OF_GAUGE = _RULE.warning(
    "RULE_RATE_OF_GAUGE",
    cause="{field} goes up and down, and {function}() treats each decrease as a counter reset. Its value is "
    "meaningless",
    fix="use avg_over_time(), or the field itself; the fields that DCGM calls bytes are bytes per second already",
)


@check("rates are of counters", RULE_RATE_OF_GAUGE, needs=("prometheus",))
def rule_rates(state: State) -> Iterator[CheckResult]:
    for series, query in _gpu_queries(state):
        if match := RATE.search(query):
            function, field = match.groups()
            seen = f"{function}() of {field}: {quote(query)}"
            yield CheckResult(RULE_RATE_OF_GAUGE, series, seen, template_vars={"function": function, "field": field})


RULE_WINDOW_TOO_SHORT = _RULE.warning(
    "RULE_WINDOW_TOO_SHORT",
    cause="the rule's window is shorter than two scrapes: it has no value whenever a scrape is late",
    fix="make the window {least} or longer, four scrapes, or scrape more often",
)


@check("windows hold two samples", RULE_WINDOW_TOO_SHORT, needs=_SERIES)
def rule_windows(state: State) -> Iterator[CheckResult]:
    """Only if the scrape interval is known."""
    scrape_s = min(state.known_scrape_intervals, default=0.0)
    for series, query in _gpu_queries(state) if scrape_s else ():
        for field, window in _short_windows(query, scrape_s)[:1]:
            yield CheckResult(
                RULE_WINDOW_TOO_SHORT,
                series,
                f"{field}[{window}], it is scraped every {scrape_s:g} s: {quote(query)}",
                template_vars={"least": f"{4 * scrape_s:g}s"},
            )


def _short_windows(query: str, scrape_s: float) -> Sequence[tuple[str, str]]:
    return [
        (field, window)
        for field, window in WINDOW.findall(query)
        if (window_s := seconds(window)) and window_s < 2 * _PUNCTUALITY * scrape_s
    ]


def summary(state: State) -> str:
    return f"{len(state.prometheus.rules or {})} recorded series"


def nothing(state: State) -> str:
    if state.prometheus.rules is None:
        return "Prometheus does not list its rules"
    is_recorded = any(metric.series for autoscaler in state.autoscalers for metric in autoscaler.metrics)
    return "" if is_recorded else "no checked metric is recorded by a rule"
