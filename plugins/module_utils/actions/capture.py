# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the doctor looks at, read in a number of requests that does not grow with the autoscalers. Judges nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ..autoscaling.capacity import gpus_per_pod
from ..autoscaling.manifests import Manifest, RecordedQueries, autoscaler_of
from ..autoscaling.spec import PODS as PODS_METRIC
from ..autoscaling.spec import Autoscaler
from ..chain.adapter_config import adapter_config, config_map_of
from ..chain.controllers import CONTROLLERS, REJECTED, RESCALED
from ..chain.objects import Key, is_ready, key_of, pod_spec
from ..chain.selectors import labels_match
from ..chain.signs import ABOUT_GPUS
from ..chain.state.api import AdapterConfig, ApiState
from ..chain.state.autoscaler import AutoscalerState
from ..chain.state.cluster import Place, Scope, State
from ..chain.state.metric import MetricState
from ..cluster.errors import ApiError
from ..cluster.kube import (
    APISERVICES,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    HPAS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_MONITORS,
    PODS,
    PROMETHEUSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    RULES,
    SCALED_OBJECTS,
    SERVICE_MONITORS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    KubeClient,
    Resource,
)
from ..cluster.listing import list_in
from ..cluster.metrics_api import MetricsApi
from ..cluster.parallel import in_parallel
from ..cluster.prometheus import PrometheusClient
from ..errors import HopError
from ..formats.yaml import from_yaml
from ..hops import Hop
from ..marks import is_managed
from ..proof.record import NAME, NAMESPACE, record_of
from .ask_prometheus import ask_prometheus, with_scrape_errors
from .backend import PrometheusAdapter
from .history import read_history
from .intervals import Intervals
from .metrics_owner import Owner
from .observe import Observer
from .prometheus_replicas import pods_of_service, replicas_of
from .reading import Reading, ReadOnce, attempt, message_of
from .snapshot import GROUPS
from .targets import TargetState, read_targets

# Read whole, by the field of the state that they fill.
_LISTS: dict[str, Resource] = {
    "nodes": NODES,
    "daemon_sets": DAEMON_SETS,
    "namespaces": NAMESPACES,
    "services": SERVICES,
    "service_monitors": SERVICE_MONITORS,
    "pod_monitors": POD_MONITORS,
    "prometheuses": PROMETHEUSES,
    "rule_objects": RULES,
    "scaled_objects": SCALED_OBJECTS,
    "hpas": HPAS,
    "webhooks": VALIDATING_WEBHOOKS,
}

_CONTROL_PLANE = "kube-system"

# Of these the namespaces of the scope are all that matters: who may not list them all is asked for those.
_OF_NAMESPACES = ("hpas", "scaled_objects")

# Reasons of a kubelet that does not start a pod which the scheduler has given to it.
_REJECTED = re.compile(r"UnexpectedAdmissionError|OutOf.+|TopologyAffinityError|NodeAffinity")


_NOWHERE = Place()


def capture(
    kube: KubeClient,
    prometheus: PrometheusClient,
    *,
    scope: Scope,
    facts: Mapping[str, Mapping[str, Any]],
    history_s: int,
    only: Collection[Key] | None = None,
    place: Place = _NOWHERE,
) -> State:
    """only: the autoscalers to look at; None for those of the scope.

    Raises: ApiError if the API server does not answer. HopError if the HPA that `scope` names does not exist, or if
    the client sends no login.
    """
    user = kube.user()
    kube, reading = ReadOnce(kube), Reading()
    version = reading.take("version", lambda: kube.get_raw("/version"), None)
    places = {scope.namespace} if scope.namespace else {namespace for namespace, _name in only or ()}
    answers = [
        attempt(partial(_list_in_scope, kube, _LISTS[name], places))
        if name in _OF_NAMESPACES and _is_denied(answer)
        else answer
        for name, answer in zip(_LISTS, in_parallel(kube.list, list(_LISTS.values())), strict=True)
    ]
    lists = {name: reading.note(name, answer) for name, answer in zip(_LISTS, answers, strict=True)}
    clock = attempt(lambda: prometheus.query("time()")[0].values[0])
    if not facts:
        reading.unavailable["facts"] = "node_facts is not given: pass the results of gpu_facts"
    state = State(
        now_s=clock if isinstance(clock, float) else time.time(),
        scope=scope,
        server_version=version.get("gitVersion") if isinstance(version, Mapping) else None,
        facts=facts,
        unavailable=reading.unavailable,
        denied=reading.denied,
        user=user,
        place=place,
        **{**lists, "hpas": [{**hpa, "kind": HPAS.kind} for hpa in lists["hpas"]]},
    )
    wanted, targets = _autoscalers(kube, reading, state, only)
    services = _metrics_services(kube, reading, wanted)
    namespaces = _namespaces(state, prometheus, services, wanted)
    pods = reading.take("component_pods", lambda: list(list_in(kube, PODS, namespaces).values())) if namespaces else []
    slices, claim_templates = _claims(kube, reading, state, wanted, targets)
    places = {autoscaler.namespace for autoscaler in wanted}
    quotas = reading.take("quotas", lambda: list(list_in(kube, RESOURCE_QUOTAS, places).values()))
    state = replace(state, component_pods=pods, resource_slices=slices, claim_templates=claim_templates, quotas=quotas)
    service = _service(state, prometheus.service)
    replicas = replicas_of(prometheus, service, pods)
    observer = Observer(kube, prometheus, PrometheusAdapter(kube), replicas)
    state = replace(
        state,
        prometheus=ask_prometheus(
            reading,
            prometheus,
            replicas,
            clock,
            wanted,
            pods_of_service(service, pods),
        ),
        apis=[_api(kube, reading, group, service, state, pods) for group, service in services.items()],
        autoscalers=_observed(kube, reading, observer, prometheus, wanted, state, history_s),
    )
    places = {scope.namespace} if scope.namespace else set()
    said = [reading.take("controller_events", partial(_said, kube, reason, places)) for reason in (REJECTED, RESCALED)]
    return replace(
        state,
        prometheus=with_scrape_errors(prometheus, state),
        events=_events(kube, reading, state),
        controller_events=[event for events in said for event in events],
        leases=_leases(kube, reading) if wanted else {},
        cuda_errors=_cuda_errors(kube, lists["nodes"]),
    )


def _cuda_errors(kube: ReadOnce, nodes: Sequence[Manifest]) -> dict[str, Mapping[str, Any]]:
    """By the record of proofs, where there is one that may be read."""
    record = attempt(partial(kube.get, CONFIG_MAPS, NAME, NAMESPACE))
    if not isinstance(record, dict):
        return {}
    names = {node.get("status", {}).get("nodeInfo", {}).get("machineID"): node["metadata"]["name"] for node in nodes}
    machines = record_of(record).machines.items()
    return {names[machine]: entry.error for machine, entry in machines if entry.error and machine in names}


def _said(kube: ReadOnce, reason: str, namespaces: Collection[str]) -> Sequence[Manifest]:
    """The events of a reason, of the whole cluster; who may not list these gets those of the namespaces."""
    selector = f"reason={reason}"
    try:
        return kube.list(EVENTS, field_selector=selector) or ()
    except ApiError as err:
        if err.status != 403 or not namespaces:
            raise
    return [
        event
        for namespace in sorted(namespaces)
        for event in kube.list(EVENTS, namespace=namespace, field_selector=selector) or ()
    ]


def _leases(kube: ReadOnce, reading: Reading) -> dict[str, Manifest]:
    """By which the controllers of the control plane say that they run; a cluster of one may have none."""
    found = {
        name: reading.take("leases", partial(kube.get, LEASES, name, _CONTROL_PLANE), None) for name in CONTROLLERS
    }
    return {name: lease for name, lease in found.items() if lease}


def _is_denied(answer: object) -> bool:
    return isinstance(answer, ApiError) and answer.status == 403


def _list_in_scope(kube: ReadOnce, resource: Resource, namespaces: Collection[str]) -> list[Manifest]:
    """Raises: ApiError, that of the whole cluster if there is no namespace to ask for."""
    return list(list_in(kube, resource, namespaces).values() if namespaces else kube.list(resource) or ())


def _autoscalers(
    kube: ReadOnce, reading: Reading, state: State, only: Collection[Key] | None
) -> tuple[list[Autoscaler], dict[Key, TargetState]]:
    """The autoscalers to look at, and what they scale: those of the scope that are ours or about GPUs, or named."""
    scope = state.scope
    hpas = [
        hpa
        for hpa in state.hpas
        if (only is None or key_of(hpa) in only)
        and scope.namespace in (None, hpa["metadata"]["namespace"])
        and scope.name in (None, hpa["metadata"]["name"])
    ]
    if scope.name and not hpas and "hpas" not in reading.unavailable:
        place = "/".join(filter(None, (scope.namespace, scope.name)))
        raise HopError(Hop.HPA, seen=f"there is no HPA {place}", fix="correct namespace and name")
    queries = RecordedQueries(state.rule_objects)
    autoscalers = [autoscaler_of(hpa, queries.of(hpa)) for hpa in hpas]
    refused: dict[Key, ApiError] = {}
    targets = reading.take("targets", lambda: read_targets(kube, autoscalers, refused=refused), {})
    chosen = {key_of(hpa) for hpa in hpas if only is not None or scope.name or is_managed(hpa)}
    wanted = [
        autoscaler
        for autoscaler in autoscalers
        if autoscaler.key in chosen or _is_about_gpus(autoscaler, targets.get(autoscaler.key))
    ]
    # What nobody looks at may be of any kind.
    for err in (refused[autoscaler.key] for autoscaler in wanted if autoscaler.key in refused):
        reading.note("targets", err)
    return wanted, targets


def _claims(
    kube: ReadOnce,
    reading: Reading,
    state: State,
    wanted: Sequence[Autoscaler],
    targets: Mapping[Key, TargetState],
) -> tuple[Sequence[Manifest], Sequence[Manifest]]:
    """ResourceSlices and ResourceClaimTemplates, asked for only where pods claim GPUs, or nodes have none to count."""
    namespaces = {
        autoscaler.namespace
        for autoscaler in wanted
        if (target := targets.get(autoscaler.key)) and pod_spec(target.manifest or {}).get("resourceClaims")
    }
    if not namespaces and (state.agents.plugins or not (state.gpu_nodes or state.agents.exporters)):
        return (), ()
    slices = reading.take("resource_slices", lambda: kube.list(RESOURCE_SLICES))
    templates = reading.take(
        "claim_templates", lambda: list(list_in(kube, RESOURCE_CLAIM_TEMPLATES, namespaces).values())
    )
    return slices, templates if namespaces else ()


def _is_about_gpus(autoscaler: Autoscaler, target: TargetState | None) -> bool:
    pod = pod_spec((target.manifest if target else None) or {})
    names = [metric_target.metric.name for metric_target in autoscaler.metric_targets]
    return bool(gpus_per_pod(pod)) or any(map(ABOUT_GPUS.search, names))


def _metrics_services(kube: ReadOnce, reading: Reading, wanted: Sequence[Autoscaler]) -> dict[str, Manifest | None]:
    """The APIServices that the autoscalers' metrics need, by group; the newer version where there is no other."""
    types = [metric_target.type for autoscaler in wanted for metric_target in autoscaler.metric_targets]
    groups = dict.fromkeys(GROUPS[metric_type] for metric_type in types)

    def read(group: str) -> Manifest | None:
        return kube.get(APISERVICES, f"v1beta1.{group}") or kube.get(APISERVICES, f"v1beta2.{group}")

    return {group: reading.take("apis", partial(read, group), None) for group in groups}


def _namespaces(
    state: State, prometheus: PrometheusClient, services: Mapping[str, Manifest | None], wanted: Sequence[Autoscaler]
) -> set[str]:
    """The namespaces whose pods are looked at."""
    components = {
        daemon_set["metadata"]["namespace"] for daemon_set in (*state.agents.exporters, *state.agents.plugins)
    }
    adapters = {_service_of(service)[0] for service in services.values() if service}
    served = {prometheus.service[0]} if wanted or components else set()
    return (components | adapters | served | {autoscaler.namespace for autoscaler in wanted}) - {""}


def _events(kube: ReadOnce, reading: Reading, state: State) -> Sequence[Manifest]:
    """Warnings, of namespaces where something waits: an exporter for its volumes, a workload for its pods."""
    namespaces = {pod["metadata"]["namespace"] for pod in state.agents.waiting_exporters}
    namespaces |= {daemon_set["metadata"]["namespace"] for daemon_set in state.agents.without_pods}
    for autoscaler in state.autoscalers:
        if len(autoscaler.pods) < (autoscaler.replicas or 0) or not all(map(is_ready, autoscaler.pods)):
            namespaces.add(autoscaler.key[0])

    def read() -> list[Manifest]:
        return [
            event
            for namespace in sorted(namespaces)
            for event in kube.list(EVENTS, namespace=namespace, field_selector="type=Warning") or ()
        ]

    return reading.take("events", read) if namespaces else ()


def _service_of(api_service: Manifest | None) -> Key:
    service = ((api_service or {}).get("spec") or {}).get("service") or {}
    return service.get("namespace", ""), service.get("name", "")


def _service(state: State, place: Key) -> Mapping[str, Any]:
    """By namespace and name; without a selector if there is none."""
    namespace, name = place
    none = {"metadata": {"namespace": namespace, "name": name}}
    return next((service for service in state.services if key_of(service) == place), none)


def _api(
    kube: ReadOnce,
    reading: Reading,
    group: str,
    service: Manifest | None,
    state: State,
    pods: Sequence[Manifest],
) -> ApiState:
    owner, place = Owner(group, service), _service_of(service)
    api_service = _service(state, place)
    listed = attempt(lambda: frozenset(MetricsApi(kube.get_raw).listed(group))) if service else None
    if isinstance(listed, ApiError) and listed.status in (401, 403):
        reading.lack("metrics", listed)
    deployments: Sequence[Manifest] = ()
    if place[0]:
        with suppress(ApiError):  # evidence only
            deployments = kube.list(DEPLOYMENTS, namespace=place[0]) or ()
    selector = (api_service.get("spec") or {}).get("selector") or {}
    adapter = next((deployment for deployment in deployments if _makes(deployment, selector)), None)
    return ApiState(
        group,
        service,
        owner=str(owner),
        is_prometheus_adapter=owner.is_prometheus_adapter,
        unavailable=owner.unavailable,
        listed=listed if isinstance(listed, frozenset) else None,
        silence=f": {message_of(listed)}" if isinstance(listed, Exception) else "",
        adapter=adapter,
        pods=pods_of_service(api_service, pods),
        config=_adapter_config(kube, reading, adapter) if adapter and owner.is_prometheus_adapter else None,
    )


def _adapter_config(kube: ReadOnce, reading: Reading, adapter: Manifest) -> AdapterConfig | None:
    place = config_map_of(adapter)
    if place is None:
        return None
    (name, key), namespace = place, adapter["metadata"]["namespace"]
    config_map = reading.take("adapter_config", lambda: kube.get(CONFIG_MAPS, name, namespace), None)
    text = ((config_map or {}).get("data") or {}).get(key)
    if text is None:
        return None
    try:
        return adapter_config(config_map, from_yaml(text))
    except ValueError as err:
        return AdapterConfig(config_map, error=str(err))


def _makes(deployment: Manifest, selector: Mapping[str, str]) -> bool:
    """Whether a Deployment's pods are a Service's."""
    labels = (deployment["spec"]["template"].get("metadata") or {}).get("labels") or {}
    return bool(selector) and labels_match({"matchLabels": selector}, labels)


def _observed(
    kube: ReadOnce,
    reading: Reading,
    observer: Observer,
    prometheus: PrometheusClient,
    wanted: Sequence[Autoscaler],
    state: State,
    history_s: int,
) -> list[AutoscalerState]:
    states = _without_ended(kube, reading.take("metrics", lambda: observer.observe(wanted), {}))
    for err in kube.forbidden:
        is_of_metrics = any(f"/apis/{group}/" in err.request for group in GROUPS.values())
        if is_of_metrics and "metrics" not in reading.unavailable:
            reading.lack("metrics", err)
    intervals = Intervals(kube, prometheus)
    hpas = {key_of(hpa): hpa for hpa in state.hpas}
    history = read_history(prometheus, wanted, states, history_s) if history_s else {}
    found = []
    for autoscaler in wanted:
        leading = autoscaler.metric_targets[:1]
        seen = states.get(autoscaler.key, AutoscalerState(hpas[autoscaler.key]))
        phases = [(pod.get("status") or {}).get("phase") for pod in seen.pods]
        pods = [pod for pod, phase in zip(seen.pods, phases, strict=True) if phase not in ("Succeeded", "Failed")]
        rejected = [
            pod
            for pod, phase in zip(seen.pods, phases, strict=True)
            if phase == "Failed" and _REJECTED.fullmatch(pod["status"].get("reason") or "")
        ]
        budget = intervals.budget(leading[0]).describe() if leading else None
        found.append(
            replace(
                seen,
                hpa=hpas[autoscaler.key],
                target=seen.target,
                pods=pods,
                rejected_pods=rejected,
                budget=budget,
                history=history.get(autoscaler.key),
            )
        )
    return found


def _without_ended(kube: ReadOnce, states: Mapping[Key, AutoscalerState]) -> Mapping[Key, AutoscalerState]:
    """Pods are read before values: one that ended in between has no value, and needs none.

    So pods are read again where one has no value.
    """
    lacking = {key[0] for key, seen in states.items() if any(map(_lacks_pods, seen.metrics))}
    try:
        # ReadOnce has the whole list already, so another one is asked for.
        running = [
            pod
            for namespace in sorted(lacking)
            for pod in kube.list(PODS, namespace=namespace, field_selector="status.phase=Running") or ()
        ]
    except ApiError:
        return states
    there = {key_of(pod) for pod in running if not pod["metadata"].get("deletionTimestamp")}
    return {key: _expecting(seen, there) if key[0] in lacking else seen for key, seen in states.items()}


def _lacks_pods(metric: MetricState) -> bool:
    return metric.type == PODS_METRIC and bool(metric.missing_in_api)


def _expecting(seen: AutoscalerState, there: Collection[Key]) -> AutoscalerState:
    """Values of the pods that are there."""
    gone = {pod["metadata"]["name"] for pod in seen.pods if key_of(pod) not in there}
    metrics = [replace(metric, expected_objects=metric.expected_objects - gone) for metric in seen.metrics]
    return replace(seen, metrics=metrics)
