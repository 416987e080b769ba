# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The state of a cluster as it was read. No checks here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

from ...autoscaling.manifests import recordings_of
from ...diagnosis.check import ALL
from ...kube.known_components import gives_gpus_by_dra
from ...kube.objects import Key, Manifest, key_of, youngest
from ...kube.resource_claims import Devices, Needs, devices_of, needs_of, pods_on, whole_gpus
from .agents import Agents
from .ages import Clock
from .api import ApiState
from .autoscaler import AutoscalerState
from .nodes import gpu_nodes, is_up, offers_gpus, open_nodes
from .prometheus import PrometheusState, Row
from .proposal import Proposal
from .servers import ExaminedServer, NoCluster
from .targets import exporter_targets, own_targets
from .warnings import Warnings


@dataclass(frozen=True)
class Scope:
    namespace: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Place:
    """Context of the kubeconfig and address of the API server; empty if unknown."""

    context: str = ""
    server: str = ""


@dataclass(frozen=True)
class State:
    """State of a cluster at one time.

    now_s:           Unix seconds, by Prometheus' clock if it answers.
    proposal:        the requested change, if this is the state that it would lead to; otherwise empty.
    facts:           results of gpu_facts by node.
    servers:         examined servers of the inventory.
    no_cluster:      why only servers were examined; None if a cluster was read.
    cuda_errors:     errors of CUDA in the last proof, by node.
    unrequested:     whether pods without a request saw GPUs in the last proof, `denied` or `visible`, by node.
    pods:            all pods, read only if some can get GPUs without a request.
    webhooks:        ValidatingWebhookConfigurations.
    controller_events: rejections by the Prometheus operator, and scalings by the HPA controller.
    leases:          leases of the control plane's controllers, by name.
    events:          warnings about waiting or failing objects: exporters, targets without pods, such pods.
    resource_slices: claimable GPUs. claim_templates: ResourceClaimTemplates of the autoscalers' namespaces.
    device_classes:  None if they were not read.
    quotas:          ResourceQuotas of the autoscalers' namespaces.
    unavailable:     why an input could not be read, by the name of the field. Such a field is empty.
    denied:          missing permissions, by the name of the field.
    user:            user by the API server; empty if unknown.
    place:           context of the kubeconfig and address of the API server.
    """

    now_s: float
    _by_name: KW_ONLY
    proposal: Proposal = field(default_factory=Proposal)
    scope: Scope = Scope()
    server_version: str | None = None
    nodes: Sequence[Manifest] = ()
    daemon_sets: Sequence[Manifest] = ()
    component_pods: Sequence[Manifest] = ()
    namespaces: Sequence[Manifest] = ()
    services: Sequence[Manifest] = ()
    service_monitors: Sequence[Manifest] = ()
    pod_monitors: Sequence[Manifest] = ()
    prometheuses: Sequence[Manifest] = ()
    rule_objects: Sequence[Manifest] = ()
    scaled_objects: Sequence[Manifest] = ()
    hpas: Sequence[Manifest] = ()
    webhooks: Sequence[Manifest] = ()
    events: Sequence[Manifest] = ()
    controller_events: Sequence[Manifest] = ()
    leases: Mapping[str, Manifest] = field(default_factory=dict)
    resource_slices: Sequence[Manifest] = ()
    claim_templates: Sequence[Manifest] = ()
    device_classes: Sequence[Manifest] | None = None
    quotas: Sequence[Manifest] = ()
    prometheus: PrometheusState = field(default_factory=lambda: PrometheusState(""))
    apis: Sequence[ApiState] = ()
    autoscalers: Sequence[AutoscalerState] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    servers: Sequence[ExaminedServer] = ()
    no_cluster: NoCluster | None = None
    cuda_errors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unrequested: Mapping[str, str] = field(default_factory=dict)
    pods: Sequence[Manifest] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    denied: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    place: Place = Place()

    @property
    def is_before(self) -> bool:
        """Whether HPAs are as after a change that was not made, so that they have no effects yet."""
        return bool(self.proposal.autoscalers)

    @cached_property
    def clock(self) -> Clock:
        return Clock(self.now_s)

    @cached_property
    def warnings(self) -> Warnings:
        return Warnings(self.events)

    @cached_property
    def agents(self) -> Agents:
        """Exporters and device plugins."""
        return Agents(self.daemon_sets, self.component_pods)

    @cached_property
    def gpu_nodes(self) -> dict[str, Manifest]:
        return gpu_nodes(self.nodes, self.facts, self.claimable_devices)

    @cached_property
    def devices(self) -> dict[str, Devices]:
        """That pods can claim, by node."""
        return devices_of(self.resource_slices)

    @cached_property
    def claimable_devices(self) -> dict[str, int]:
        """GPUs that pods can claim, by node."""
        return {name: number for name, devices in self.devices.items() if (number := whole_gpus(devices))}

    def needs(self, autoscaler: AutoscalerState) -> Needs | None:
        """What one pod claims; None if that is unknown."""
        keyed = ((key_of(claim_template), claim_template) for claim_template in self.claim_templates)
        own = {name: found for (namespace, name), found in keyed if namespace == autoscaler.key[0]}
        return needs_of(autoscaler.template, own, self.device_classes)

    def pods_by_claims(self, autoscaler: AutoscalerState) -> dict[str, int] | None:
        """Pods that the devices of each node suffice for; None if that is unknown."""
        needs = self.needs(autoscaler)
        found = {name: None if needs is None else pods_on(devices, needs) for name, devices in self.devices.items()}
        known = {name: pods for name, pods in found.items() if pods is not None}
        return known if len(known) == len(found) and needs is not None else None

    @cached_property
    def bare_nodes(self) -> dict[str, Manifest]:
        """Ready GPU nodes without an allocatable GPU. If GPUs are claimed, nodes need none."""
        if any(map(gives_gpus_by_dra, self.daemon_sets)):
            return {}
        return {
            name: node
            for name, node in self.gpu_nodes.items()
            if not offers_gpus(node) and name not in self.claimable_devices and is_up(node)
        }

    @cached_property
    def open_nodes(self) -> list[str]:
        """Nodes whose GPUs pods can get without a request."""
        return open_nodes(self.agents, self.nodes, self.unrequested)

    def are_cut_off(self, pods: Sequence[Manifest]) -> bool:
        """Whether all of these pods are on nodes that do not report."""
        silent = {node["metadata"]["name"] for node in self.nodes if not is_up(node)}
        return bool(pods) and all(pod["spec"].get("nodeName") in silent for pod in pods)

    @cached_property
    def prometheus_age_s(self) -> float | None:
        """Seconds since the youngest pod of Prometheus became ready or was created."""
        return youngest(self.clock.condition_age_s(pod, "Ready") for pod in self.prometheus.pods)

    def missing_for_s(
        self, autoscaler: AutoscalerState, names: Sequence[str], *, of_gpus: bool = False
    ) -> float | None:
        """Seconds for which these objects should have had a value: since the first such pod was ready.

        of_gpus: exporters serve the value. After a restart, an exporter has no value for the first seconds.
        """
        pods = [pod for pod in autoscaler.ready_pods if pod["metadata"]["name"] in names] or autoscaler.ready_pods
        nodes = {pod["spec"].get("nodeName") for pod in pods} if of_gpus else ()
        exporters = [pod for pod in self.agents.exporter_pods if pod["spec"].get("nodeName") in nodes]
        restarts = (self.clock.condition_age_s(pod, "Ready") for pod in exporters)
        return youngest([self.clock.longest_ready_s(pods), *restarts])

    def readable_s(self, pods: Iterable[Manifest]) -> float | None:
        """Seconds for which Prometheus could have scraped the pod that has been ready longest."""
        return youngest([self.prometheus_age_s, self.clock.longest_ready_s(pods)])

    @cached_property
    def targets(self) -> dict[str, Row]:
        """`up` of the exporter's pods."""
        return exporter_targets(self.agents.exporter_pods, self.prometheus.up)

    @cached_property
    def own_targets(self) -> dict[Key, Row]:
        """`up` of the pods of autoscalers, by namespace and name, for their own metrics."""
        pods = {key for autoscaler in self.autoscalers for key in autoscaler.pod_keys}
        return own_targets(pods, self.prometheus.up)

    def names_a_pod_of(self, autoscaler: AutoscalerState) -> bool:
        """Whether any series names a pod of the autoscaler."""
        return any(autoscaler.pod_keys & named for named in self.prometheus.pods_named_by.values())

    def recorders(self, series: str) -> list[Manifest]:
        """PrometheusRules that record a series."""
        return [
            rule_object
            for rule_object in self.rule_objects
            if any(recording["record"] == series for recording in recordings_of(rule_object))
        ]

    def rule_age_s(self, series: str) -> float | None:
        """Seconds since the rules of a series changed or Prometheus started."""
        changes = [self.clock.last_change_age_s(rule_object) for rule_object in self.recorders(series)]
        return youngest([*changes, self.prometheus_age_s])

    @cached_property
    def known_scrape_intervals(self) -> list[float]:
        """Scrape intervals of GPU metrics, if they are known and not assumed."""
        return [
            autoscaler.budget["scrape_s"]
            for autoscaler in self.autoscalers
            if autoscaler.budget
            and (autoscaler.budget.get("sources") or {}).get("scrape", "assumed") != "assumed"
            and any(metric.is_of_gpus for metric in autoscaler.metrics)
        ]

    @cached_property
    def _users_of_nodes(self) -> dict[str, set[str]]:
        users: dict[str, set[str]] = {}
        for autoscaler in self.autoscalers:
            for node in autoscaler.nodes:
                users.setdefault(node, set()).add(f"autoscaler {autoscaler}")
        return users

    def affected_by_nodes(self, names: Iterable[str]) -> frozenset[str]:
        """What a failure of these nodes affects: autoscalers with pods there, and all if no other node has GPUs."""
        names = set(names)
        affected = {f"node {name}" for name in names}.union(*(self._users_of_nodes.get(name, set()) for name in names))
        return frozenset(affected | ({ALL} if names >= self.gpu_nodes.keys() else set()))

    def affected_by(self, autoscalers: Iterable[AutoscalerState]) -> frozenset[str]:
        """Objects affected by a failure of these autoscalers: all if there are no others."""
        affected = {f"autoscaler {autoscaler}" for autoscaler in autoscalers}
        return frozenset(affected | ({ALL} if len(affected) == len(self.autoscalers) else set()))
