# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of what Prometheus makes of the exporter: targets, labels, recording rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...errors import enumeration
from ..findings import Check, Symptom
from ..objects import Manifest, containers_of, is_ready, labels_of, name_of, seconds, youngest
from ..selectors import labels_match
from ..state import ALL, AutoscalerState, MetricState, State

# A group that has missed so many intervals, and this long, is not evaluated any more.
_MISSED = 5
_MISSED_S = 60
_EXPORTER_NAMES = ("dcgm",)


def _answers(state: State) -> Iterator[Symptom]:
    if state.prometheus.error:
        yield Symptom(
            "PROMETHEUS_UNREACHABLE",
            f"Prometheus {state.prometheus.name}",
            state.prometheus.error,
            frozenset({ALL}),
            state.prometheus_age,
            is_cut_off=state.are_cut_off(state.prometheus.pods),
        )


def _is_scraped(state: State) -> bool:
    """Whether anything of the exporter arrives, by whatever way."""
    return bool(state.gpu_rows) or bool(state.targets)


def _silent_exporters(state: State) -> bool:
    """Exporters run, Prometheus answers, and nothing of them arrives: then the monitors are looked at."""
    return bool(state.exporter_pods) and not state.prometheus.error and not _is_scraped(state)


def _monitors(state: State) -> Iterator[tuple[Manifest, str, str]]:
    """The monitors that are about the exporter, with the fields of the Prometheus object that select them."""
    pairs = (
        (state.service_monitors, "serviceMonitorSelector", "serviceMonitorNamespaceSelector"),
        (state.pod_monitors, "podMonitorSelector", "podMonitorNamespaceSelector"),
    )
    for monitors, selector, namespaces in pairs:
        for monitor in monitors:
            if _is_about_exporters(state, monitor):
                yield monitor, selector, namespaces


def _is_about_exporters(state: State, monitor: Manifest) -> bool:
    """By what it selects, or where that is wrong by its name."""
    named = any(text in f"{monitor['metadata']['name']} {monitor['spec'].get('selector')}" for text in _EXPORTER_NAMES)
    return named or bool(_selected_services(state, monitor)) or _selects_pods(state, monitor)


def _is_pod_monitor(monitor: Manifest) -> bool:
    return "podMetricsEndpoints" in monitor["spec"]


def _in_namespaces(monitor: Manifest, namespace: str) -> bool:
    wanted = monitor["spec"].get("namespaceSelector") or {}
    return bool(wanted.get("any")) or namespace in (wanted.get("matchNames") or [monitor["metadata"]["namespace"]])


def _selects_pods(state: State, monitor: Manifest) -> bool:
    return _is_pod_monitor(monitor) and any(
        _in_namespaces(monitor, pod["metadata"]["namespace"])
        and labels_match(monitor["spec"].get("selector"), labels_of(pod))
        for pod in state.exporter_pods
    )


def _exporter_services(state: State) -> list[Manifest]:
    return [
        service
        for service in state.services
        if (selector := service["spec"].get("selector"))
        and any(
            pod["metadata"]["namespace"] == service["metadata"]["namespace"]
            and labels_match({"matchLabels": selector}, labels_of(pod))
            for pod in state.exporter_pods[:1] + state.exporter_pods[-1:]
        )
    ]


def _selected_services(state: State, monitor: Manifest) -> list[Manifest]:
    if _is_pod_monitor(monitor):
        return []
    return [
        service
        for service in _exporter_services(state)
        if _in_namespaces(monitor, service["metadata"]["namespace"])
        and labels_match(monitor["spec"].get("selector"), labels_of(service))
    ]


def _monitor_there(state: State) -> Iterator[Symptom]:
    if _silent_exporters(state) and state.prometheuses and not list(_monitors(state)):
        yield Symptom(
            "MONITOR_MISSING",
            _names(state.exporters),
            f"no ServiceMonitor or PodMonitor selects {_names(_exporter_services(state)) or 'its pods'}, "
            "and Prometheus has no target of it",
            frozenset({ALL}),
        )


def _monitor_selected(state: State) -> Iterator[Symptom]:
    if not _silent_exporters(state) or not state.prometheuses:
        return
    misses = [
        (monitor, missed)
        for monitor, selector, namespaces in _monitors(state)
        if (missed := _missed(state, monitor, selector, namespaces))
    ]
    if misses and len(misses) == len(list(_monitors(state))):
        monitor, why = misses[0]
        yield Symptom(
            "MONITOR_NOT_SELECTED",
            f"monitor {name_of(monitor)}",
            f"its labels are {_text(labels_of(monitor))}; {why}",
            frozenset({ALL}),
            words={"why": why, "labels": _asked_labels(state, misses[0][1])},
        )


def _asked_labels(state: State, _why: str) -> str:
    selector = state.prometheuses[0]["spec"].get("serviceMonitorSelector") or {}
    return _text(selector.get("matchLabels") or {})


def _missed(state: State, thing: Manifest, selector: str, namespaces: str) -> str:
    """Why no Prometheus object selects it; empty if one does."""
    whys = [_missed_by(state, prometheus, thing, selector, namespaces) for prometheus in state.prometheuses]
    return "" if not all(whys) else whys[0]


def _missed_by(state: State, prometheus: Manifest, thing: Manifest, selector: str, namespaces: str) -> str:
    spec, name = prometheus["spec"], f"Prometheus {name_of(prometheus)}"
    if not labels_match(spec.get(selector), labels_of(thing)):
        return f"{selector} of {name} is {_text_of(spec.get(selector))}"
    if not _namespace_selected(state, prometheus, thing, spec.get(namespaces)):
        return f"{namespaces} of {name} is {_text_of(spec.get(namespaces))}"
    return ""


def _namespace_selected(state: State, prometheus: Manifest, thing: Manifest, selector: Manifest | None) -> bool:
    """No selector means the namespace of the Prometheus object itself."""
    namespace = thing["metadata"]["namespace"]
    if selector is None:
        return namespace == prometheus["metadata"]["namespace"]
    labels = {each["metadata"]["name"]: labels_of(each) for each in state.namespaces}
    return labels_match(selector, labels.get(namespace, {"kubernetes.io/metadata.name": namespace}))


def _monitor_fits(state: State) -> Iterator[Symptom]:
    """A monitor that a Prometheus selects, but that selects no Service or no port of it."""
    if not _silent_exporters(state):
        return
    monitors = [found for found in _monitors(state) if not _missed(state, *found)]
    misfits = [(monitor, why) for monitor, *_fields in monitors if (why := _misfit(state, monitor))]
    if misfits and len(misfits) == len(monitors):
        monitor, why = misfits[0]
        yield Symptom(
            "MONITOR_FITS_NO_SERVICE", f"monitor {name_of(monitor)}", why, frozenset({ALL}), words={"why": why}
        )


def _misfit(state: State, monitor: Manifest) -> str:
    if _is_pod_monitor(monitor):
        ports = {
            port.get("name") for each in state.exporters for c in containers_of(each) for port in c.get("ports") or ()
        }
        if not _selects_pods(state, monitor):
            return f"its selector {_text_of(monitor['spec'].get('selector'))} fits no pod of {_names(state.exporters)}"
        return _wrong_port(monitor["spec"].get("podMetricsEndpoints") or (), ports)
    services = _exporter_services(state)
    if not services:
        return f"no Service selects the pods of {_names(state.exporters)}"
    selected = _selected_services(state, monitor)
    if not selected:
        return (
            f"its selector {_text_of(monitor['spec'].get('selector'))} does not fit Service {name_of(services[0])}, "
            f"labelled {_text(labels_of(services[0]))}, or not its namespace"
        )
    ports = {port.get("name") for service in selected for port in service["spec"].get("ports") or ()}
    return _wrong_port(monitor["spec"].get("endpoints") or (), ports)


def _wrong_port(endpoints: Sequence[Manifest], ports: set[str | None]) -> str:
    asked = [str(each.get("port")) for each in endpoints if each.get("port")]
    if not asked or set(asked) & ports or any("targetPort" in each for each in endpoints):
        return ""
    return f"it asks for port {', '.join(asked)}, the ports are called {', '.join(sorted(map(str, ports)))}"


def _monitor_intervals(state: State) -> Iterator[Symptom]:
    for monitor, _selector, _namespaces in _monitors(state):
        endpoints = monitor["spec"].get("endpoints") or monitor["spec"].get("podMetricsEndpoints") or ()
        homeless = [
            each for each in endpoints if "interval" in each and not {"port", "targetPort", "portNumber"} & set(each)
        ]
        if homeless and len(endpoints) > 1:
            yield Symptom(
                "MONITOR_INTERVAL_IGNORED",
                f"monitor {name_of(monitor)}",
                f"an endpoint has interval {homeless[0]['interval']} and no port, another has the port",
            )


def _targets(state: State) -> Iterator[Symptom]:
    """Judged pod by pod as soon as one can be found among the targets: a static job may hide them behind a name."""
    if state.prometheus.error:
        return
    targets = state.targets
    for pod in state.exporter_pods:
        if not is_ready(pod) or (not targets and not _silent_exporters(state)):
            continue
        row, node = targets.get(name_of(pod)), pod["spec"].get("nodeName", "")
        age = youngest([state.turned(pod, "Ready"), state.prometheus_age])
        place, reach = f"pod {name_of(pod)} on node {node}", state.on_nodes([node])
        words = {"namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"]}
        if row is None:
            yield Symptom("TARGET_MISSING", place, "ready, but `up` has no series of it", reach, age, words=words)
        elif not row.value:
            job, instance = row.target
            if row.target in state.answered_lately:
                age = 0.0
            yield Symptom("TARGET_DOWN", place, f"up is 0, job {job}, {instance}", reach, age, words=words)


def _gpu_metrics(state: State) -> Iterator[tuple[AutoscalerState, MetricState]]:
    for each in state.autoscalers:
        for metric in each.metrics:
            if metric.sources and metric.holders:
                yield each, metric


def _limits(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        metrics = [metric for metric in each.metrics if metric.is_of_gpus]
        if metrics and each.template and not each.gpus and not _uses_claims(each) and not _any_named(state, each):
            yield Symptom(
                "POD_WITHOUT_GPU_LIMIT",
                each.workload,
                f"no container of its pod template has a limit of nvidia.com/*, and it scales on {metrics[0].name}",
                state.of([each]),
            )


def _uses_claims(autoscaler: AutoscalerState) -> bool:
    """GPUs by dynamic resource allocation have no limit."""
    return bool(autoscaler.template.get("resourceClaims"))


def _any_named(state: State, autoscaler: AutoscalerState) -> bool:
    pods = {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in autoscaler.pods}
    return any(pods & named for named in state.named_pods.values())


def _some_pod_is_named(state: State) -> Iterator[Symptom]:
    users = [each for each, metric in _gpu_metrics(state) if metric.is_of_gpus]
    if not users or not state.gpu_rows or state.gpus_name_pods:
        return
    pods = [row.labels.get("pod") or row.labels.get("exported_pod") for row in state.gpu_rows]
    if any(row.labels.get("exported_pod") for row in state.gpu_rows) or not all(
        row.labels.get("namespace") or not row.labels.get("pod") for row in state.gpu_rows
    ):
        yield Symptom(
            "SERIES_WITHOUT_NAMESPACE",
            "series DCGM_FI_*",
            f"{len(state.gpu_rows)} kinds of series, a pod is {next(filter(None, pods), None)}, no namespace",
            frozenset({ALL}),
        )
        return
    yield Symptom(
        "EXPORTER_NO_POD_LABELS",
        "series DCGM_FI_*",
        f"{len(state.gpu_rows)} kinds of series, none names a pod; {len(users)} autoscalers have pods with GPUs",
        frozenset({ALL}),
        youngest(
            [
                _pods_age(state, users),
                *(state.turned(pod, "Ready") for pod in state.exporter_pods),
                state.prometheus_age,
                0.0 if state.named_lately else None,
            ]
        ),
    )


def _pods_age(state: State, autoscalers: Iterable[AutoscalerState]) -> float | None:
    """Of the pod that has been there longest: it should have been seen by now."""
    ages = [state.turned(pod, "Ready") for each in autoscalers for pod in each.ready_pods]
    return max((age for age in ages if age is not None), default=None)


def _pods_named(state: State) -> Iterator[Symptom]:
    """Pods that no series names, node by node: the exporter of one node may be at fault."""
    exporters = state.by_node(state.exporters)
    for each, metric in _gpu_metrics(state):
        named = set().union(*(state.named_pods.get(source, set()) for source in metric.sources))
        by_node: dict[str, list[Manifest]] = {}
        for pod in each.ready_pods:
            if (each.key[0], pod["metadata"]["name"]) not in named:
                by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        for node, pods in by_node.items():
            ages = [_unnamed_s(state, pod) for pod in pods]
            yield Symptom(
                "POD_WITHOUT_SERIES",
                f"pods of {each.workload}",
                f"{' or '.join(metric.sources)} of no row name {_pods(pods)}{f' on node {node}' if node else ''}",
                state.of([each]) | {f"node {node}"},
                youngest(
                    [
                        max((age for age in ages if age is not None), default=None),
                        *(state.turned(pod, "Ready") for pod in exporters.get(node, ()) if metric.is_of_gpus),
                        state.prometheus_age,
                    ]
                ),
                more_grace_s=lag_s(each),
            )


def _unnamed_s(state: State, pod: Manifest) -> float | None:
    """How long a pod should have been named and is not; 0 as long as Prometheus remembers that it was."""
    metadata = pod["metadata"]
    return 0.0 if (metadata["namespace"], metadata["name"]) in state.named_lately else state.turned(pod, "Ready")


def lag_s(autoscaler: AutoscalerState) -> float:
    """The periods until a new pod can be seen, twice: one may be missed."""
    budget = autoscaler.budget or {}
    return 2 * sum(budget.get(f"{period}_s", 0) for period in ("collect", "scrape", "evaluate"))


def _rule_metrics(state: State) -> Iterator[tuple[AutoscalerState, MetricState]]:
    """Metrics that have to be recorded: those of our autoscalers, and others' that have no value by another way."""
    for each in state.autoscalers:
        for metric in each.metrics:
            if metric.series and (each.is_managed or metric.silent):
                yield each, metric


def _recorders(state: State, series: str) -> list[Manifest]:
    return [
        each
        for each in state.rule_objects
        if any(
            rule.get("record") == series
            for group in each["spec"].get("groups") or ()
            for rule in group.get("rules") or ()
        )
    ]


def _unloaded(state: State) -> dict[str, list[AutoscalerState]]:
    """The series that no loaded rule records, with those who need them; none if Prometheus does not say its rules."""
    users: dict[str, list[AutoscalerState]] = {}
    for each, metric in _rule_metrics(state):
        if state.prometheus.rules is not None and metric.series not in state.prometheus.rules:
            users.setdefault(metric.series, []).append(each)
    return users


def _unselected(state: State, series: str) -> tuple[Manifest, str] | None:
    """A PrometheusRule for the series that no Prometheus object selects, and why."""
    for each in _recorders(state, series)[:1] if state.prometheuses else ():
        if why := _missed(state, each, "ruleSelector", "ruleNamespaceSelector"):
            return each, why
    return None


def _rules_selected(state: State) -> Iterator[Symptom]:
    for series, users in _unloaded(state).items():
        if found := _unselected(state, series):
            rule, why = found
            seen = f"its labels are {_text(labels_of(rule))}; {why}"
            name = f"PrometheusRule {name_of(rule)}"
            yield Symptom("RULE_NOT_SELECTED", name, seen, state.of(users), words={"why": why})


def _rules_loaded(state: State) -> Iterator[Symptom]:
    for series, users in _unloaded(state).items():
        objects, prometheus = _recorders(state, series), f"Prometheus {state.prometheus.name}"
        if not objects:
            seen = f"{prometheus} has no rule for it"
            yield Symptom("RULE_MISSING", f"series {series}", seen, state.of(users))
        elif not _unselected(state, series):
            yield Symptom(
                "RULE_NOT_LOADED",
                f"PrometheusRule {name_of(objects[0])}",
                f"it records {series}, which {prometheus} has not loaded",
                state.of(users),
                rule_age(state, series),
            )


def rule_age(state: State, series: str) -> float | None:
    """Since when the rules of a series are as they are, in Prometheus as well: since it was started at most."""
    return youngest([*(state.changed(each) for each in _recorders(state, series)), state.prometheus_age])


def _rules_work(state: State) -> Iterator[Symptom]:
    users: dict[str, list[AutoscalerState]] = {}
    for each in state.autoscalers:
        for metric in each.metrics:
            if metric.series:
                users.setdefault(metric.series, []).append(each)
    for series, its in users.items():
        rules = (state.prometheus.rules or {}).get(series, ())
        for rule in rules:
            yield from _rule_works(state, series, rule, state.of(its))
        # Each workload may have a rule of its own for a series, which its labels tell apart.
        several = Counter(tuple(sorted((rule.get("labels") or {}).items())) for rule in rules).most_common(1)
        if several and several[0][1] > 1:
            yield Symptom(
                "RULE_TWICE", f"series {series}", f"{several[0][1]} rules record it", words={"series": series}
            )


def _rule_works(state: State, series: str, rule: Mapping[str, Any], reach: frozenset[str]) -> Iterator[Symptom]:
    interval_s = float(rule.get("interval") or 0)
    age = state.age(rule.get("lastEvaluation")) if _is_evaluated(rule) else None
    if rule.get("health") == "err":
        seen = str(rule.get("lastError"))
        yield Symptom("RULE_FAILS", f"series {series}", seen, reach, rule_age(state, series), 2 * interval_s)
    elif age is not None and age > _MISSED * interval_s + _MISSED_S:
        seen = f"evaluated {age:.0f} s ago, its interval is {interval_s:g} s"
        yield Symptom("RULE_NOT_EVALUATED", f"series {series}", seen, reach)
    elif interval_s and float(rule.get("evaluationTime") or 0) > interval_s:
        seen = f"an evaluation takes {rule['evaluationTime']:g} s, its interval is {interval_s:g} s"
        yield Symptom("RULE_TOO_SLOW", f"series {series}", seen)


def _is_evaluated(rule: Mapping[str, Any]) -> bool:
    """Prometheus says the year 1 of a rule that it has not evaluated yet."""
    return not str(rule.get("lastEvaluation", "0001")).startswith("0001")


def _recorded(state: State) -> Iterator[Symptom]:
    for each in state.autoscalers:
        for metric in each.metrics:
            nan = sorted(pod for pod, values in metric.recorded.items() if values and math.isnan(values[-1]))
            if nan:
                yield Symptom(
                    "RULE_GIVES_NAN",
                    f"autoscaler {each}",
                    f"{metric.series} is NaN for {enumeration(nan)}",
                    state.of([each]),
                    youngest([_held_s(state, each, nan), rule_age(state, metric.series)]),
                    more_grace_s=lag_s(each),
                )
            if metric.series and metric.unrecorded and metric.series in (state.prometheus.rules or {}):
                yield Symptom(
                    "RULE_GIVES_NOTHING",
                    f"autoscaler {each}",
                    f"{metric.series} has no value for {enumeration(metric.unrecorded)}",
                    state.of([each]) | {f"node {node}" for node in each.nodes},
                    youngest([_held_s(state, each, metric.unrecorded), state.prometheus_age]),
                    more_grace_s=lag_s(each),
                )


def _held_s(state: State, autoscaler: AutoscalerState, holders: Sequence[str]) -> float | None:
    """Since when those who lack a value should have one: the pod among them that has been ready longest."""
    pods = [pod for pod in autoscaler.ready_pods if pod["metadata"]["name"] in holders] or autoscaler.ready_pods
    return max((age for pod in pods if (age := state.turned(pod, "Ready")) is not None), default=None)


def _names(objects: Iterable[Manifest]) -> str:
    return enumeration([name_of(each) for each in objects])


def _pods(pods: Sequence[Manifest]) -> str:
    return enumeration([pod["metadata"]["name"] for pod in pods])


def _text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "none"


def _text_of(selector: Manifest | None) -> str:
    if selector is None:
        return "not set"
    return _text(selector.get("matchLabels") or {}) if not selector.get("matchExpressions") else str(dict(selector))


def rule_interval_s(state: State, series: str) -> float | None:
    """The slowest of the rules that record a series."""
    intervals = [seconds(rule.get("interval")) for rule in (state.prometheus.rules or {}).get(series, ())]
    return max((each for each in intervals if each), default=None)


_PROMETHEUS = ("prometheus",)
_PODS = ("daemon_sets", "component_pods", "prometheus")
_MONITORS = (*_PODS, "services", "service_monitors", "pod_monitors")
_SELECTED = (*_MONITORS, "prometheuses", "namespaces")
_SERIES = ("prometheus", "metrics")
_RULES = ("rule_objects", "prometheuses", "namespaces")

PROMETHEUS_CHECKS = (
    Check("scrape", "Prometheus answers", _answers, _PROMETHEUS),
    Check("scrape", "a monitor points at the exporter", _monitor_there, (*_MONITORS, "prometheuses")),
    Check("scrape", "Prometheus selects the monitor", _monitor_selected, _SELECTED),
    Check("scrape", "the monitor fits a Service and its port", _monitor_fits, _SELECTED),
    Check("scrape", "the monitor's interval belongs to a port", _monitor_intervals, _MONITORS),
    Check("scrape", "each exporter is a target that is up", _targets, _PODS),
    Check("labels", "pods have a GPU limit", _limits, ("targets", *_SERIES)),
    Check("labels", "series name pods", _some_pod_is_named, ("component_pods", *_SERIES)),
    Check("labels", "series name each pod", _pods_named, ("component_pods", *_SERIES)),
    Check("rule", "Prometheus selects the rules", _rules_selected, (*_SERIES, *_RULES)),
    Check("rule", "rules are loaded", _rules_loaded, _SERIES),
    Check("rule", "rules are evaluated", _rules_work, _SERIES),
    Check("rule", "rules give a value for each pod", _recorded, _SERIES),
)
