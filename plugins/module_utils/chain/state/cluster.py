# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What has been read of a cluster, and views on it. No judgement here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

from ...autoscaling.claims import Devices, Needs, devices_of, needs_of, pods_on, whole_gpus
from ...autoscaling.manifests import recordings_of
from ...diagnosis.check import ALL
from ..objects import Key, Manifest, key_of, youngest
from ..signs import gives_gpus_by_dra
from .agents import Agents
from .api import ApiState
from .autoscaler import AutoscalerState
from .clock import Clock
from .nodes import gpu_nodes, is_up, offers_gpus
from .prometheus import PrometheusState, Row
from .proposal import Proposal
from .servers import NoCluster, Server
from .targets import exporter_targets, own_targets
from .warnings import Warnings


@dataclass(frozen=True)
class Scope:
    namespace: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Place:
    """Which cluster it is: context of the kubeconfig and address of the API server; empty where that is not known."""

    context: str = ""
    server: str = ""


@dataclass(frozen=True)
class State:
    """A cluster at one time.

    now_s:           Unix seconds, by Prometheus' clock if it answers.
    proposal:        what is asked for, if the state is the one that a change would lead to; empty otherwise.
    facts:           results of gpu_facts by node.
    servers:         of the inventory, as they were examined.
    no_cluster:      why only these were examined; None if a cluster was read.
    cuda_errors:     why CUDA failed when a node was proven last, by node.
    webhooks:        ValidatingWebhookConfigurations.
    controller_events: that the Prometheus operator rejects an object, and that the HPA controller has scaled.
    leases:          of the control plane's controllers, by name.
    events:          warnings about objects that wait or fail: exporters, targets whose pods do not come, such pods.
    resource_slices: GPUs that pods can claim. claim_templates: ResourceClaimTemplates of the autoscalers' namespaces.
    device_classes:  None if they were not read.
    quotas:          ResourceQuotas of the autoscalers' namespaces.
    unavailable:     why an input could not be read, by the name of the field. Such a field is empty.
    denied:          the rights that are missing for it, by the name of the field.
    user:            that the API server takes us for; empty if it does not say.
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
    servers: Sequence[Server] = ()
    no_cluster: NoCluster | None = None
    cuda_errors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)
    denied: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    place: Place = Place()

    @property
    def is_before(self) -> bool:
        """HPAs are as they would be after a change, and nothing has been seen of their effects."""
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
        """GPU nodes that are ready and have no GPU to give. Where GPUs are claimed, no node has to have one."""
        if any(map(gives_gpus_by_dra, self.daemon_sets)):
            return {}
        return {
            name: node
            for name, node in self.gpu_nodes.items()
            if not offers_gpus(node) and name not in self.claimable_devices and is_up(node)
        }

    def are_cut_off(self, pods: Sequence[Manifest]) -> bool:
        """Whether all of these pods are on nodes that do not report."""
        silent = {node["metadata"]["name"] for node in self.nodes if not is_up(node)}
        return bool(pods) and all(pod["spec"].get("nodeName") in silent for pod in pods)

    @cached_property
    def prometheus_age_s(self) -> float | None:
        """Since the youngest pod of Prometheus became ready, or began."""
        return youngest(self.clock.condition_age_s(pod, "Ready") for pod in self.prometheus.pods)

    def missing_for_s(
        self, autoscaler: AutoscalerState, names: Sequence[str], *, of_gpus: bool = False
    ) -> float | None:
        """Since when the objects of these names should have a value: since the first such pod was ready.

        of_gpus: exporters serve the value. Since a restart, that of the pods' nodes has none for its first seconds.
        """
        pods = [pod for pod in autoscaler.ready_pods if pod["metadata"]["name"] in names] or autoscaler.ready_pods
        nodes = {pod["spec"].get("nodeName") for pod in pods} if of_gpus else ()
        exporters = [pod for pod in self.agents.exporter_pods if pod["spec"].get("nodeName") in nodes]
        restarts = (self.clock.condition_age_s(pod, "Ready") for pod in exporters)
        return youngest([self.clock.longest_ready_s(pods), *restarts])

    def readable_s(self, pods: Iterable[Manifest]) -> float | None:
        """Since when Prometheus could read the pod that has been ready longest."""
        return youngest([self.prometheus_age_s, self.clock.longest_ready_s(pods)])

    @cached_property
    def targets(self) -> dict[str, Row]:
        """`up` of the exporter's pods."""
        return exporter_targets(self.agents.exporter_pods, self.prometheus.up)

    @cached_property
    def own_targets(self) -> dict[Key, Row]:
        """`up` of the pods that autoscalers scale, by namespace and name: what their own metrics are read from."""
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
        """Since when the rules of a series are as they are, and Prometheus runs."""
        changes = [self.clock.last_change_age_s(rule_object) for rule_object in self.recorders(series)]
        return youngest([*changes, self.prometheus_age_s])

    @cached_property
    def known_scrape_intervals(self) -> list[float]:
        """Scrape intervals of GPU metrics, of autoscalers for which they are known and not assumed."""
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
        """What a fault of these nodes affects: autoscalers with pods there, and all if no other node has GPUs."""
        names = set(names)
        affected = {f"node {name}" for name in names}.union(*(self._users_of_nodes.get(name, set()) for name in names))
        return frozenset(affected | ({ALL} if names >= self.gpu_nodes.keys() else set()))

    def affected_by(self, autoscalers: Iterable[AutoscalerState]) -> frozenset[str]:
        """What a fault of these autoscalers affects: all if there are no others."""
        affected = {f"autoscaler {autoscaler}" for autoscaler in autoscalers}
        return frozenset(affected | ({ALL} if len(affected) == len(self.autoscalers) else set()))
