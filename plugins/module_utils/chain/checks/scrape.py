# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...diagnosis.check import ALL, CheckResult, Evidence, FindingType, check
from ...hops import Hop
from ..controllers import rejection
from ..daemon_sets import place_of
from ..objects import Key, Manifest, condition, containers_of, is_ready, key_of, labels_of, name_of, youngest
from ..prometheus_objects import why_not_selected
from ..selectors import labels_match
from ..state.cluster import State
from ..state.targets import exporter_targets
from ..texts import condition_text, labels_text, names_of, selector_text

_PODS = ("daemon_sets", "component_pods", "prometheus")
_MONITORS = (*_PODS, "services", "service_monitors", "pod_monitors")
_SELECTED = (*_MONITORS, "prometheuses", "namespaces")

PROMETHEUS_UNREACHABLE = FindingType(
    "PROMETHEUS_UNREACHABLE",
    Hop.SCRAPE,
    "error",
    cause="Prometheus does not answer",
    fix="get its pods ready; open its port from the control plane to the nodes, or set prometheus.url",
    grace_s=300,
    explained_by=(Hop.NODE,),
    evidence=(
        Evidence(
            r"x509|certificate|\btls\b",
            "the certificate of Prometheus is not accepted",
            "set prometheus.ca_cert to the authority of its certificate, or prometheus.scheme to http",
        ),
        Evidence(
            r"\b40[13]\b|forbidden|unauthorized",
            "the login may not ask Prometheus",
            "allow the user to get services/proxy in Prometheus' namespace, or set prometheus.url and "
            "prometheus.bearer_token",
        ),
        Evidence(
            r"not found|\b404\b",
            "there is no such Service, port or path",
            "run the prometheus_stack role, or set prometheus.namespace, prometheus.service, prometheus.port and "
            "prometheus.path_prefix",
        ),
        Evidence(
            r"no endpoints",
            "the Service of Prometheus has no ready pod",
            "kubectl -n {namespace} get pods; kubectl -n {namespace} describe prometheus",
        ),
    ),
    before="await",
)


@check("Prometheus answers", PROMETHEUS_UNREACHABLE, needs=("prometheus",))
def prometheus_answers(state: State) -> Iterator[CheckResult]:
    if state.prometheus.error:
        yield CheckResult(
            PROMETHEUS_UNREACHABLE,
            f"Prometheus {state.prometheus.name}",
            state.prometheus.error,
            frozenset({ALL}),
            state.prometheus_age_s,
            template_vars={"namespace": state.prometheus.name.partition("/")[0]},
            is_cut_off=state.are_cut_off(state.prometheus.pods),
        )


PROMETHEUS_REPLICAS_DIFFER = FindingType(
    "PROMETHEUS_REPLICAS_DIFFER",
    Hop.SCRAPE,
    "error",
    cause="the Service of Prometheus answers with any of its pods, and they do not have the same: values come and go",
    fix="compare Status > Targets and Status > Rule health of both: kubectl -n {namespace} port-forward {pod} 9090",
    grace_s=120,
    is_consequence=True,
    explained_by=(Hop.NODE,),
    evidence=(
        Evidence(
            r"\(shard ",
            "the Service of Prometheus answers with any of its shards, and each scrapes a part of the targets",
            "set spec.shards of the Prometheus object to 1, or prometheus.service to one that asks all shards, such as "
            "Thanos",
        ),
    ),
)


@check(
    "the replicas of Prometheus have the same",
    PROMETHEUS_REPLICAS_DIFFER,
    needs=(*_PODS, "metrics", "prometheus_replicas"),
)
def replicas_agree(state: State) -> Iterator[CheckResult]:
    """By names of series and by targets: values differ in any case, as each replica scrapes at moments of its own."""
    replicas = state.prometheus.replicas
    titles = _replica_titles(state)
    place = {"namespace": state.prometheus.name.partition("/")[0]}
    for series in sorted(frozenset().union(*(replica.series for replica in replicas.values()))):
        lacking = [name for name, replica in replicas.items() if series not in replica.series]
        users = [
            autoscaler
            for autoscaler in state.autoscalers
            if any(series in (metric.series, *metric.sources) for metric in autoscaler.metrics)
        ]
        if lacking and users:
            ready_s = [state.clock.longest_ready_s(autoscaler.ready_pods) for autoscaler in users]
            yield CheckResult(
                PROMETHEUS_REPLICAS_DIFFER,
                f"Prometheus {state.prometheus.name}",
                f"{', '.join(titles[name] for name in lacking)} has no {series}, which the other has",
                state.affected_by(users),
                youngest([state.rule_age_s(series), max((age for age in ready_s if age is not None), default=None)]),
                max((autoscaler.lag_s for autoscaler in users), default=0),
                {**place, "pod": lacking[0]},
            )
    up = {name: exporter_targets(state.agents.exporter_pods, replica.up) for name, replica in replicas.items()}
    for pod in filter(is_ready, state.agents.exporter_pods):
        lacking = [name for name, targets in up.items() if name_of(pod) not in targets]
        if lacking and len(lacking) < len(up):
            node = pod["spec"].get("nodeName", "")
            yield CheckResult(
                PROMETHEUS_REPLICAS_DIFFER,
                f"Prometheus {state.prometheus.name}",
                f"{', '.join(titles[name] for name in lacking)} cannot scrape {name_of(pod)} on node {node}, "
                "which the other can",
                state.affected_by_nodes([node]),
                youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s]),
                template_vars={**place, "pod": lacking[0]},
            )


def _replica_titles(state: State) -> dict[str, str]:
    """Names of the replicas' pods, with the shard where there are several."""
    shards = {
        pod["metadata"]["name"]: labels_of(pod).get("operator.prometheus.io/shard", "0")
        for pod in state.prometheus.pods
        if pod["metadata"]["name"] in state.prometheus.replicas
    }
    several = len(set(shards.values())) > 1
    return {name: f"{name} (shard {shard})" if several else name for name, shard in shards.items()}


PROMETHEUS_STORES_NOTHING = FindingType(
    "PROMETHEUS_STORES_NOTHING",
    Hop.SCRAPE,
    "error",
    cause="Prometheus scrapes its targets, and stores none of the samples: its disk is full, or it cannot write there",
    fix="kubectl -n {namespace} logs {pod} -c prometheus; enlarge its volume, or lower retention and retentionSize",
    grace_s=300,
)
PROMETHEUS_RELOAD_FAILS = FindingType(
    "PROMETHEUS_RELOAD_FAILS",
    Hop.SCRAPE,
    "warning",
    cause="Prometheus could not load its last configuration and goes on with the one before: monitors and rules that "
    "were changed since are not in force",
    fix="kubectl -n {namespace} logs {pod} -c prometheus names the fault. Correct the monitor, the rule or the "
    "additional scrape configuration that has it",
)
PROMETHEUS_WAL_CORRUPT = FindingType(
    "PROMETHEUS_WAL_CORRUPT",
    Hop.SCRAPE,
    "warning",
    cause="Prometheus has found its write-ahead log corrupt since its start and has dropped samples: its disk was "
    "full or fails, or it was killed",
    fix="kubectl -n {namespace} logs {pod} -c prometheus; see the free space and the state of its volume",
)


@check(
    "Prometheus stores what it scrapes, as it is configured",
    PROMETHEUS_STORES_NOTHING,
    PROMETHEUS_RELOAD_FAILS,
    PROMETHEUS_WAL_CORRUPT,
    needs=("prometheus",),
)
def prometheus_is_well(state: State) -> Iterator[CheckResult]:
    """By what it says of itself. Something in front of several Prometheus says nothing of the kind."""
    prometheus = state.prometheus
    name, runtime = f"Prometheus {prometheus.name}", prometheus.runtime
    pod = next((pod["metadata"]["name"] for pod in prometheus.pods), "POD")
    template_vars = {"namespace": prometheus.name.partition("/")[0], "pod": pod}
    if prometheus.unstored:
        seen = f"{prometheus.unstored} targets are up, and `up` has no series"
        yield CheckResult(
            PROMETHEUS_STORES_NOTHING,
            name,
            seen,
            frozenset({ALL}),
            state.prometheus_age_s,
            template_vars=template_vars,
        )
    if runtime.get("reloadConfigSuccess") is False:
        seen = f"reloadConfigSuccess is false, the configuration in force is of {runtime.get('lastConfigTime')}"
        yield CheckResult(PROMETHEUS_RELOAD_FAILS, name, seen, template_vars=template_vars)
    if corruptions := runtime.get("corruptionCount"):
        seen = f"corruptionCount is {corruptions} since {runtime.get('startTime')}"
        yield CheckResult(PROMETHEUS_WAL_CORRUPT, name, seen, template_vars=template_vars)


PROMETHEUS_NOT_RECONCILED = FindingType(
    "PROMETHEUS_NOT_RECONCILED",
    Hop.SCRAPE,
    "warning",
    cause="the Prometheus operator cannot bring the Prometheus object about: what was changed since is not in force",
    fix="follow the message; kubectl -n {namespace} describe prometheus {name}",
    grace_s=300,
)


@check("the operator brings Prometheus about", PROMETHEUS_NOT_RECONCILED, needs=("prometheuses",))
def prometheus_is_reconciled(state: State) -> Iterator[CheckResult]:
    """Of the namespace whose Prometheus is asked."""
    for prometheus in state.prometheuses:
        found = condition(prometheus, "Reconciled")
        is_ours = prometheus["metadata"]["namespace"] == state.prometheus.name.partition("/")[0]
        if is_ours and found.get("status") == "False":
            yield CheckResult(
                PROMETHEUS_NOT_RECONCILED,
                f"Prometheus {name_of(prometheus)}",
                condition_text(found),
                age_s=state.clock.condition_age_s(prometheus, "Reconciled"),
                template_vars=place_of(prometheus),
            )


MONITOR_REJECTED = FindingType(
    "MONITOR_REJECTED",
    Hop.SCRAPE,
    "error",
    cause="the Prometheus operator takes the monitor for invalid and leaves it out of the configuration",
    fix="correct what the message names: kubectl -n {namespace} edit {kind} {name}",
)


@check("the operator accepts the monitors", MONITOR_REJECTED, needs=(*_MONITORS, "controller_events"))
def monitors_are_accepted(state: State) -> Iterator[CheckResult]:
    """Monitors of the exporter while nothing of it arrives, and of pods whose metrics have no value."""
    if _is_exporter_unseen(state):
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
    """Whether a monitor selects a pod, by itself or by a Service."""
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


MONITOR_MISSING = FindingType(
    "MONITOR_MISSING",
    Hop.SCRAPE,
    "error",
    cause="no ServiceMonitor or PodMonitor points at the exporter, and nothing else scrapes it",
    fix="run the dcgm_exporter role, or set serviceMonitor.enabled in the chart's values",
    is_consequence=True,
)


@check("a monitor points at the exporter", MONITOR_MISSING, needs=(*_MONITORS, "prometheuses"))
def monitor_exists(state: State) -> Iterator[CheckResult]:
    if _is_exporter_unseen(state) and state.prometheuses and not list(_monitors(state)):
        yield CheckResult(
            MONITOR_MISSING,
            names_of(state.agents.exporters),
            f"no ServiceMonitor or PodMonitor selects {names_of(_exporter_services(state)) or 'its pods'}, "
            "and Prometheus has no target of it",
            frozenset({ALL}),
        )


def _is_exporter_unseen(state: State) -> bool:
    """Exporters run, Prometheus answers, and nothing of them arrives: then the monitors are looked at."""
    return bool(state.agents.exporter_pods) and not (
        state.prometheus.error or state.prometheus.gpu_rows or state.targets
    )


def _monitors(state: State) -> Iterator[tuple[Manifest, str, str]]:
    """The exporter's monitors, with the fields of the Prometheus object that select them."""
    for service_monitor in state.service_monitors:
        if _is_of_exporter(state, service_monitor):
            yield service_monitor, "serviceMonitorSelector", "serviceMonitorNamespaceSelector"
    for pod_monitor in state.pod_monitors:
        if _is_of_exporter(state, pod_monitor):
            yield pod_monitor, "podMonitorSelector", "podMonitorNamespaceSelector"


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


MONITOR_NOT_SELECTED = FindingType(
    "MONITOR_NOT_SELECTED",
    Hop.SCRAPE,
    "error",
    cause="no Prometheus object selects the exporter's monitor: {why}",
    fix="set dcgm_exporter_monitor_labels, or label the monitor: {labels}",
    is_consequence=True,
)


@check("Prometheus selects the monitor", MONITOR_NOT_SELECTED, needs=_SELECTED)
def monitor_is_selected(state: State) -> Iterator[CheckResult]:
    if not _is_exporter_unseen(state) or not state.prometheuses:
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


MONITOR_FITS_NO_SERVICE = FindingType(
    "MONITOR_FITS_NO_SERVICE",
    Hop.SCRAPE,
    "error",
    cause="the exporter's monitor finds nothing to scrape: {why}",
    fix="correct its selector, namespaceSelector or port; the dcgm_exporter role keeps them alike",
    is_consequence=True,
)


@check("the monitor fits a Service and its port", MONITOR_FITS_NO_SERVICE, needs=_SELECTED)
def monitor_fits(state: State) -> Iterator[CheckResult]:
    """Of the monitors that a Prometheus selects, none finds a Service, or a port of it."""
    if not _is_exporter_unseen(state):
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
            return f"its selector {selector} fits no pod of {names_of(state.agents.exporters)}"
        ports = {port.get("name") for container in containers for port in container.get("ports") or ()}
        return _wrong_port(monitor["spec"].get("podMetricsEndpoints") or (), ports)
    services = _exporter_services(state)
    if not services:
        return f"no Service selects the pods of {names_of(state.agents.exporters)}"
    selected = _selected_services(state, monitor)
    if not selected:
        return (
            f"its selector {selector} does not fit Service {name_of(services[0])}, "
            f"labelled {labels_text(labels_of(services[0]))}, or not its namespace"
        )
    ports = {port.get("name") for service in selected for port in service["spec"].get("ports") or ()}
    return _wrong_port(monitor["spec"].get("endpoints") or (), ports)


def _wrong_port(endpoints: Sequence[Manifest], ports: set[str | None]) -> str:
    asked = [str(endpoint["port"]) for endpoint in endpoints if endpoint.get("port")]
    if not asked or set(asked) & ports or any("targetPort" in endpoint for endpoint in endpoints):
        return ""
    return f"it asks for port {', '.join(asked)}, the ports are called {', '.join(sorted(map(str, ports)))}"


MONITOR_INTERVAL_IGNORED = FindingType(
    "MONITOR_INTERVAL_IGNORED",
    Hop.SCRAPE,
    "warning",
    cause="port and interval stand in two endpoints (`- port` and `- interval`), so the interval belongs to no port",
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


# Why Prometheus cannot read a target, by its lastError. Limits first: their words quote names and values of labels.
_WHY_DOWN = (
    Evidence(
        r"sample limit exceeded",
        "the target serves more samples than sampleLimit allows, so Prometheus keeps none of them",
        "raise sampleLimit of its monitor, or enforcedSampleLimit of the Prometheus object; or serve fewer series",
    ),
    Evidence(
        r"body size limit exceeded",
        "the answer of the target is longer than bodySizeLimit allows, so Prometheus keeps nothing of it",
        "raise bodySizeLimit of its monitor, or enforcedBodySizeLimit of the Prometheus object; or serve fewer series",
    ),
    Evidence(
        r"label(_name_length|_value_length)?_limit exceeded",
        "a series of the target has more or longer labels than Prometheus allows, so it keeps none of the target",
        "raise labelLimit, labelNameLengthLimit or labelValueLengthLimit of its monitor, or the enforced one of the "
        "Prometheus object; or drop the label by relabelings",
    ),
    Evidence(
        r"no space left|write to WAL|log samples",
        "Prometheus cannot write to its disk",
        "enlarge the volume of Prometheus, or lower its retention: kubectl -n {namespace} get pvc",
    ),
)
TARGET_DOWN = FindingType(
    "TARGET_DOWN",
    Hop.SCRAPE,
    "error",
    cause="Prometheus knows the exporter, but cannot read it",
    fix="see lastError under Status > Targets in Prometheus; kubectl -n {namespace} logs {name}",
    grace_s=120,
    is_consequence=True,
    evidence=(
        *_WHY_DOWN,
        Evidence(
            r"x509|certificate",
            "Prometheus does not accept the exporter's certificate",
            "set tlsConfig of the monitor to the authority of the certificate, or serve plain http",
        ),
        Evidence(
            r"HTTP response to HTTPS client|\btls\b",
            "Prometheus and the exporter disagree about https",
            "set scheme of the monitor's endpoint to what the exporter serves",
        ),
        Evidence(
            r"status 40[13]",
            "the exporter refuses the login of Prometheus",
            "give the monitor's endpoint an authorization, or take the login away from the exporter",
        ),
        Evidence(
            r"status 404",
            "the exporter does not serve the path that the monitor asks for",
            "set path of the monitor's endpoint to /metrics",
        ),
        Evidence(
            r"connection refused",
            "nothing listens on the exporter's port",
            "kubectl -n {namespace} logs {name}; see that the port of the monitor is the exporter's",
        ),
        Evidence(
            r"deadline exceeded|timeout|no route|i/o",
            "the exporter does not answer in time: a network policy is between, the exporter hangs, or a dcgm-exporter "
            "before 4.5.3 waits for its kubelet",
            "see the NetworkPolicies of namespace {namespace}; kubectl -n {namespace} logs {name}",
        ),
    ),
)
TARGET_MISSING = FindingType(
    "TARGET_MISSING",
    Hop.SCRAPE,
    "error",
    cause="Prometheus has no target for an exporter that is ready",
    fix="see Status > Service discovery in Prometheus; compare the monitor's selector, port and namespaces",
    grace_s=120,
    is_consequence=True,
)


@check("each exporter is a target that is up", TARGET_DOWN, TARGET_MISSING, needs=_PODS)
def targets(state: State) -> Iterator[CheckResult]:
    """Judged pod by pod as soon as one can be found among the targets: a static job may hide them behind a name.

    Of several exporters on a node one has to be a target: it reports all GPUs.
    """
    if state.prometheus.error or not (state.targets or _is_exporter_unseen(state)):
        return
    # A monitor that changes is read anew, and for some seconds nothing is scraped.
    answered = exporter_targets(state.agents.exporter_pods, state.prometheus.up_lately)
    answered_lately = _answered_lately(state)
    read = {
        pod["spec"].get("nodeName", "")
        for pod in state.agents.exporter_pods
        if (row := state.targets.get(name_of(pod))) and row.value
    }
    for pod in state.agents.exporter_pods:
        row, node = state.targets.get(name_of(pod)), pod["spec"].get("nodeName", "")
        if not is_ready(pod) or (row is None and node in read):
            continue
        age_s = youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s])
        place, affected = f"pod {name_of(pod)} on node {node}", state.affected_by_nodes([node])
        if row is None:
            seen = "ready, but `up` has no series of it"
            if name_of(pod) in answered:
                age_s = 0.0
            yield CheckResult(TARGET_MISSING, place, seen, affected, age_s, template_vars=place_of(pod))
        elif not row.value:
            job, instance = row.target
            if row.target in answered_lately:
                age_s = 0.0
            error = state.prometheus.scrape_errors.get(row.target, "")
            seen = f"up is 0, job {job}, {instance}{error and f': {error}'}"
            yield CheckResult(TARGET_DOWN, place, seen, affected, age_s, template_vars=place_of(pod))


POD_TARGET_DOWN = FindingType(
    "POD_TARGET_DOWN",
    Hop.SCRAPE,
    "error",
    cause="Prometheus knows the pods of the workload, but cannot read their metrics, which the autoscaler needs",
    fix="see lastError under Status > Targets in Prometheus; kubectl -n {namespace} logs {name}",
    grace_s=120,
    is_consequence=True,
    evidence=(
        *_WHY_DOWN,
        Evidence(
            r"status 40[13]|x509|certificate|HTTP response to HTTPS client|\btls\b",
            "Prometheus and the pods disagree about https, or about the login",
            "set scheme, tlsConfig and authorization of the pods' monitor to what the pods serve",
        ),
        Evidence(
            r"status 404|expected|unsupported|parse|invalid",
            "the pods do not serve metrics at the path that their monitor asks for",
            "set path of the monitor's endpoint to that of the metrics",
        ),
        Evidence(
            r"connection refused",
            "nothing listens on the port that the pods' monitor asks for",
            "set port of the monitor's endpoint to that of the metrics",
        ),
        Evidence(
            r"deadline exceeded|timeout|no route|i/o",
            "the pods do not answer in time: a network policy is between, or they are busy",
            "see the NetworkPolicies of namespace {namespace}; raise scrapeTimeout of the monitor",
        ),
    ),
)


@check("metrics of the workload's own pods are read", POD_TARGET_DOWN, needs=("prometheus", "targets", "metrics"))
def own_targets(state: State) -> Iterator[CheckResult]:
    """Only of autoscalers whose metric is not of GPUs, and has no value: others need no metric of their pods."""
    answered_lately = _answered_lately(state)
    for autoscaler in state.autoscalers:
        if not any(metric.missing_in_api for metric in autoscaler.metrics if not metric.is_of_gpus):
            continue
        for pod in autoscaler.ready_pods:
            row = state.own_targets.get(key_of(pod))
            if row is None or row.value:
                continue
            job, instance = row.target
            error = state.prometheus.scrape_errors.get(row.target, "")
            age_s = youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s])
            yield CheckResult(
                POD_TARGET_DOWN,
                f"pod {name_of(pod)}",
                f"up is 0, job {job}, {instance}{error and f': {error}'}",
                state.affected_by([autoscaler]),
                0.0 if row.target in answered_lately else age_s,
                template_vars=place_of(pod),
            )


def _answered_lately(state: State) -> set[Key]:
    """Targets by job and instance: one scrape that fails is no outage."""
    return {row.target for row in state.prometheus.up_lately}


SCRAPE_SLOW = FindingType(
    "SCRAPE_SLOW",
    Hop.SCRAPE,
    "warning",
    cause="the exporter takes nearly all the time between two scrapes to answer: values are old, and a scrape that "
    "takes longer is lost",
    fix="raise dcgm_exporter_scrape_interval and dcgm_exporter_collect_interval, or serve fewer counters; with many "
    "MIG instances dcgm-exporter is slow (NVIDIA/dcgm-exporter#599)",
    grace_s=300,
)


@check("each exporter answers well within its scrape interval", SCRAPE_SLOW, needs=_PODS)
def scrape_durations(state: State) -> Iterator[CheckResult]:
    shares = {row.target: row.value for row in state.prometheus.slow}
    for pod in state.agents.exporter_pods:
        row, node = state.targets.get(name_of(pod)), pod["spec"].get("nodeName", "")
        if row is not None and row.value and row.target in shares:
            yield CheckResult(
                SCRAPE_SLOW,
                f"pod {name_of(pod)} on node {node}",
                f"its answers take {shares[row.target]:.0%} of the time, in the last 2 minutes",
                state.affected_by_nodes([node]),
                youngest([state.clock.condition_age_s(pod, "Ready"), state.prometheus_age_s]),
                template_vars=place_of(pod),
            )


def summary(state: State) -> str:
    return f"{state.prometheus.name} has {len(state.prometheus.gpu_rows)} kinds of GPU series"


def nothing(state: State) -> str:
    return "" if state.agents.exporter_pods or state.prometheus.gpu_rows else "no dcgm-exporter is known"
