# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks whether a monitor selects the exporter, or a workload's own pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...autoscaling.promql import MODEL_SERVER
from ...diagnosis.check import ALL, CheckResult, Evidence, FindingTypes, check
from ...hops import Hop
from ...kube.label_selectors import labels_match
from ...kube.objects import Manifest, containers_of, labels_of, name_of, youngest
from ..controller_reports import rejection
from ..daemon_sets import place_of
from ..finding_texts import labels_text, names_of, pods_text, selector_text
from ..prometheus_objects import why_not_selected
from ..state.cluster import State

_SCRAPE = FindingTypes(Hop.SCRAPE)

_MONITORS = ("daemon_sets", "component_pods", "prometheus", "services", "service_monitors", "pod_monitors")
_SELECTED = (*_MONITORS, "prometheuses", "namespaces")
# Of the Prometheus object: what selects monitors, and their namespaces.
_SERVICE_FIELDS = ("serviceMonitorSelector", "serviceMonitorNamespaceSelector")
_POD_FIELDS = ("podMonitorSelector", "podMonitorNamespaceSelector")

MONITOR_REJECTED = _SCRAPE.error(
    "MONITOR_REJECTED",
    cause="the Prometheus operator rejected the monitor as invalid and left it out of the configuration",
    fix="correct the field in the message: kubectl -n {namespace} edit {kind} {name}",
)


@check("the operator accepts the monitors", MONITOR_REJECTED, needs=(*_MONITORS, "controller_events"))
def monitors_are_accepted(state: State) -> Iterator[CheckResult]:
    """Monitors of the exporter if none of its series arrive, and of pods whose metrics have no value."""
    if is_exporter_unseen(state):
        for monitor, *_fields in _monitors(state):
            yield from _rejection(state, monitor, frozenset({ALL}))
    for autoscaler in state.autoscalers:
        if not any(metric.missing_in_api for metric in autoscaler.metrics if not metric.is_of_gpus):
            continue
        for monitor in (*state.service_monitors, *state.pod_monitors):
            if any(_reads_pod(state, monitor, pod) for pod in autoscaler.ready_pods[:1]):
                yield from _rejection(state, monitor, state.affected_by([autoscaler]))


def _rejection(state: State, monitor: Manifest, affected: frozenset[str]) -> Iterator[CheckResult]:
    kind = "PodMonitor" if _is_pod_monitor(monitor) else "ServiceMonitor"
    if said := rejection(state, monitor, kind):
        yield CheckResult(
            MONITOR_REJECTED,
            f"{kind} {name_of(monitor)}",
            said.text,
            affected,
            said.age_s,
            template_vars={**place_of(monitor), "kind": kind.lower()},
        )


def _reads_pod(state: State, monitor: Manifest, pod: Manifest) -> bool:
    """Whether a monitor selects a pod, directly or through a Service."""
    namespace, selector = pod["metadata"]["namespace"], monitor["spec"].get("selector")
    if not _looks_in(monitor, namespace):
        return False
    if _is_pod_monitor(monitor):
        return labels_match(selector, labels_of(pod))
    return any(
        service["metadata"]["namespace"] == namespace
        and labels_match(selector, labels_of(service))
        and labels_match({"matchLabels": service["spec"].get("selector")}, labels_of(pod))
        for service in state.services
        if service["spec"].get("selector")
    )


MONITOR_MISSING = _SCRAPE.error(
    "MONITOR_MISSING",
    cause="no ServiceMonitor or PodMonitor selects the exporter, and nothing else scrapes it",
    fix="run the dcgm_exporter role, or set serviceMonitor.enabled in the chart's values",
    is_consequence=True,
)


@check("a monitor selects the exporter", MONITOR_MISSING, needs=(*_MONITORS, "prometheuses"))
def monitor_exists(state: State) -> Iterator[CheckResult]:
    if is_exporter_unseen(state) and state.prometheuses and not list(_monitors(state)):
        yield CheckResult(
            MONITOR_MISSING,
            names_of(state.agents.exporters),
            f"no ServiceMonitor or PodMonitor selects {names_of(_exporter_services(state)) or 'its pods'}, "
            "and Prometheus has no target of it",
            frozenset({ALL}),
        )


def is_exporter_unseen(state: State) -> bool:
    """Whether exporters run and Prometheus answers, but has none of their series: then the monitors are checked."""
    return bool(state.agents.exporter_pods) and not (
        state.prometheus.error or state.prometheus.gpu_rows or state.targets
    )


def _monitors(state: State) -> Iterator[tuple[Manifest, str, str]]:
    """The exporter's monitors, with the fields of the Prometheus object that select them."""
    for service_monitor in state.service_monitors:
        if _is_of_exporter(state, service_monitor):
            yield service_monitor, *_SERVICE_FIELDS
    for pod_monitor in state.pod_monitors:
        if _is_of_exporter(state, pod_monitor):
            yield pod_monitor, *_POD_FIELDS


def _is_of_exporter(state: State, monitor: Manifest) -> bool:
    """By its name and selector, because a wrong selector selects nothing; or by what it selects."""
    is_named = "dcgm" in f"{monitor['metadata']['name']} {monitor['spec'].get('selector')}"
    return is_named or bool(_selected_services(state, monitor)) or _selects_pods(state, monitor)


def _is_pod_monitor(monitor: Manifest) -> bool:
    return "podMetricsEndpoints" in monitor["spec"]


def _looks_in(monitor: Manifest, namespace: str) -> bool:
    selector = monitor["spec"].get("namespaceSelector") or {}
    return bool(selector.get("any")) or namespace in (selector.get("matchNames") or [monitor["metadata"]["namespace"]])


def _selects_pods(state: State, monitor: Manifest) -> bool:
    return _is_pod_monitor(monitor) and any(
        _looks_in(monitor, pod["metadata"]["namespace"])
        and labels_match(monitor["spec"].get("selector"), labels_of(pod))
        for pod in state.agents.exporter_pods
    )


def _exporter_services(state: State) -> list[Manifest]:
    some_pods = state.agents.exporter_pods[:1] + state.agents.exporter_pods[-1:]
    return [
        service
        for service in state.services
        if (selector := service["spec"].get("selector"))
        and any(
            pod["metadata"]["namespace"] == service["metadata"]["namespace"]
            and labels_match({"matchLabels": selector}, labels_of(pod))
            for pod in some_pods
        )
    ]


def _selected_services(state: State, monitor: Manifest) -> list[Manifest]:
    return [
        service
        for service in (() if _is_pod_monitor(monitor) else _exporter_services(state))
        if _looks_in(monitor, service["metadata"]["namespace"])
        and labels_match(monitor["spec"].get("selector"), labels_of(service))
    ]


MONITOR_NOT_SELECTED = _SCRAPE.error(
    "MONITOR_NOT_SELECTED",
    cause="no Prometheus object selects the exporter's monitor: {why}",
    fix="set dcgm_exporter_monitor_labels, or label the monitor: {labels}",
    is_consequence=True,
)


@check("Prometheus selects the monitor", MONITOR_NOT_SELECTED, needs=_SELECTED)
def monitor_is_selected(state: State) -> Iterator[CheckResult]:
    if not is_exporter_unseen(state) or not state.prometheuses:
        return
    monitors = list(_monitors(state))
    missed = [(monitor, why) for monitor, *fields in monitors if (why := why_not_selected(state, monitor, *fields))]
    if missed and len(missed) == len(monitors):
        monitor, why = missed[0]
        selector = state.prometheuses[0]["spec"].get("serviceMonitorSelector") or {}
        yield CheckResult(
            MONITOR_NOT_SELECTED,
            f"monitor {name_of(monitor)}",
            f"its labels are {labels_text(labels_of(monitor))}; {why}",
            frozenset({ALL}),
            state.clock.last_change_age_s(monitor),
            template_vars={"why": why, "labels": labels_text(selector.get("matchLabels") or {})},
        )


MONITOR_FITS_NO_SERVICE = _SCRAPE.error(
    "MONITOR_FITS_NO_SERVICE",
    cause="the exporter's monitor finds nothing to scrape: {why}",
    fix="correct its selector, namespaceSelector or port; the dcgm_exporter role keeps them consistent",
    is_consequence=True,
)


@check("the monitor matches a Service and its port", MONITOR_FITS_NO_SERVICE, needs=_SELECTED)
def monitor_fits(state: State) -> Iterator[CheckResult]:
    """Whether none of the monitors that a Prometheus selects finds a Service with the port."""
    if not is_exporter_unseen(state):
        return
    monitors = [monitor for monitor, *fields in _monitors(state) if not why_not_selected(state, monitor, *fields)]
    misfits = [(monitor, why) for monitor in monitors if (why := _misfit(state, monitor))]
    if misfits and len(misfits) == len(monitors):
        monitor, why = misfits[0]
        name = f"monitor {name_of(monitor)}"
        age_s = state.clock.last_change_age_s(monitor)
        yield CheckResult(MONITOR_FITS_NO_SERVICE, name, why, frozenset({ALL}), age_s, template_vars={"why": why})


def _misfit(state: State, monitor: Manifest) -> str:
    selector = selector_text(monitor["spec"].get("selector"))
    if _is_pod_monitor(monitor):
        containers = [container for daemon_set in state.agents.exporters for container in containers_of(daemon_set)]
        if not _selects_pods(state, monitor):
            return f"its selector {selector} matches no pod of {names_of(state.agents.exporters)}"
        ports = {port.get("name") for container in containers for port in container.get("ports") or ()}
        return _wrong_port(monitor["spec"].get("podMetricsEndpoints") or (), ports)
    services = _exporter_services(state)
    if not services:
        return f"no Service selects the pods of {names_of(state.agents.exporters)}"
    selected = _selected_services(state, monitor)
    if not selected:
        return (
            f"its selector {selector} does not match Service {name_of(services[0])}, "
            f"labelled {labels_text(labels_of(services[0]))}, or not its namespace"
        )
    ports = {port.get("name") for service in selected for port in service["spec"].get("ports") or ()}
    return _wrong_port(monitor["spec"].get("endpoints") or (), ports)


def _wrong_port(endpoints: Sequence[Manifest], ports: set[str | None]) -> str:
    asked = [str(endpoint["port"]) for endpoint in endpoints if endpoint.get("port")]
    if not asked or set(asked) & ports or any("targetPort" in endpoint for endpoint in endpoints):
        return ""
    return f"it selects port {', '.join(asked)}, the ports are named {', '.join(sorted(map(str, ports)))}"


POD_NOT_SCRAPED = _SCRAPE.error(
    "POD_NOT_SCRAPED",
    cause="Prometheus does not scrape the pods of the model server: nothing selects them",
    fix="create a PodMonitor with the labels of the pods and the port of their metrics; docs/vllm.md has one",
    grace_s=120,
    evidence=(
        Evidence(
            r"Selector of Prometheus",
            "the pods have a monitor, but no Prometheus object selects it",
            "label the monitor as the Prometheus object asks: kubectl -n {namespace} label {monitor} ...",
        ),
        Evidence(
            r"it selects port",
            "the monitor of the pods names a port that they do not have",
            "name the containerPort of the metrics in the pod template, and set it as port of {monitor}",
        ),
        Evidence(
            r"selects them",
            "the pods have a monitor, but Prometheus has no target of them",
            "check Status > Service discovery in Prometheus: the operator may not have reloaded it yet, or a "
            "relabeling drops the pods",
        ),
    ),
)


@check("the pods of model servers are scraped", POD_NOT_SCRAPED, needs=("metrics", *_SELECTED))
def model_servers_are_scraped(state: State) -> Iterator[CheckResult]:
    """Checks autoscalers on metrics of model servers, if none of their pods has a value or is a scrape target."""
    if state.prometheus.error or not state.prometheus.up:
        return
    for autoscaler in state.autoscalers:
        reads_servers = any(metric.reporter == MODEL_SERVER.name for metric in autoscaler.metrics)
        pods = autoscaler.ready_pods
        names = {pod["metadata"]["name"] for pod in pods}
        # Values are those of all pods of the namespace.
        has_values = any(names & {*metric.values, *metric.recorded} for metric in autoscaler.metrics)
        if not reads_servers or not pods or has_values or autoscaler.pod_keys & state.own_targets.keys():
            continue
        monitors = [
            monitor
            for monitor in (*state.service_monitors, *state.pod_monitors)
            if any(_reads_pod(state, monitor, pod) for pod in pods[:1])
        ]
        why, monitor = _why_unread(state, monitors, pods[0])
        kind = "podmonitor" if monitor and _is_pod_monitor(monitor) else "servicemonitor"
        yield CheckResult(
            POD_NOT_SCRAPED,
            f"pods of {autoscaler.workload}",
            f"`up` has no series of {pods_text(pods)}, and {why}",
            state.affected_by([autoscaler]),
            youngest(
                [state.readable_s(pods), *(state.clock.last_change_age_s(monitor) for monitor in monitors)],
            ),
            template_vars={
                "namespace": monitor["metadata"]["namespace"] if monitor else autoscaler.key[0],
                "monitor": f"{kind} {monitor['metadata']['name']}" if monitor else "",
            },
        )


def _why_unread(state: State, monitors: Sequence[Manifest], pod: Manifest) -> tuple[str, Manifest | None]:
    """Why Prometheus has no target of a pod, and the monitor that should make one."""
    if not monitors:
        return f"no PodMonitor or ServiceMonitor fits their labels {labels_text(labels_of(pod))}", None
    fields = [_POD_FIELDS if _is_pod_monitor(monitor) else _SERVICE_FIELDS for monitor in monitors]
    reasons = [why_not_selected(state, monitor, *both) for monitor, both in zip(monitors, fields, strict=True)]
    if all(reasons):
        return f"monitor {name_of(monitors[0])} is not selected: {reasons[0]}", monitors[0]
    monitor = monitors[reasons.index("")]
    ports = {port.get("name") for container in pod["spec"]["containers"] for port in container.get("ports") or ()}
    wrong = _wrong_port(monitor["spec"].get("podMetricsEndpoints") or (), ports)
    return f"monitor {name_of(monitor)} selects them{wrong and f', but {wrong}'}", monitor


MONITOR_INTERVAL_IGNORED = _SCRAPE.warning(
    "MONITOR_INTERVAL_IGNORED",
    cause="port and interval are in two endpoints (`- port` and `- interval`), so the interval belongs to no port",
    fix="put interval under the same list item as port",
)


@check("the monitor's interval belongs to a port", MONITOR_INTERVAL_IGNORED, needs=_MONITORS)
def monitor_intervals(state: State) -> Iterator[CheckResult]:
    for monitor, *_fields in _monitors(state):
        endpoints = monitor["spec"].get("endpoints") or monitor["spec"].get("podMetricsEndpoints") or ()
        without_port = [
            endpoint
            for endpoint in endpoints
            if "interval" in endpoint and not {"port", "targetPort", "portNumber"} & set(endpoint)
        ]
        if without_port and len(endpoints) > 1:
            yield CheckResult(
                MONITOR_INTERVAL_IGNORED,
                f"monitor {name_of(monitor)}",
                f"an endpoint has interval {without_port[0]['interval']} and no port, another has the port",
                age_s=state.clock.last_change_age_s(monitor),
            )
