# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Records metrics without an autoscaler, and proves that the metrics API serves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..autoscaling.backends import unused_rules
from ..autoscaling.manifests import RuleOptions
from ..autoscaling.promql import quoted
from ..autoscaling.recorded_metrics import INFO_SERIES, KINDS, PART, RecordedMetric, metric_objects, monitor_of
from ..autoscaling.spec import PODS as PODS_METRIC
from ..chain.state.metric import MetricState
from ..cluster.errors import ApiError
from ..cluster.kube import NAMESPACES, PODS, RULES, KubeClient
from ..cluster.metrics_api import CUSTOM_METRICS, MetricsApi
from ..cluster.prometheus_client import PrometheusClient
from ..errors import HopError, enumeration
from ..hops import Hop
from ..kube.labels import DEFAULT_INVENTORY, namespace_of
from ..kube.objects import Manifest, key_of
from ..reading.change_reader import ChangeReader
from ..reading.existing_autoscalers import read_reachable_hpas, read_scaled_objects
from ..reading.metric_values import Observer
from ..reading.prometheus_replicas import read_replicas
from ..reading.unread_parts import reason
from .metric_query import MetricQuery
from .objects import make_objects
from .outcome import Outcome
from .preflight import preflight
from .read_metric import read_metric
from .wait import Deadline, wait_until

LONGEST_POLL_S = 5.0


def check_metrics(
    kube: KubeClient, prometheus: PrometheusClient, metrics: Sequence[RecordedMetric], rules: RuleOptions
) -> list[str]:
    """The checks before a change. Returns: warnings. Raises: HopError with all failed checks."""
    if not metrics:
        return []
    state = ChangeReader(kube, prometheus, (), rules.namespace, metrics).state(rules)
    return [*preflight(state, dry_run=kube.dry_run), *_missing_namespaces(kube, metrics)]


def record_metrics(
    kube: KubeClient,
    metrics: Sequence[RecordedMetric],
    rules: RuleOptions,
    outcome: Outcome,
    *,
    is_removal: bool = False,
) -> None:
    """Apply the rules and PodMonitors of the metrics, or delete them. Those that an HPA needs stay.

    The list of an inventory is complete, so its other entries are deleted. Runs without an inventory share one ID, so
    they keep entries that they do not name.
    Raises: HopError before any of them is changed, if an object has another owner.
    """
    made = _apply(kube, metric_objects(metrics, rules), rules, outcome, is_removal)
    outcome.changed |= made.changed
    outcome.diff += made.diff
    outcome.warnings += made.warnings
    outcome.errors += made.errors
    outcome.result["metrics"] = made.result["objects"]


def _apply(
    kube: KubeClient, given: Sequence[Manifest], rules: RuleOptions, outcome: Outcome, is_removal: bool
) -> Outcome:
    """A user with the rights of a few namespaces lists only those of the objects."""
    wanted = () if is_removal else given
    is_complete = rules.inventory != DEFAULT_INVENTORY
    # An entry without a scrape may have had one.
    places = {place for manifest in given for place in (key_of(manifest)[0], namespace_of(manifest)) if place}
    namespaces = None if is_complete else sorted(places)

    def in_use(unwanted: Sequence[Manifest], existing: Sequence[Manifest]) -> list[Manifest]:
        others = [] if is_complete else _of_other_entries(given, unwanted, existing)
        kept, why = _in_use(kube, [found for found in unwanted if found not in others], [*existing, *others], wanted)
        if kept:
            names = enumeration(sorted(f"{one['kind']} {'/'.join(key_of(one))}" for one in kept))
            outcome.warnings.append(f"{why}: {names} of entries that are no longer in metrics was kept")
        return [*others, *kept]

    try:
        return make_objects(kube, PART, KINDS, wanted, rules.inventory, namespaces=namespaces, in_use=in_use)
    except ApiError as err:
        if err.status != 403:
            raise
        listed = sorted({key_of(manifest)[0] for manifest in wanted})
        kinds = " and ".join(kind["kind"] + "s" for kind in KINDS)
        outcome.warnings.append(
            f"{reason(err)}, so {kinds} of entries that are no longer in metrics may remain"
            + (f" in namespaces other than {enumeration(listed)}" if listed else " in any namespace")
        )
        return make_objects(kube, PART, KINDS, wanted, rules.inventory, namespaces=(), in_use=in_use)


def _of_other_entries(
    given: Sequence[Manifest], unwanted: Sequence[Manifest], existing: Sequence[Manifest]
) -> list[Manifest]:
    """The unwanted objects that are not of the given entries, before or now, or that another entry needs as well."""
    named = {(manifest["kind"], key_of(manifest)) for manifest in given}
    recording = [found for found in (*unwanted, *existing) if found["kind"] == RULES.kind]
    ours = [rule for rule in recording if (rule["kind"], key_of(rule)) in named]
    needed = {monitor_of(rule) for rule in recording if rule not in ours}
    named = (named | {("PodMonitor", monitor_of(rule)) for rule in ours}) - {("PodMonitor", key) for key in needed}
    return [found for found in unwanted if (found["kind"], key_of(found)) not in named]


def _in_use(
    kube: KubeClient, unwanted: Sequence[Manifest], staying: Sequence[Manifest], wanted: Sequence[Manifest]
) -> tuple[list[Manifest], str]:
    """Unwanted rules whose metric an HPA of their namespace may read, PodMonitors behind such a rule, and the reason.

    Any PodMonitor of the namespace may be behind a rule whose entry has no scrape. Not if an entry without a name
    replaces it.
    """
    recording = [found for found in (*unwanted, *staying) if found["kind"] == RULES.kind]
    if not unwanted or not recording:
        return [], ""
    namespaces = set(map(namespace_of, recording))
    try:
        hpas, _unread = read_reachable_hpas(kube, namespaces)
        scalers = [*hpas.values(), *read_scaled_objects(kube, namespaces).values()]
        unused, why = unused_rules(recording, scalers, PART), "an HPA reads the metric"
    except ApiError as err:
        if err.status != 403:
            raise
        unused, why = [], f"{reason(err)}, and an HPA may read the metric"
    used = [rule for rule in recording if rule not in unused]
    after = {key_of(rule): monitor_of(rule) for rule in (*used, *wanted) if rule["kind"] == RULES.kind}
    needed = {after[key_of(rule)] for rule in used}
    new = {key_of(found) for found in wanted if found["kind"] != RULES.kind} - {*map(key_of, staying), *after.values()}
    needed -= {(namespace, "") for namespace, _name in new}

    def is_needed(found: Manifest) -> bool:
        namespace, name = key_of(found)
        return found in used or (found["kind"] != RULES.kind and bool({(namespace, name), (namespace, "")} & needed))

    return [found for found in unwanted if is_needed(found)], why


def _missing_namespaces(kube: KubeClient, metrics: Sequence[RecordedMetric]) -> list[str]:
    """A PodMonitor needs its namespace. Raises: HopError; in check mode, an earlier task may create it."""
    wanted = dict.fromkeys(metric.namespace for metric in metrics if metric.scrape)
    if not (missing := [name for name in wanted if kube.get(NAMESPACES, name) is None]):
        return []
    error = HopError(
        Hop.SPEC,
        seen=f"namespace {enumeration(missing)} does not exist, and metrics has a scrape there. Nothing was changed",
        fix="create the namespace, or correct the entry",
    )
    if kube.dry_run:
        return [str(error)]
    raise error


def verify_metrics(
    kube: KubeClient,
    prometheus: PrometheusClient,
    metrics: Sequence[RecordedMetric],
    deadline: Deadline | None,
    outcome: Outcome,
) -> None:
    """Wait until each pod that the query returns has a recorded value, which custom.metrics.k8s.io serves.

    Prometheus loads a changed rule or PodMonitor later, up to 180 s. Until then the values are those of the old one.
    deadline: end of the wait; None reads once without a verdict.
    A metric that no pod reports is not proven, which is a warning: its workload may not exist yet. If pods of its
    `scrape` exist, it is waited for, because the first run creates their PodMonitor. The entries of
    `recorded` in the outcome's result have the values, and its errors the first broken hop of each other metric.
    """
    recorded = [metric for metric in metrics if metric.profile]
    scraped = {str(metric) for metric in recorded if deadline and metric.scrape and _has_pods(kube, metric)}

    observer = Observer(kube, prometheus, read_replicas(kube, prometheus))
    states: dict[str, MetricState] = {}

    def look() -> list[dict[str, Any]]:
        loaded = [series.labels for series in prometheus.query(INFO_SERIES)] if recorded else []
        entries = []
        for metric in recorded:
            info = metric.info.items()
            is_loaded = any(info <= labels.items() for labels in loaded)
            before = states.get(str(metric))
            agreed = before.agreed if before and is_loaded else frozenset()
            state = states[str(metric)] = _observe(kube, prometheus, observer, metric, agreed)
            unscraped = sorted(state.expected_objects - _scraped(prometheus, metric)) if metric.scrape else []
            entries.append(_entry(metric, state, is_loaded, unscraped))
        return entries

    def is_broken(entry: dict[str, Any]) -> bool:
        has_pods = bool(states[f"{entry['namespace']}/{entry['name']}"].expected_objects)
        is_old = has_pods and not entry["loaded"]
        return is_old or bool(entry["missing"] or entry["disagreeing"] or entry["unscraped"])

    def is_coming(entry: dict[str, Any]) -> bool:
        return is_broken(entry) or (not entry["verified"] and f"{entry['namespace']}/{entry['name']}" in scraped)

    entries = wait_until(
        look,
        lambda seen: deadline is None or not any(map(is_coming, seen)),
        deadline or Deadline(0),
        longest_poll_s=LONGEST_POLL_S,
    )
    outcome.result["recorded"] = entries
    if deadline is None:
        return
    for metric, entry in zip(recorded, entries, strict=True):
        if is_broken(entry):
            outcome.errors.append(_error(kube, metric, states[str(metric)], entry).of(f"metric {metric}"))
        elif not entry["verified"]:
            outcome.warnings.append(
                f"metric {metric} was not proven: its query returns no pod of namespace {metric.namespace}. Next: "
                "check that Prometheus scrapes the pods, then run the playbook kubegpu.autoscale.verify"
            )


def _has_pods(kube: KubeClient, metric: RecordedMetric) -> bool:
    """Whether there are pods for the PodMonitor. A user may be without the right to list them."""
    selector = ",".join(f"{name}={value}" for name, value in metric.labels.items())
    try:
        return bool(kube.list_metadata(PODS, label_selector=selector, namespace=metric.namespace))
    except ApiError:
        return False


def _observe(
    kube: KubeClient,
    prometheus: PrometheusClient,
    observer: Observer,
    metric: RecordedMetric,
    agreed: frozenset[str],
) -> MetricState:
    """agreed: pods whose value agreed in an earlier reading."""
    expected = {series.labels.get("pod", "") for series in prometheus.query(metric.query)}
    values = _served(kube, metric) if expected else {}
    series = metric.metric.series if metric.metric else ""
    recorded, now_s = observer.recorded([series], [metric.namespace]) if expected else ({}, 0.0)
    state = MetricState(
        metric.name,
        CUSTOM_METRICS,
        PODS_METRIC,
        series=series,
        expected_objects=frozenset(expected),
        values=values,
        recorded={pod: found.values for pod, found in recorded.get((series, metric.namespace), {}).items()},
        now_s=now_s,
        agreed=agreed,
    )
    return replace(state, agreed=state.agreed | {pod for pod in expected & values.keys() if state.agrees(pod)})


def _scraped(prometheus: PrometheusClient, metric: RecordedMetric) -> set[str]:
    """Pods that Prometheus scrapes by the PodMonitor of the metric, and not by an earlier one."""
    return {series.labels.get("pod", "") for series in prometheus.query(f"up{{job={quoted(metric.job)}}} == 1")}


def _entry(metric: RecordedMetric, state: MetricState, is_loaded: bool, unscraped: Sequence[str]) -> dict[str, Any]:
    return {
        "namespace": metric.namespace,
        "name": metric.name,
        "pod_values": dict(state.values),
        "missing": sorted({*state.missing_in_api, *state.missing_in_prometheus}),
        "disagreeing": state.disagreeing,
        "loaded": is_loaded,
        "unscraped": list(unscraped),
        "verified": state.is_proven and is_loaded and not unscraped,
    }


def _served(kube: KubeClient, metric: RecordedMetric) -> dict[str, float]:
    """Value by pod; empty while the API does not answer, or does not know the metric."""
    try:
        found = MetricsApi(kube.get_raw).custom(metric.name, namespace=metric.namespace)
    except ApiError:
        return {}
    return {value.name: value.value for value in found}


def _error(kube: KubeClient, metric: RecordedMetric, state: MetricState, entry: Mapping[str, Any]) -> HopError:
    rule = metric.profile.rule_name(metric.namespace) if metric.profile else ""
    if not entry["loaded"]:
        return HopError(
            Hop.RULE,
            seen=f"Prometheus has not loaded PrometheusRule {rule} of this entry",
            fix="check the rule under Status > Rule health in Prometheus, and run the playbook "
            "kubegpu.autoscale.autoscaling if the entry has changed since the last run",
        )
    if pods := entry["unscraped"]:
        return HopError(
            Hop.SCRAPE,
            seen=f"Prometheus does not scrape pod {enumeration(pods)} by PodMonitor {metric.job}",
            fix="check that the labels of the PodMonitor match podMonitorSelector of Prometheus, and its port and path "
            "under Status > Target health, then run the playbook kubegpu.autoscale.verify",
        )
    if pods := state.missing_in_prometheus:
        return HopError(
            Hop.RULE,
            seen=f"{state.series} has no value of pod {enumeration(pods)}, which the metric's query returns",
            fix=f"check PrometheusRule {rule} under Status > Rule health in Prometheus, "
            "then run the playbook kubegpu.autoscale.verify",
        )
    broken = None
    if pods := state.missing_in_api:
        _answer, broken = read_metric(kube, MetricQuery(CUSTOM_METRICS, metric.name, metric.namespace))
        seen = f"no value of pod {enumeration(pods)}, which has one in Prometheus"
    else:
        values = [f"{pod} {state.values[pod]:g} instead of {state.recorded[pod][-1]:g}" for pod in state.disagreeing]
        seen = f"the metrics API serves another value than {state.series} of pod {enumeration(values)}"
    return broken or HopError(
        Hop.METRIC,
        seen=seen,
        fix="check the rules and the log of prometheus-adapter, then run the playbook kubegpu.autoscale.verify",
    )
