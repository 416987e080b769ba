# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the state for the doctor, in a number of requests independent of the autoscalers. No checks here.

Called by actions/examine.py and verify.py. In: clients and a scope. Out: a `State`, frozen, for
chain/checks. A part that cannot be read is noted, and the others are read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from ..autoscaling.manifests import RecordedQueries, autoscaler_of, reads_recorded
from ..autoscaling.spec import Autoscaler
from ..chain.controller_reports import CONTROLLERS, REJECTED, RESCALED
from ..chain.scaled_objects import failure_of, is_about_gpus, served_for
from ..chain.state.agents import Agents
from ..chain.state.api import ApiState
from ..chain.state.autoscaler import AutoscalerState
from ..chain.state.cluster import Place, Scope, State
from ..chain.state.nodes import open_nodes
from ..chain.state.prometheus import PrometheusState
from ..chain.state.targets import exporter_targets, own_targets
from ..cluster.errors import ApiError
from ..cluster.kube import (
    CONFIG_MAPS,
    EVENTS,
    HPAS,
    LEASES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_QUOTAS,
    KubeClient,
    Resource,
)
from ..cluster.listing import list_in, list_in_reach
from ..cluster.metrics_api import EXTERNAL_METRICS, GROUPS, group_of
from ..cluster.prometheus_client import PrometheusClient
from ..errors import HopError
from ..hops import Hop
from ..kube.capacity import gpus_per_pod
from ..kube.known_components import ABOUT_GPUS
from ..kube.labels import is_managed
from ..kube.objects import Key, Manifest, is_ready, key_of, name_of, pod_spec
from ..kube.pods import has_ended, was_rejected
from ..proof.record import NAME, NAMESPACE, Entry, record_of
from .answer_times import read_answer_times
from .history import read_history
from .intervals import Intervals
from .metric_values import Observer
from .metrics_apis import read_api, service_of
from .pods import without_ended
from .prometheus_queries import ask_prometheus, with_scrape_errors
from .prometheus_replicas import pods_of_service, replicas_of
from .queues import read_queues
from .reader import Reader
from .targets import TargetState, read_targets
from .unread_parts import attempt

_CONTROL_PLANE = "kube-system"
# Parts that are always read.
_LISTS = (
    "nodes",
    "daemon_sets",
    "namespaces",
    "services",
    "service_monitors",
    "pod_monitors",
    "prometheuses",
    "resource_slices",
    "rule_objects",
    "scaled_objects",
    "webhooks",
)
_NOWHERE = Place()


class DoctorReader(Reader):
    """One reading of autoscalers and their chains."""

    def __init__(
        self,
        kube: KubeClient,
        prometheus: PrometheusClient,
        *,
        scope: Scope,
        facts: Mapping[str, Mapping[str, Any]],
        history_s: int,
        only: Collection[Key] | None = None,
        place: Place = _NOWHERE,
    ) -> None:
        """only: autoscalers to read; None for those of the scope."""
        in_scope = {scope.namespace} if scope.namespace else set()
        super().__init__(kube, namespaces=in_scope or {namespace for namespace, _name in only or ()})
        self._in_scope = in_scope
        self._client = prometheus
        self._scope = scope
        self._facts = facts
        self._history_s = history_s
        self._only = only
        self._place = place

    def state(self) -> State:
        """The state with all parts.

        Raises: ApiError if the API server does not answer. HopError if the HPA that the scope names does not exist, or
        if the client sends no login.
        """
        user = self.kube.user()
        version = self.take("version", lambda: self.kube.get_raw("/version"), None)
        self.read_ahead([*map(self.resource_of, _LISTS), HPAS])
        lists = {name: getattr(self, name) for name in _LISTS}
        if not self._facts:
            self.gaps.unavailable["facts"] = (
                "the inventory has no servers, so their drivers were not read (node_facts of the module)"
            )
        return State(
            self._now_s,
            user=user,
            server_version=version.get("gitVersion") if isinstance(version, Mapping) else None,
            scope=self._scope,
            place=self._place,
            facts=self._facts,
            **lists,
            hpas=self.hpas,
            component_pods=self.component_pods,
            claim_templates=self.claim_templates,
            device_classes=self.known_classes,
            quotas=self.quotas,
            apis=self.apis,
            prometheus=self.prometheus,
            autoscalers=self.autoscalers,
            controller_events=self.controller_events,
            events=self.events,
            leases=self.leases,
            cuda_errors=self.cuda_errors,
            unrequested=self.unrequested,
            pods=self.pods,
            unavailable=self.gaps.unavailable,
            denied=self.gaps.denied,
        )

    @cached_property
    def _clock(self) -> float | Exception:
        """Prometheus' time, or the error if it cannot be queried."""
        return attempt(lambda: self._client.query("time()")[0].values[0])

    @cached_property
    def _now_s(self) -> float:
        return self._clock if isinstance(self._clock, float) else time.time()

    @cached_property
    def hpas(self) -> Sequence[Manifest]:
        found = self.take("hpas", partial(list_in_reach, self.kube, HPAS, self.namespaces_in_reach))
        return [{**hpa, "kind": HPAS.kind} for hpa in found]

    @cached_property
    def _hpas_in_scope(self) -> list[Manifest]:
        scope = self._scope
        if scope.namespace and self.is_known("namespaces") and scope.namespace not in map(name_of, self.namespaces):
            raise HopError(Hop.HPA, seen=f"unknown namespace {scope.namespace}", fix="kubectl get namespaces")
        hpas = [
            hpa
            for hpa in self.hpas
            if (self._only is None or key_of(hpa) in self._only)
            and scope.namespace in (None, hpa["metadata"]["namespace"])
            and scope.name in (None, hpa["metadata"]["name"])
        ]
        if scope.name and not hpas and "hpas" not in self.gaps.unavailable:
            place = "/".join(filter(None, (scope.namespace, scope.name)))
            raise HopError(Hop.HPA, seen=f"unknown HPA {place}", fix="check namespace and name")
        return hpas

    @cached_property
    def _wanted(self) -> tuple[list[Autoscaler], Mapping[Key, TargetState]]:
        """Autoscalers and their targets: those in the scope that are managed, about GPUs, or read a recorded metric."""
        hpas = self._hpas_in_scope
        queries = RecordedQueries(self.rule_objects)
        autoscalers = [autoscaler_of(hpa, queries.of(hpa)) for hpa in hpas]
        refused: dict[Key, ApiError] = {}
        targets = self.take("targets", lambda: read_targets(self.kube, autoscalers, refused=refused), {})
        chosen = {key_of(hpa) for hpa in hpas if self._only is not None or self._scope.name or is_managed(hpa)}
        wanted = [
            autoscaler
            for autoscaler in autoscalers
            if autoscaler.key in chosen
            or reads_recorded(autoscaler)
            or _is_about_gpus(autoscaler, targets.get(autoscaler.key))
        ]
        # Objects that are not checked can be of any kind.
        for err in (refused[autoscaler.key] for autoscaler in wanted if autoscaler.key in refused):
            self.gaps.note("targets", err)
        return wanted, targets

    @cached_property
    def _namespaces_of_autoscalers(self) -> set[str]:
        return {autoscaler.namespace for autoscaler in self._wanted[0]}

    @cached_property
    def _api_services(self) -> dict[str, Manifest | None]:
        """APIs of the autoscalers' metrics, by group; in the newer version if there is no other."""
        wanted, _targets = self._wanted
        groups = [group_of(autoscaler, target) for autoscaler in wanted for target in autoscaler.metric_targets]
        if self._scaled_objects_in_scope:  # also where KEDA has not made their HPAs
            groups.append(EXTERNAL_METRICS)
        return {group: self.api_service(group, "v1beta1", "v1beta2") for group in dict.fromkeys(groups)}

    @cached_property
    def _scaled_objects_in_scope(self) -> list[Manifest]:
        """Those that are managed or about GPUs."""
        if self._only is not None or self._scope.name:
            return []
        return [
            found
            for found in self.scaled_objects
            if is_about_gpus(found) and self._scope.namespace in (None, found["metadata"]["namespace"])
        ]

    @cached_property
    def _agents(self) -> Agents:
        return Agents(self.daemon_sets, self.component_pods)

    @cached_property
    def component_pods(self) -> Sequence[Manifest]:
        """Objects in the namespaces whose pods are read."""
        agents = Agents(self.daemon_sets)
        components = {daemon_set["metadata"]["namespace"] for daemon_set in (*agents.exporters, *agents.plugins)}
        adapters = {service_of(service)[0] for service in self._api_services.values() if service}
        served = {self._client.service[0]} if self._wanted[0] or components else set()
        namespaces = (components | adapters | served | self._namespaces_of_autoscalers) - {""}
        return self._all_in("component_pods", PODS, namespaces) if namespaces else ()

    def _all_in(self, part: str, resource: Resource, namespaces: Collection[str]) -> Sequence[Manifest]:
        return self.take(part, lambda: list(list_in(self.kube, resource, namespaces).values()))

    @cached_property
    def _claiming(self) -> set[str]:
        """Namespaces with autoscalers whose pods claim GPUs."""
        wanted, targets = self._wanted
        return {
            autoscaler.namespace
            for autoscaler in wanted
            if (target := targets.get(autoscaler.key)) and pod_spec(target.manifest or {}).get("resourceClaims")
        }

    @cached_property
    def claim_templates(self) -> Sequence[Manifest]:
        return self._all_in("claim_templates", RESOURCE_CLAIM_TEMPLATES, self._claiming) if self._claiming else ()

    @property
    def known_classes(self) -> Sequence[Manifest] | None:
        """Read only where devices are offered or claimed; None if they are not read."""
        if not (self.resource_slices or self._claiming):
            return None
        return self.device_classes if self.is_known("device_classes") else None

    @cached_property
    def quotas(self) -> Sequence[Manifest]:
        return self._all_in("quotas", RESOURCE_QUOTAS, self._namespaces_of_autoscalers)

    @cached_property
    def _service(self) -> Manifest:
        """The Service of Prometheus, which may have no selector."""
        return self._service_at(self._client.service)

    def _service_at(self, place: Key) -> Manifest:
        none = {"metadata": dict(zip(("namespace", "name"), place, strict=True))}
        return next((service for service in self.services if key_of(service) == place), none)

    @cached_property
    def apis(self) -> list[ApiState]:
        return [
            read_api(self, group, service, self._service_at(service_of(service)), self.component_pods)
            for group, service in self._api_services.items()
        ]

    @cached_property
    def _replicas(self) -> list[PrometheusClient]:
        return replicas_of(self._client, self._service, self.component_pods)

    @cached_property
    def prometheus(self) -> PrometheusState:
        """Includes errors of failed scrapes of exporters and of the autoscalers' pods."""
        pods = pods_of_service(self._service, self.component_pods)
        answered = ask_prometheus(self.gaps, self._client, self._replicas, self._clock, self._wanted[0], pods)
        keys = {key for autoscaler in self.autoscalers for key in autoscaler.pod_keys}
        targets = [
            *exporter_targets(self._agents.exporter_pods, answered.up).values(),
            *own_targets(keys, answered.up).values(),
        ]
        return with_scrape_errors(self.gaps, self._client, answered, targets)

    @cached_property
    def autoscalers(self) -> list[AutoscalerState]:
        wanted, _targets = self._wanted
        observer = Observer(self.kube, self._client, self._replicas)
        seen = without_ended(self.kube, self.take("metrics", lambda: observer.observe(wanted), {}))
        self._note_forbidden_metrics()
        intervals = Intervals(self.kube, self._client)
        hpas = {key_of(hpa): hpa for hpa in self.hpas}
        queues = read_queues(self._client, wanted)
        answer_times = read_answer_times(self._client, wanted)
        history = read_history(self._client, wanted, seen, self._history_s) if self._history_s else {}
        return [
            _with_rejected_pods(
                seen.get(autoscaler.key, AutoscalerState(hpas[autoscaler.key])),
                hpa=hpas[autoscaler.key],
                budget=intervals.budget(autoscaler.metric_targets[0]).describe() if autoscaler.metric_targets else None,
                history=history.get(autoscaler.key),
                waiting=queues.get(autoscaler.key, {}),
                answer_times=answer_times.get(autoscaler.key, {}),
            )
            for autoscaler in wanted
        ]

    def _note_forbidden_metrics(self) -> None:
        """Values are read through a client that treats a denied request as a response."""
        for err in self.kube.forbidden:
            is_of_metrics = any(f"/apis/{group}/" in err.request for group in GROUPS.values())
            if is_of_metrics and "metrics" not in self.gaps.unavailable:
                self.gaps.lack("metrics", err)

    @cached_property
    def controller_events(self) -> list[Manifest]:
        """All of the cluster; of the scope's namespace if the user is not allowed to list the others."""
        found: list[Manifest] = []
        for reason in (REJECTED, RESCALED):
            read = partial(list_in_reach, self.kube, EVENTS, self._in_scope, field_selector=f"reason={reason}")
            found += self.take("controller_events", read)
        return found

    @cached_property
    def events(self) -> Sequence[Manifest]:
        """Warnings, of namespaces where something waits: an exporter for its volumes, a workload for its pods.

        KEDA writes there why a trigger has no value.
        """
        waiting = (*self._agents.waiting_exporters, *self._agents.without_pods)
        namespaces = {manifest["metadata"]["namespace"] for manifest in waiting}
        for autoscaler in self.autoscalers:
            if len(autoscaler.pods) < (autoscaler.replicas or 0) or not all(map(is_ready, autoscaler.pods)):
                namespaces.add(autoscaler.key[0])
            if served_for(autoscaler.hpa) and not autoscaler.is_scaling:
                namespaces.add(autoscaler.key[0])
        namespaces |= {key_of(found)[0] for found in self._scaled_objects_in_scope if failure_of(found)}

        def read() -> list[Manifest]:
            return [
                event
                for namespace in sorted(namespaces)
                for event in self.kube.list(EVENTS, namespace=namespace, field_selector="type=Warning") or ()
            ]

        return self.take("events", read) if namespaces else ()

    @cached_property
    def leases(self) -> dict[str, Manifest]:
        """Leases of the control plane's controllers; a single control plane may have none."""
        if not self._wanted[0]:
            return {}
        found = {
            name: self.take("leases", partial(self.kube.get, LEASES, name, _CONTROL_PLANE), None)
            for name in CONTROLLERS
        }
        return {name: lease for name, lease in found.items() if lease}

    @cached_property
    def _proofs(self) -> dict[str, Entry]:
        """The record of proofs, by node."""
        record = self.take("cuda_errors", partial(self.kube.get, CONFIG_MAPS, NAME, NAMESPACE), None)
        names = {
            node.get("status", {}).get("nodeInfo", {}).get("machineID"): node["metadata"]["name"] for node in self.nodes
        }
        machines = record_of(record).machines.items()
        return {names[machine]: entry for machine, entry in machines if machine in names}

    @property
    def cuda_errors(self) -> dict[str, Mapping[str, Any]]:
        """CUDA errors by node."""
        found = {node: entry.error for node, entry in self._proofs.items()}
        return {node: error for node, error in found.items() if error and "unrequested" not in error}

    @property
    def unrequested(self) -> dict[str, str]:
        return {node: entry.unrequested for node, entry in self._proofs.items() if entry.unrequested}

    @property
    def pods(self) -> Sequence[Manifest]:
        is_open = open_nodes(self._agents, self.nodes, self.unrequested)
        return self.take("pods", partial(self.kube.list, PODS)) if is_open else ()


def _is_about_gpus(autoscaler: Autoscaler, target: TargetState | None) -> bool:
    pod = pod_spec((target.manifest if target else None) or {})
    names = [metric_target.metric.name for metric_target in autoscaler.metric_targets]
    return bool(gpus_per_pod(pod)) or any(map(ABOUT_GPUS.search, names))


def _with_rejected_pods(seen: AutoscalerState, **more: Any) -> AutoscalerState:
    """Without pods that have ended, except for those that a kubelet rejected, which have a separate field."""
    return replace(
        seen,
        pods=[pod for pod in seen.pods if not has_ended(pod)],
        rejected_pods=[pod for pod in seen.pods if was_rejected(pod)],
        **more,
    )
