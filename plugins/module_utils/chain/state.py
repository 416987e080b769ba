# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the doctor has read of a cluster, and views on it. No judgement here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..autoscaling.capacity import NVIDIA, gpus_of, gpus_per_pod
from ..autoscaling.promql import DCGM_EXPORTER
from ..autoscaling.quantity import parse_quantity
from .objects import (
    Manifest,
    arguments,
    condition,
    containers_of,
    environment,
    flag,
    is_ready,
    labels_of,
    name_of,
    pod_spec,
    seconds,
    unix,
    youngest,
)
from .selectors import labels_match

Key = tuple[str, str]

# A finding that concerns everything.
ALL = "*"

# What says that a node has GPUs, whoever put it there: GPU feature discovery and its operator, node feature discovery,
# GKE, EKS' autoscaler.
_GPU_LABELS = re.compile(
    r"nvidia\.com/gpu\.present=true|feature\.node\.kubernetes\.io/pci-(\w+_)?10de(_\w+)?\.present=true"
    r"|cloud\.google\.com/gke-accelerator=.+|k8s\.amazonaws\.com/accelerator=.+"
)
_STOCK_COLLECT_S = 30.0


@dataclass(frozen=True)
class MetricState:
    """One metric of one autoscaler, as the chain shows it.

    group:    the API that the HPA asks.       type: of the HPA's entry, Pods, Object or External.
    series:   recorded for it; empty if somebody else serves the metric. sources: what that reads of exporters.
    listed:   the API offers it; None if the API does not answer. refusal: what it said instead of values.
    values:   of the API, recorded: the samples in Prometheus lately, both by holder: pod, or the target itself.
    """

    name: str
    group: str
    type: str
    series: str = ""
    sources: tuple[str, ...] = ()
    reporter: str = ""
    unit: str = ""
    target_value: float | None = None
    holders: frozenset[str] = frozenset()
    listed: bool | None = True
    refusal: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    recorded: Mapping[str, Sequence[float]] = field(default_factory=dict)
    disagreeing: tuple[str, ...] = ()

    @property
    def is_of_gpus(self) -> bool:
        return self.reporter == DCGM_EXPORTER.name

    @property
    def silent(self) -> list[str]:
        return sorted(self.holders - set(self.values))

    @property
    def unrecorded(self) -> list[str]:
        return sorted(self.holders - set(self.recorded)) if self.series else []

    @property
    def needs_profiling(self) -> bool:
        return bool(self.sources) and all("_PROF_" in source for source in self.sources)


@dataclass(frozen=True)
class AutoscalerState:
    """An HPA with what it scales.

    target:   the object, None if there is none. pods: those that its selector finds, without ones that are ending.
    metrics:  None if they could not be looked at.
    budget:   the periods of the chain; sync_s, evaluate_s ..., sources say how each is known.
    """

    hpa: Manifest
    target: Manifest | None = None
    pods: Sequence[Manifest] = ()
    metrics: Sequence[MetricState] = ()
    budget: Mapping[str, Any] | None = None
    history: Mapping[str, Any] | None = None
    is_managed: bool = False
    verified: bool = False
    replicas: int | None = None

    @property
    def key(self) -> Key:
        return self.hpa["metadata"]["namespace"], self.hpa["metadata"]["name"]

    def __str__(self) -> str:
        return "/".join(self.key)

    @property
    def reference(self) -> Manifest:
        return self.hpa["spec"]["scaleTargetRef"]

    @property
    def workload(self) -> str:
        return f"{self.reference.get('kind', 'Deployment')} {self.key[0]}/{self.reference['name']}"

    @cached_property
    def template(self) -> Manifest:
        return pod_spec(self.target or {})

    @property
    def gpus(self) -> dict[str, int]:
        return gpus_per_pod(self.template)

    @property
    def ready_pods(self) -> list[Manifest]:
        return [pod for pod in self.pods if is_ready(pod)]

    @property
    def nodes(self) -> set[str]:
        return {pod["spec"]["nodeName"] for pod in self.pods if pod["spec"].get("nodeName")}


@dataclass(frozen=True)
class Row:
    """Labels of something in Prometheus, and its value."""

    labels: Mapping[str, str]
    value: float = 1.0

    @property
    def target(self) -> Key:
        """What Prometheus scrapes, by job and instance."""
        return self.labels.get("job", ""), self.labels.get("instance", "")

    @property
    def pod(self) -> Key | None:
        """The pod that a row of the exporter is about, by the first layout of labels that fits; None if it says none.

        What names the exporter itself is an idle GPU's row under honorLabels.
        """
        labels = self.labels
        pod = labels.get("exported_pod") or labels.get("pod", "")
        namespace = labels.get("exported_namespace") or labels.get("namespace", "")
        own = not labels.get("exported_pod") and re.fullmatch(r"(.+-)?dcgm-exporter(-.+)?", pod)
        return (namespace, pod) if namespace and pod and not own else None


@dataclass(frozen=True)
class PrometheusState:
    """What one Prometheus says.

    error:   why it does not answer; empty if it does.
    rows:    how many series of the metrics' sources there are, by labels and instance. rows_lately: by the labels that
             name pods alone, with those that were there in the last minutes.
    serving: the targets that have any reading of GPUs, by instance; None if that was not asked.
    up:      of all targets. up_lately: those that answered at least once in the last minutes.
    rules:   its recording rules by series, None if it does not say.
    blanks:  rows of GPU fields outside of what can be true.
    frozen:  GPUs that are busy while profiling says that nothing runs, for minutes.
    doubled: GPUs that two targets report.
    joined:  labels of pods that rules over GPUs join and that kube-state-metrics has, pod and exported_pod among them;
             None if no rule does.
    """

    name: str
    error: str = ""
    rows: Sequence[Row] = ()
    rows_lately: Sequence[Row] = ()
    serving: Sequence[Row] | None = None
    up: Sequence[Row] = ()
    up_lately: Sequence[Row] = ()
    rules: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    blanks: Sequence[Row] = ()
    frozen: Sequence[Row] = ()
    doubled: Sequence[Row] = ()
    joined: frozenset[str] | None = None
    pods: Sequence[Manifest] = ()


@dataclass(frozen=True)
class AdapterConfig:
    """The file that prometheus-adapter reads when it starts.

    config_map: that holds it. error: why it is no YAML, or not the adapter's. rules: of all kinds of metrics.
    """

    config_map: Manifest
    error: str = ""
    rules: Sequence[Any] = ()


@dataclass(frozen=True)
class ApiState:
    """One metrics API.

    service: its APIService, None if there is none. owner: who serves it. unavailable: why it does not, or empty.
    listed:  the metrics that it offers, None if it does not answer.
    adapter: the Deployment behind it, if that is one. pods: of its service.
    config:  of prometheus-adapter; None if it is not known.
    """

    group: str
    service: Manifest | None = None
    owner: str = ""
    is_prometheus_adapter: bool = False
    unavailable: str = ""
    listed: frozenset[str] | None = None
    adapter: Manifest | None = None
    pods: Sequence[Manifest] = ()
    config: AdapterConfig | None = None

    def option(self, name: str) -> str:
        """What the adapter's command line gives for an option."""
        return next(filter(None, (flag(each, name) for each in containers_of(self.adapter or {}))), "")

    @property
    def relist_s(self) -> float:
        return seconds(self.option("--metrics-relist-interval")) or 600.0 if self.adapter else 60.0


@dataclass(frozen=True)
class Scope:
    namespace: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class State:
    """A cluster at one time.

    now_s:  Unix seconds, of the cluster where it tells.
    unread: why something could not be read, by the name of the field. Such a field is empty.
    facts:  results of gpu_facts by node.
    webhooks: configurations of what may refuse objects. events: failed mounts, where a pod of the exporter waits.
    """

    now_s: float
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
    prometheus: PrometheusState = PrometheusState("")
    apis: Sequence[ApiState] = ()
    autoscalers: Sequence[AutoscalerState] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    def age(self, timestamp: str | None) -> float | None:
        """Seconds since a time as objects have it; None without one."""
        then = unix(timestamp)
        return None if then is None else self.now_s - then

    def created(self, manifest: Manifest) -> float | None:
        return self.age(manifest["metadata"].get("creationTimestamp"))

    def changed(self, manifest: Manifest) -> float | None:
        """Since its last change that is not one of its status, by managedFields; since it was made without those."""
        return self._since_a_write(manifest, lambda entry: entry.get("subresource") != "status")

    def written(self, manifest: Manifest) -> float | None:
        """Since anything of it was last written, its status too."""
        return self._since_a_write(manifest, lambda entry: True)

    def _since_a_write(self, manifest: Manifest, counts: Callable[[Manifest], bool]) -> float | None:
        fields = manifest["metadata"].get("managedFields") or ()
        return youngest([*(self.age(each.get("time")) for each in fields if counts(each)), self.created(manifest)])

    def turned(self, manifest: Manifest, kind: str) -> float | None:
        """Since when a condition is as it is; since the object was made if it has none of that kind.

        A pod that ends may still be called ready: what counts is when it was told to, its grace period before the time
        that its metadata has.
        """
        metadata = manifest["metadata"]
        ending = self.age(metadata.get("deletionTimestamp"))
        if ending is not None:
            return ending + (metadata.get("deletionGracePeriodSeconds") or 0)
        age = self.age(condition(manifest, kind).get("lastTransitionTime"))
        return self.created(manifest) if age is None else age

    @cached_property
    def prometheus_age(self) -> float | None:
        """Since one of its pods became ready, or began."""
        return youngest(self.turned(pod, "Ready") for pod in self.prometheus.pods)

    def read_s(self, pods: Iterable[Manifest]) -> float | None:
        """Since when Prometheus could read the one of these pods that has been ready longest."""
        ages = [age for pod in pods if (age := self.turned(pod, "Ready")) is not None]
        return youngest([self.prometheus_age, max(ages, default=None)])

    @cached_property
    def gpu_nodes(self) -> dict[str, Manifest]:
        return {node["metadata"]["name"]: node for node in self.nodes if self._has_gpus(node)}

    def _has_gpus(self, node: Manifest) -> bool:
        name = node["metadata"]["name"]
        capacity = (node.get("status") or {}).get("capacity") or {}
        return (
            any(resource.startswith(NVIDIA) and str(amount) != "0" for resource, amount in capacity.items())
            or offers_gpus(node)
            or any(_GPU_LABELS.fullmatch(f"{key}={value}") for key, value in labels_of(node).items())
            or bool(self.facts.get(name, {}).get("gpus"))
        )

    def are_cut_off(self, pods: Sequence[Manifest]) -> bool:
        """Whether all of these pods are on nodes that do not report."""
        silent = {
            node["metadata"]["name"] for node in self.nodes if condition(node, "Ready").get("status", "True") != "True"
        }
        return bool(pods) and all(pod["spec"].get("nodeName") in silent for pod in pods)

    @cached_property
    def bare_nodes(self) -> dict[str, Manifest]:
        """GPU nodes that are ready and have no GPU to give. Where GPUs are claimed through DRA, none has to."""
        if any("dra-driver" in text for driver in self.daemon_sets for text in _images(driver)):
            return {}
        return {
            name: node
            for name, node in self.gpu_nodes.items()
            if not offers_gpus(node) and condition(node, "Ready").get("status", "True") == "True"
        }

    @cached_property
    def exporters(self) -> list[Manifest]:
        """DaemonSets of dcgm-exporter, whoever installed them."""
        return [each for each in self.daemon_sets if exporter_container(each)]

    @cached_property
    def plugins(self) -> list[Manifest]:
        """DaemonSets of NVIDIA's device plugin, of the operator or of a cloud; GPU feature discovery is none."""
        return [each for each in self.daemon_sets if _plugin_container(each)]

    @cached_property
    def _pods_by_daemon_set(self) -> dict[str, list[Manifest]]:
        found: dict[str, list[Manifest]] = {}
        by_namespace: dict[str, list[Manifest]] = {}
        for pod in self.component_pods:
            by_namespace.setdefault(pod["metadata"]["namespace"], []).append(pod)
        for each in (*self.exporters, *self.plugins):
            its = by_namespace.get(each["metadata"]["namespace"], ())
            found[name_of(each)] = [pod for pod in its if labels_match(each["spec"]["selector"], labels_of(pod))]
        return found

    def pods_of(self, daemon_sets: Iterable[Manifest]) -> list[Manifest]:
        return [pod for each in daemon_sets for pod in self._pods_by_daemon_set[name_of(each)]]

    def by_node(self, daemon_sets: Iterable[Manifest]) -> dict[str, list[Manifest]]:
        found: dict[str, list[Manifest]] = {}
        for pod in self.pods_of(daemon_sets):
            found.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        return found

    @cached_property
    def exporter_pods(self) -> list[Manifest]:
        return self.pods_of(self.exporters)

    @property
    def waiting_exporters(self) -> list[Manifest]:
        """Their pods that have a node, and no container yet."""
        return [
            pod
            for pod in self.exporter_pods
            if pod["spec"].get("nodeName") and (pod.get("status") or {}).get("phase") == "Pending"
        ]

    @cached_property
    def gpu_rows(self) -> list[Row]:
        return [row for row in self.prometheus.rows if row.labels.get("__name__", "").startswith("DCGM_")]

    @cached_property
    def gpus_name_pods(self) -> bool:
        """Whether any series of GPUs names the pod that holds one."""
        return any(row.pod for row in self.gpu_rows)

    @cached_property
    def targets(self) -> dict[str, Row]:
        """`up` of the exporter's pods, found by the labels of the target or by its address."""
        by_name = {f"{row.labels.get('namespace')}/{row.labels.get('pod')}": row for row in self.prometheus.up}
        by_address = {row.labels.get("instance", "").rpartition(":")[0]: row for row in self.prometheus.up}
        return {
            name_of(pod): row
            for pod in self.exporter_pods
            if (row := by_name.get(name_of(pod)) or by_address.get((pod.get("status") or {}).get("podIP") or "-"))
        }

    @cached_property
    def answered_lately(self) -> set[Key]:
        """Targets by job and instance: one scrape that fails is no outage."""
        return {row.target for row in self.prometheus.up_lately}

    @cached_property
    def named_pods(self) -> dict[str, set[Key]]:
        """The pods that rows name, by series."""
        found: dict[str, set[Key]] = {}
        for row in self.prometheus.rows:
            if row.pod:
                found.setdefault(row.labels.get("__name__", ""), set()).add(row.pod)
        return found

    @cached_property
    def named_lately(self) -> set[Key]:
        """The pods that any row has named in the last minutes."""
        return {row.pod for row in self.prometheus.rows_lately if row.pod}

    @cached_property
    def api(self) -> dict[str, ApiState]:
        return {each.group: each for each in self.apis}

    @cached_property
    def _users_of_nodes(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for each in self.autoscalers:
            for node in each.nodes:
                found.setdefault(node, set()).add(f"autoscaler {each}")
        return found

    def on_nodes(self, names: Iterable[str]) -> frozenset[str]:
        """What a fault of these nodes reaches: autoscalers with pods there too, and all if no other node has GPUs."""
        names = set(names)
        reached = {f"node {name}" for name in names}.union(*(self._users_of_nodes.get(name, set()) for name in names))
        return frozenset(reached | ({ALL} if names >= self.gpu_nodes.keys() else set()))

    def of(self, autoscalers: Iterable[AutoscalerState]) -> frozenset[str]:
        """What a fault of these autoscalers reaches, so all if there are no others."""
        reached = {f"autoscaler {each}" for each in autoscalers}
        return frozenset(reached | ({ALL} if len(reached) == len(self.autoscalers) else set()))


def offers_gpus(node: Manifest) -> bool:
    return any(gpus_of([node]).values())


def lost_gpus(node: Manifest) -> str:
    """Which of a node's GPUs the device plugin has taken out of use; empty if none."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    allocatable = gpus_of([node])
    return ", ".join(
        f"{allocatable.get(resource, 0)} of {int(parse_quantity(str(amount)))} {resource} are allocatable"
        for resource, amount in capacity.items()
        if resource.startswith(NVIDIA) and allocatable.get(resource, 0) < parse_quantity(str(amount))
    )


def exporter_container(daemon_set: Manifest) -> Manifest | None:
    return next((each for each in containers_of(daemon_set) if "dcgm-exporter" in each.get("image", "")), None)


def _plugin_container(daemon_set: Manifest) -> Manifest | None:
    return next(
        (
            each
            for each in containers_of(daemon_set)
            if re.search(r"nvidia.*device-plugin|k8s-device-plugin", each.get("image", ""))
            and "device-plugin" in each["name"]
        ),
        None,
    )


def collect_interval_s(container: Manifest) -> float:
    """What dcgm-exporter is told, by argument or environment, in milliseconds; else its own default."""
    value = flag(container, "-c", "--collect-interval") or environment(container).get("DCGM_EXPORTER_INTERVAL", "")
    return float(value) / 1000 if value.isdigit() else _STOCK_COLLECT_S


def repeats_values(collect_s: float, scrape_s: float) -> bool:
    """Whether Prometheus sees the same reading again and again; stock pairs (30 s and 15 s) repeat one only once."""
    return collect_s > 2 * scrape_s + 1  # samples are some milliseconds off


def names_pods(container: Manifest) -> bool:
    """Whether dcgm-exporter is told to name pods."""
    told = environment(container).get("DCGM_EXPORTER_KUBERNETES", "").lower()
    return told in ("true", "1") or any(
        each in ("-k", "--kubernetes", "--kubernetes=true") for each in arguments(container)
    )


def _images(workload: Manifest) -> list[str]:
    return [str(container.get("image", "")) for container in containers_of(workload)]
