# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the doctor looks at, read in a number of requests that does not grow with the autoscalers. Judges nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..autoscaling.capacity import gpus_per_pod
from ..autoscaling.manifests import Manifest, autoscaler_of, is_managed, recordings_of
from ..autoscaling.spec import Autoscaler
from ..chain.adapter_config import adapter_config, config_map_of
from ..chain.objects import is_ready, labels_of, pod_spec
from ..chain.rule_texts import labels_joined
from ..chain.selectors import labels_match, parse_selector
from ..chain.state import AdapterConfig, ApiState, AutoscalerState, PrometheusState, Row, Scope, State
from ..cluster.errors import ApiError, QueryError
from ..cluster.kube import (
    APISERVICES,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    HPAS,
    NAMESPACES,
    NODES,
    POD_MONITORS,
    PODS,
    PROMETHEUSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    RULES,
    SCALED_OBJECTS,
    SERVICE_MONITORS,
    SERVICES,
    VALIDATING_WEBHOOKS,
    KubeClient,
    Resource,
)
from ..cluster.metrics_api import MetricsApi
from ..cluster.parallel import in_parallel
from ..cluster.prometheus import PrometheusClient, Series
from ..cluster.rights import right_to
from ..errors import HopError
from ..formats.yaml import from_yaml
from ..hops import Hop
from .backend import PrometheusAdapter
from .history import read_history
from .intervals import Intervals
from .metrics_owner import Owner
from .observe import Observer, sources_of
from .snapshot import GROUPS
from .targets import Key, TargetState, key_of, list_in, read_targets

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

_UTILISATION, _ENGINE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_RATIOS = "DCGM_FI_PROF_(GR_ENGINE|SM|DRAM)_ACTIVE"
_NAMES = "exported_namespace, exported_pod, namespace, pod"
# How long what was there excuses what is not: as long as the grace of the findings about it.
_LATELY = "2m"
# By the field of PrometheusState; `sources` are the series that the autoscalers' metrics are made of.
_QUERIES = {
    "rows": f'count by (__name__, instance, Hostname, hostname, {_NAMES}) ({{__name__=~"{{sources}}"}})',
    # A kubelet that is away for a moment, or whose node is not called dead yet, leaves the exporter without names.
    "rows_lately": f'group by ({_NAMES}) (last_over_time({{__name__=~"{{sources}}"}}[{_LATELY}]))',
    # The last Xid error is remembered; all others are readings.
    "serving": 'count by (instance) ({__name__=~"DCGM_FI_.+", __name__!="DCGM_FI_DEV_XID_ERRORS"})',
    "up": "up",
    "up_lately": f"max_over_time(up[{_LATELY}]) > 0",
    "blanks": f'topk(20, {_UTILISATION} > 100 or {_UTILISATION} < 0 or {{__name__=~"{_RATIOS}"}} > 1.01)',
    "frozen": f"min_over_time({_UTILISATION}[5m]) > 90 and on (UUID, instance) {_UTILISATION} offset 5m "
    f"and on (UUID, instance) (max_over_time({_ENGINE}[5m]) == 0)",
    "doubled": f'count by (UUID, GPU_I_ID) (count by (UUID, GPU_I_ID, instance, job) ({_UTILISATION}{{UUID!=""}})) > 1',
}
# An HPA that nobody made with this collection is looked at if it is about GPUs.
_ABOUT_GPUS = re.compile(r"gpu|dcgm|nvidia|(^|_)mig(_|$)|^llm_|vllm", re.IGNORECASE)


class ReadOnce(KubeClient):
    """A client that only reads, and each thing only once, so that all that looks at it sees the same."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._lists: dict[tuple[Resource, *tuple[str | None, ...]], Sequence[Manifest] | ApiError | None] = {}
        self._objects: dict[tuple[Resource, str, str | None, str | None], Manifest | None] = {}
        self.dry_run = True
        # What there was no right to get raw: who asks for values takes a refusal for an answer.
        self.forbidden: list[ApiError] = []

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Sequence[Manifest] | None:
        for whole in (
            self._lists.get((resource, None, None, None)),
            self._lists.get((resource, namespace, None, None)),
        ):
            if isinstance(whole, list) and not field_selector and (namespace or label_selector):
                selector = parse_selector(label_selector or "") or {}
                return [
                    manifest
                    for manifest in whole
                    if namespace in (None, manifest["metadata"].get("namespace"))
                    and labels_match(selector, labels_of(manifest))
                ]
        key = resource, namespace, label_selector, field_selector
        if key not in self._lists:
            try:
                self._lists[key] = self._kube.list(
                    resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector
                )
            except ApiError as err:
                self._lists[key] = err
        found = self._lists[key]
        if isinstance(found, ApiError):
            raise found
        return found

    def discover(self, api_version: str) -> dict[str, Resource]:
        return self._kube.discover(api_version)

    def get(
        self, resource: Resource, name: str, namespace: str | None = None, subresource: str | None = None
    ) -> Manifest | None:
        key = resource, name, namespace, subresource
        if key not in self._objects:
            self._objects[key] = self._kube.get(resource, name, namespace, subresource)
        return self._objects[key]

    def get_raw(self, path: str, query: Mapping[str, str] | None = None, *, retry: bool = False) -> Any:
        try:
            return self._kube.get_raw(path, query, retry=retry)
        except ApiError as err:
            if err.status in (401, 403):
                self.forbidden.append(err)
            raise


@dataclass
class _Reading:
    """What has been read so far, and why the rest could not be."""

    found: dict[str, Any] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, read: Callable[[], Any], empty: Any = ()) -> Any:
        """Raises ApiError only if the API server does not answer at all: then nothing can be looked at."""
        return self.note(name, _attempt(read), empty)

    def note(self, name: str, answer: Any, empty: Any = ()) -> Any:
        if isinstance(answer, ApiError) and answer.status == 0:
            raise answer
        if isinstance(answer, Exception):
            self.unavailable[name] = _reason(answer)
        self.found[name] = empty if answer is None or isinstance(answer, Exception) else answer
        return self.found[name]


def _attempt(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (ApiError, HopError, QueryError) as err:
        return err


def _reason(err: Exception) -> str:
    if isinstance(err, ApiError) and err.status == 401:
        return f"the credentials have expired or are wrong: {err}"
    if isinstance(err, ApiError) and err.status == 403:
        return f"no right to {right_to(err.request)}"
    return str(err)


def capture(
    kube: KubeClient,
    prometheus: PrometheusClient,
    *,
    scope: Scope,
    facts: Mapping[str, Mapping[str, Any]],
    history_s: int,
    only: Collection[Key] | None = None,
) -> State:
    """only: the autoscalers to look at; None for those of the scope.

    Raises: ApiError if the API server does not answer, HopError if the HPA that `scope` names does not exist.
    """
    kube, reading = ReadOnce(kube), _Reading()
    names = [*_LISTS, "version"]
    answers = in_parallel(lambda name: _whole(kube, name), names)
    lists = {name: reading.note(name, answer) for name, answer in zip(names, answers, strict=True)}
    clock = _attempt(lambda: prometheus.query("time()")[0].values[0])
    if not facts:
        reading.unavailable["facts"] = "node_facts is not given: pass the results of gpu_facts"
    version = lists.pop("version")
    state = State(
        now_s=clock if isinstance(clock, float) else time.time(),
        scope=scope,
        server_version=version.get("gitVersion") if isinstance(version, Mapping) else None,
        facts=facts,
        unavailable=reading.unavailable,
        **{**lists, "hpas": [{**hpa, "kind": HPAS.kind} for hpa in lists["hpas"]]},
    )
    wanted, targets = _autoscalers(kube, reading, state, only)
    services = _metrics_services(kube, reading, wanted)
    namespaces = _namespaces(state, prometheus, services, wanted)
    pods = reading.take("component_pods", lambda: list(list_in(kube, PODS, namespaces).values())) if namespaces else []
    slices, claim_templates = _claims(kube, reading, state, wanted, targets)
    state = replace(state, component_pods=pods, resource_slices=slices, claim_templates=claim_templates)
    state = replace(
        state,
        prometheus=_prometheus(reading, prometheus, clock, wanted, state, pods),
        apis=[_api(kube, reading, group, service, state, pods) for group, service in services.items()],
        autoscalers=_observed(kube, reading, prometheus, wanted, state, history_s),
    )
    return replace(
        state,
        prometheus=_with_scrape_errors(prometheus, state),
        events=_events(kube, reading, state),
    )


def _whole(kube: ReadOnce, name: str) -> Any:
    return kube.get_raw("/version") if name == "version" else kube.list(_LISTS[name])


def _autoscalers(
    kube: ReadOnce, reading: _Reading, state: State, only: Collection[Key] | None
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
    queries = {
        recording["record"]: recording.get("expr", "")
        for rule in state.rule_objects
        for recording in recordings_of(rule)
    }
    autoscalers = [autoscaler_of(hpa, queries) for hpa in hpas]
    targets = reading.take("targets", lambda: read_targets(kube, autoscalers), {})
    chosen = {key_of(hpa) for hpa in hpas if only is not None or scope.name or is_managed(hpa)}
    return [
        autoscaler
        for autoscaler in autoscalers
        if autoscaler.key in chosen or _is_about_gpus(autoscaler, targets.get(autoscaler.key))
    ], targets


def _claims(
    kube: ReadOnce,
    reading: _Reading,
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
    if not namespaces and (state.plugins or not (state.gpu_nodes or state.exporters)):
        return (), ()
    slices = reading.take("resource_slices", lambda: kube.list(RESOURCE_SLICES))
    templates = reading.take(
        "claim_templates", lambda: list(list_in(kube, RESOURCE_CLAIM_TEMPLATES, namespaces).values())
    )
    return slices, templates if namespaces else ()


def _is_about_gpus(autoscaler: Autoscaler, target: TargetState | None) -> bool:
    pod = pod_spec((target.manifest if target else None) or {})
    names = [metric_target.metric.name for metric_target in autoscaler.metric_targets]
    return bool(gpus_per_pod(pod)) or any(map(_ABOUT_GPUS.search, names))


def _metrics_services(kube: ReadOnce, reading: _Reading, wanted: Sequence[Autoscaler]) -> dict[str, Manifest | None]:
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
    components = {daemon_set["metadata"]["namespace"] for daemon_set in (*state.exporters, *state.plugins)}
    adapters = {_service_of(service)[0] for service in services.values() if service}
    served = {prometheus.service[0]} if wanted or components else set()
    return (components | adapters | served | {autoscaler.namespace for autoscaler in wanted}) - {""}


def _events(kube: ReadOnce, reading: _Reading, state: State) -> Sequence[Manifest]:
    """Warnings, of namespaces where something waits: an exporter for its volumes, a target for its pods."""
    namespaces = {pod["metadata"]["namespace"] for pod in state.waiting_exporters}
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


def _with_scrape_errors(client: PrometheusClient, state: State) -> PrometheusState:
    """Prometheus' own words for scrapes that fail, asked for only where the exporter is down."""
    down = {row.target for row in state.targets.values() if not row.value}
    answer = _attempt(client.targets) if down else []
    if isinstance(answer, Exception):  # something in front of several Prometheus may not know them
        return state.prometheus
    errors = {
        target: str(entry.get("lastError") or "")
        for entry in answer
        if (target := (entry.get("labels", {}).get("job", ""), entry.get("labels", {}).get("instance", ""))) in down
    }
    return replace(state.prometheus, scrape_errors=errors)


def _service_of(api_service: Manifest | None) -> Key:
    service = ((api_service or {}).get("spec") or {}).get("service") or {}
    return service.get("namespace", ""), service.get("name", "")


def _selected(state: State, pods: Iterable[Manifest], namespace: str, name: str) -> list[Manifest]:
    """The pods of a Service; none where it has no selector."""
    selector = _selector(state, namespace, name)
    if not selector:
        return []
    return [
        pod
        for pod in pods
        if pod["metadata"]["namespace"] == namespace
        and labels_match({"matchLabels": selector}, pod["metadata"].get("labels") or {})
    ]


def _prometheus(
    reading: _Reading,
    client: PrometheusClient,
    clock: float | Exception,
    wanted: Sequence[Autoscaler],
    state: State,
    pods: Sequence[Manifest],
) -> PrometheusState:
    own_pods = _selected(state, pods, *client.service)
    if isinstance(clock, ApiError) and clock.status in (401, 403):
        reading.unavailable["prometheus"] = _reason(clock)
    if isinstance(clock, Exception):
        return PrometheusState(client.name, error=_message(clock), pods=own_pods)
    metrics = [metric_target.metric for autoscaler in wanted for metric_target in autoscaler.metric_targets]
    sources = {_UTILISATION, _ENGINE} | {source for metric in metrics for source in sources_of(metric)}
    queries = {name: text.replace("{sources}", "|".join(sorted(sources))) for name, text in _QUERIES.items()}
    answers = in_parallel(lambda query: _rows(client, query), [*queries.values()])
    rows: dict[str, Any] = {
        name: () if isinstance(found, Exception) else found for name, found in zip(queries, answers, strict=True)
    }
    broken = next((answer for answer in answers if isinstance(answer, Exception)), None)
    if broken:
        reading.unavailable["prometheus"] = str(broken)
    rules = _attempt(client.recording_rules)
    return PrometheusState(
        client.name,
        pods=own_pods,
        rules=None if isinstance(rules, Exception) else _by_series(rules),
        joined=None if isinstance(rules, Exception) else _joined(client, rules),
        **rows,
    )


def _joined(client: PrometheusClient, rules: Iterable[Mapping[str, Any]]) -> frozenset[str] | None:
    """One query for all labels; none where no rule joins any."""
    labels = frozenset().union(*(labels_joined(str(rule.get("query") or "")) for rule in rules))
    if not labels:
        return None
    answer = _attempt(lambda: _rows(client, " or ".join(map(_has_label, sorted(labels | {"exported_pod"})))))
    return None if isinstance(answer, Exception) else frozenset(row.labels.get("label", "") for row in answer)


def _has_label(label: str) -> str:
    """PromQL: a series that has the name of a label, if pods' series have that label."""
    series = "kube_pod_labels" if label.startswith("label_") else "kube_pod_(info|owner|labels)"
    return f'label_replace(group({{__name__=~"{series}",{label}!=""}}), "label", "{label}", "", "")'


def _message(err: Exception) -> str:
    return err.message if isinstance(err, ApiError) else str(err)


def _rows(client: PrometheusClient, query: str) -> list[Row]:
    try:
        return [_row(series) for series in client.query(query)]
    except QueryError as err:
        raise ApiError(400, str(err), query) from err


def _row(series: Series) -> Row:
    return Row(series.labels, series.values[-1])


def _by_series(rules: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for rule in rules:
        found.setdefault(rule["name"], []).append(rule)
    return found


def _api(
    kube: ReadOnce,
    reading: _Reading,
    group: str,
    service: Manifest | None,
    state: State,
    pods: Sequence[Manifest],
) -> ApiState:
    owner, (namespace, name) = Owner(group, service), _service_of(service)
    listed = _attempt(lambda: frozenset(MetricsApi(kube.get_raw).listed(group))) if service else None
    if isinstance(listed, ApiError) and listed.status in (401, 403):
        reading.unavailable["metrics"] = _reason(listed)
    deployments: Sequence[Manifest] = ()
    if namespace:
        with suppress(ApiError):  # evidence only
            deployments = kube.list(DEPLOYMENTS, namespace=namespace) or ()
    selector = _selector(state, namespace, name)
    adapter = next((deployment for deployment in deployments if _makes(deployment, selector)), None)
    return ApiState(
        group,
        service,
        str(owner),
        owner.is_prometheus_adapter,
        owner.unavailable,
        listed if isinstance(listed, frozenset) else None,
        f": {_message(listed)}" if isinstance(listed, Exception) else "",
        adapter,
        _selected(state, pods, namespace, name),
        _adapter_config(kube, reading, adapter) if adapter and owner.is_prometheus_adapter else None,
    )


def _adapter_config(kube: ReadOnce, reading: _Reading, adapter: Manifest) -> AdapterConfig | None:
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


def _selector(state: State, namespace: str, name: str) -> Mapping[str, str]:
    service = next((service for service in state.services if key_of(service) == (namespace, name)), {})
    return (service.get("spec") or {}).get("selector") or {}


def _makes(deployment: Manifest, selector: Mapping[str, str]) -> bool:
    """Whether a Deployment's pods are a Service's."""
    labels = (deployment["spec"]["template"].get("metadata") or {}).get("labels") or {}
    return bool(selector) and labels_match({"matchLabels": selector}, labels)


def _observed(
    kube: ReadOnce,
    reading: _Reading,
    prometheus: PrometheusClient,
    wanted: Sequence[Autoscaler],
    state: State,
    history_s: int,
) -> list[AutoscalerState]:
    states: dict[Key, AutoscalerState] = reading.take(
        "metrics", lambda: Observer(kube, prometheus, PrometheusAdapter(kube)).observe(wanted), {}
    )
    for err in kube.forbidden:
        if any(f"/apis/{group}/" in err.request for group in GROUPS.values()):
            reading.unavailable.setdefault("metrics", _reason(err))
    intervals = Intervals(kube, prometheus)
    hpas = {key_of(hpa): hpa for hpa in state.hpas}
    history = read_history(prometheus, wanted, states, history_s) if history_s else {}
    found = []
    for autoscaler in wanted:
        leading = autoscaler.metric_targets[:1]
        seen = states.get(autoscaler.key, AutoscalerState(hpas[autoscaler.key]))
        pods = [pod for pod in seen.pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
        budget = intervals.budget(leading[0]).describe() if leading else None
        found.append(
            replace(
                seen,
                hpa=hpas[autoscaler.key],
                target=seen.target,
                pods=pods,
                budget=budget,
                history=history.get(autoscaler.key),
            )
        )
    return found
