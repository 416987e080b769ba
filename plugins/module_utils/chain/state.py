# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the doctor has read of a cluster, and views on it. No judgement here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from typing import Any

from ..autoscaling.capacity import NVIDIA, gpus_of, gpus_per_pod, is_gpu
from ..autoscaling.manifests import recordings_of
from ..autoscaling.promql import DCGM_EXPORTER
from ..autoscaling.quantity import parse_quantity
from ..autoscaling.spec import Autoscaler
from ..diagnosis.check import ALL
from ..marks import DEFAULT_INVENTORY, is_managed
from .demand import DemandState
from .gpu_labels import has_gpu_label
from .objects import (
    Key,
    Manifest,
    arguments,
    condition,
    containers_of,
    environment,
    flag,
    is_ready,
    is_unseen,
    labels_of,
    last_seen,
    name_of,
    owners,
    pod_spec,
    scaled_pod_spec,
    seconds,
    unix,
    youngest,
)
from .rollouts import is_rollout, revisions
from .selectors import labels_match
from .signs import EXPORTER, gives_gpus_by_dra, plugin_container

# A value agrees with Prometheus if it lies no further from its samples than this share of the target value.
TOLERANCE = 0.05

# What keeps NVIDIA's GPU operator from giving a node's GPUs to pods: nobody gets them, or virtual machines do.
_LEFT_ALONE = re.compile(
    r"nvidia\.com/gpu\.deploy\.operands=false|nvidia\.com/gpu\.workload\.config=vm-(passthrough|vgpu)"
)
# An HPA or a ScaledObject that nobody made with this collection is looked at if it is about GPUs.
ABOUT_GPUS = re.compile(r"gpu|dcgm|nvidia|(^|_)mig(_|$)|^llm_|vllm", re.IGNORECASE)
# Of the control plane, by the names of their leases.
CONTROLLERS = CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
# A controller renews its lease every few seconds.
SILENT_S = 60
_STOCK_COLLECT_S = 30.0
_STOCK_PORT = 9400
# The DRA driver of NVIDIA's GPUs.
GPU_DRIVER = "gpu.nvidia.com"


@dataclass(frozen=True)
class MetricState:
    """One metric of one autoscaler, as the chain shows it.

    group:            the API that the HPA asks.
    type:             of the HPA's entry: Pods, Object or External.
    series:           the recorded series behind it; empty if somebody else serves the metric.
    sources:          the exporters' series that the rule reads. reporter: who serves these.
    expected_objects: who has to have a value: each ready pod, or the target itself.
    listed:           whether the API offers the metric; None if the API does not answer.
    refusal:          the API's answer in place of values.
    values:           of the API, by object. recorded: the latest samples in Prometheus, by object.
    sampled_s:        when the newest of these samples was taken, by object. now_s: Prometheus' clock. Unix seconds.
    agreed:           objects whose value agreed with Prometheus in an earlier look.
    """

    name: str
    group: str
    type: str
    series: str = ""
    sources: tuple[str, ...] = ()
    reporter: str = ""
    unit: str = ""
    target_value: float | None = None
    expected_objects: frozenset[str] = frozenset()
    listed: bool | None = True
    refusal: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    recorded: Mapping[str, Sequence[float]] = field(default_factory=dict)
    sampled_s: Mapping[str, float] = field(default_factory=dict)
    now_s: float = 0.0
    agreed: frozenset[str] = frozenset()

    @property
    def is_of_gpus(self) -> bool:
        return self.reporter == DCGM_EXPORTER.name

    @property
    def needs_profiling(self) -> bool:
        return bool(self.sources) and all("_PROF_" in source for source in self.sources)

    @property
    def is_blank_on_mig(self) -> bool:
        """The driver reports no utilisation of MIG instances."""
        return set(self.sources) == {"DCGM_FI_DEV_GPU_UTIL"}

    @property
    def missing_in_api(self) -> list[str]:
        return sorted(self.expected_objects - set(self.values))

    @property
    def missing_in_prometheus(self) -> list[str]:
        return sorted(self.expected_objects - set(self.recorded)) if self.series else []

    @property
    def disagreeing(self) -> list[str]:
        """Objects whose value in the API is none of those that Prometheus has recorded lately; NaN says nothing."""
        if not self.series:
            return []
        known = self.expected_objects & set(self.values) & set(self.recorded) - self.agreed
        return sorted(name for name in known if not self.agrees(name) and not isnan(self.recorded[name][-1]))

    @property
    def is_proven(self) -> bool:
        is_complete = bool(self.expected_objects) and not self.missing_in_api
        return is_complete and not self.missing_in_prometheus and not self.disagreeing

    @property
    def oldest_sample_s(self) -> float | None:
        """Age of the oldest of the objects' newest samples, in seconds."""
        newest = [self.sampled_s[name] for name in self.expected_objects & set(self.sampled_s)]
        return round(self.now_s - min(newest), 1) if newest else None

    def agrees(self, name: str) -> bool:
        """Whether Prometheus, or another replica of it, may have recorded the object's value lately.

        Replicas scrape at other moments and the Service answers with either. So a value may lie as far beside the
        samples as these lie apart, or TOLERANCE of the target value.
        """
        samples = self.recorded.get(name)
        if not samples:
            return False
        low, high = min(samples), max(samples)
        slack = max(high - low, TOLERANCE * (self.target_value or 0))
        return low - slack <= self.values[name] <= high + slack

    def describe(self) -> dict[str, Any]:
        """As modules return it."""
        seen = sorted(self.expected_objects & set(self.recorded))
        return {
            "metric": self.name,
            "type": self.type,
            "target_value": self.target_value,
            "listed": bool(self.listed),
            "values": {name: self.values[name] for name in sorted(self.expected_objects & set(self.values))},
            "prometheus": {name: round(self.recorded[name][-1], 3) for name in seen},
            "age_s": self.oldest_sample_s,
        }


@dataclass(frozen=True)
class AutoscalerState:
    """An HPA with what it scales.

    target:   the object; None if there is none.
    pods:     that the target's selector finds, without those that are being deleted.
    metrics:  empty if they could not be looked at.
    budget:   the periods of the chain: sync_s, evaluate_s ... and in `sources` how each is known.
    replicas: that the target is to have; None if that is not known.
    title:    names it in findings, where an HPA only might ask.
    rejected_pods: that a kubelet has refused to start; they have failed.
    demand:   what is recorded of it; None if the HPA follows none, or Prometheus does not say.
    """

    hpa: Manifest
    target: Manifest | None = None
    pods: Sequence[Manifest] = ()
    metrics: Sequence[MetricState] = ()
    budget: Mapping[str, Any] | None = None
    history: Mapping[str, Any] | None = None
    replicas: int | None = None
    title: str = ""
    rejected_pods: Sequence[Manifest] = ()
    demand: DemandState | None = None

    @property
    def name(self) -> str:
        return self.title or f"autoscaler {self}"

    @property
    def key(self) -> Key:
        return self.hpa["metadata"]["namespace"], self.hpa["metadata"]["name"]

    def __str__(self) -> str:
        return "/".join(self.key)

    @property
    def is_managed(self) -> bool:
        return is_managed(self.hpa)

    @property
    def reference(self) -> Manifest:
        return self.hpa["spec"]["scaleTargetRef"]

    @property
    def workload(self) -> str:
        return f"{self.reference.get('kind', 'Deployment')} {self.key[0]}/{self.reference['name']}"

    @cached_property
    def template(self) -> Manifest:
        """The pod template's spec."""
        return pod_spec(self.target or {})

    @property
    def gpus(self) -> dict[str, int]:
        """Limits of NVIDIA's resources of one pod."""
        return gpus_per_pod(self.template)

    @property
    def mig_instances(self) -> list[str]:
        """The resources of one pod that are MIG instances."""
        return [resource for resource in self.gpus if resource.startswith(f"{NVIDIA}mig-")]

    @property
    def has_readiness_probe(self) -> bool:
        return any(
            "readinessProbe" in container for container in scaled_pod_spec(self.target or {}).get("containers") or ()
        )

    @property
    def pods_per_replica(self) -> int:
        """A replica of a LeaderWorkerSet is a group of pods."""
        return (((self.target or {}).get("spec") or {}).get("leaderWorkerTemplate") or {}).get("size") or 1

    def devices_claimed(self, claim_templates: Iterable[Manifest]) -> dict[str, int]:
        """GPUs that one pod claims through its ResourceClaimTemplates, by driver; empty if that cannot be told."""
        names = {claim.get("resourceClaimTemplateName") for claim in self.template.get("resourceClaims") or ()}
        requests = [
            request.get("exactly") or request
            for claim_template in claim_templates
            if claim_template["metadata"]["namespace"] == self.key[0] and claim_template["metadata"]["name"] in names
            for request in (claim_template["spec"]["spec"].get("devices") or {}).get("requests") or ()
        ]
        counts = [request.get("count", 1) for request in requests if request.get("deviceClassName") == GPU_DRIVER]
        return {GPU_DRIVER: sum(counts)} if counts else {}

    @property
    def claims_devices(self) -> bool:
        """The pods get their GPUs by dynamic resource allocation, without a limit."""
        return bool(self.template.get("resourceClaims"))

    @cached_property
    def ready_pods(self) -> list[Manifest]:
        return [pod for pod in self.pods if is_ready(pod)]

    @property
    def pod_keys(self) -> set[Key]:
        return {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self.pods}

    @property
    def nodes(self) -> set[str]:
        return {pod["spec"]["nodeName"] for pod in self.pods if pod["spec"].get("nodeName")}

    @property
    def is_meant_to_be_at_zero(self) -> bool:
        """The replicas are 0 by decision of the HPA, as minReplicas 0 allows, or of KEDA. Source: KEP-2021."""
        is_at_zero = condition(self.hpa, "ScaledToZero").get("status") == "True"
        may_be_at_zero = self.hpa["spec"].get("minReplicas") == 0 and self.is_scaling
        is_of_keda = any(kind == "ScaledObject" for kind, _name in owners(self.hpa))
        return self.replicas == 0 and (is_at_zero or may_be_at_zero or is_of_keda)

    @property
    def lag_s(self) -> float:
        """The periods until a new pod can be seen, twice: one may be missed."""
        budget = self.budget or {}
        return 2 * sum(budget.get(f"{period}_s", 0) for period in ("collect", "scrape", "evaluate"))

    @property
    def is_scaling(self) -> bool:
        return condition(self.hpa, "ScalingActive").get("status") == "True"

    @property
    def metrics_without_value(self) -> list[str]:
        """Metrics for which the HPA's status has no current value.

        The condition ScalingActive stays True as long as one of several metrics works. Before the controller has looked
        at any metric the status has none of them.
        """
        entries = (self.hpa.get("status") or {}).get("currentMetrics")
        if entries is None:
            return []
        current = {_metric_id(entry) for entry in entries}
        wanted = [_metric_id(entry) for entry in self.hpa["spec"].get("metrics") or ()]
        return [" ".join(filter(None, metric)) for metric in wanted if metric not in current]

    @property
    def is_hopeless(self) -> bool:
        """No pod of the target is ready, and none is about to be."""
        return not self.ready_pods and not (self.replicas and (self.pods or is_unseen(self.target or {})))

    @property
    def revisions(self) -> dict[str, list[str]]:
        """Pods of a Rollout's stable revision and of its new one; empty where there are not two."""
        return revisions(self.target or {}, self.pods) if is_rollout(self.reference) else {}

    @property
    def is_proven(self) -> bool:
        """Each ready pod has a value that agrees with Prometheus, and the HPA acts on all its metrics."""
        metrics_work = all(metric.is_proven for metric in self.metrics) and not self.metrics_without_value
        return bool(self.ready_pods) and metrics_work and self.is_scaling

    def describe(self) -> dict[str, Any]:
        """As modules return it."""
        status = self.hpa.get("status") or {}
        metrics = [metric.describe() for metric in self.metrics]
        return {
            "verified": self.is_proven,
            "replicas": self.replicas or 0,
            "desired_replicas": status.get("desiredReplicas"),
            "ready_pods": sorted(pod["metadata"]["name"] for pod in self.ready_pods),
            "values": metrics[0]["values"] if metrics else {},
            "metrics": metrics,
            **({"revisions": self.revisions} if self.revisions else {}),
            **({"demand": self.demand.describe()} if self.demand else {}),
            "conditions": [
                {key: entry.get(key) for key in ("type", "status", "reason", "message")}
                for entry in status.get("conditions") or ()
            ],
        }


def _metric_id(entry: Manifest) -> tuple[str, str, str]:
    kind = entry.get("type") or ""
    content = entry.get(kind[:1].lower() + kind[1:]) or {}
    return kind, content.get("name") or (content.get("metric") or {}).get("name") or "", content.get("container") or ""


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
class ReplicaState:
    """One of several pods behind the Service of Prometheus.

    series: names of sources and recorded series that it has had in the last minutes. up: targets that answered it then.
    """

    series: frozenset[str] = frozenset()
    up: Sequence[Row] = ()


@dataclass(frozen=True)
class PrometheusState:
    """What one Prometheus says.

    error:   why it does not answer; empty if it does.
    rows:    how many series of the metrics' sources there are, by labels and instance. rows_lately: by the labels that
             name pods alone, with those that were there in the last minutes.
    serving: the targets that have any reading of GPUs, by instance; None if that was not asked.
    up:      of all targets. up_lately: those that answered at least once in the last minutes.
    rules:   its recording rules by series, None if it does not say.
    slow:    targets that take nearly all the time between two scrapes to answer, and the share of it.
    blanks:  rows of GPU fields outside of what can be true.
    frozen:  GPUs that are busy while profiling says that nothing runs, for minutes.
    doubled: GPUs that two targets report.
    scrape_errors: why a scrape of a target that is down fails, by job and instance.
    joined:  labels of pods that rules over GPUs join and that kube-state-metrics has, pod and exported_pod among them;
             None if no rule does.
    runtime: what it says of itself: whether its last reload worked, and how often its write-ahead log was corrupt.
    unstored: targets that it scrapes without storing any sample.
    pods:    behind its Service. replicas: what each says for itself, by pod, if there are several.
    """

    name: str
    error: str = ""
    rows: Sequence[Row] = ()
    rows_lately: Sequence[Row] = ()
    serving: Sequence[Row] | None = None
    up: Sequence[Row] = ()
    up_lately: Sequence[Row] = ()
    rules: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    slow: Sequence[Row] = ()
    blanks: Sequence[Row] = ()
    frozen: Sequence[Row] = ()
    doubled: Sequence[Row] = ()
    scrape_errors: Mapping[Key, str] = field(default_factory=dict)
    joined: frozenset[str] | None = None
    runtime: Mapping[str, Any] = field(default_factory=dict)
    unstored: int = 0
    pods: Sequence[Manifest] = ()
    replicas: Mapping[str, ReplicaState] = field(default_factory=dict)


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
    listed:  the metrics that it offers, None if it does not answer. silence: its answer then.
    adapter: the Deployment behind it, if that is one. pods: of its service.
    config:  of prometheus-adapter; None if it is not known.
    """

    group: str
    service: Manifest | None = None
    owner: str = ""
    is_prometheus_adapter: bool = False
    unavailable: str = ""
    listed: frozenset[str] | None = None
    silence: str = ""
    adapter: Manifest | None = None
    pods: Sequence[Manifest] = ()
    config: AdapterConfig | None = None

    def option(self, name: str) -> str:
        """What the adapter's command line gives for an option."""
        return next(filter(None, (flag(container, name) for container in containers_of(self.adapter or {}))), "")

    @property
    def relist_s(self) -> float:
        return seconds(self.option("--metrics-relist-interval")) or 600.0 if self.adapter else 60.0


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
class Plan:
    """What is asked for, and what has to be known of the cluster before it is done.

    hpas:         that there are, by namespace and name. managers: who else manages those that are asked for.
    rules:        our PrometheusRules by name; None if that kind is not served.
    unserved:     autoscalers whose target's kind is not served; unscalable: whose target has no scale subresource.
    query_errors: the fault of a user's own query, by metric. empty_queries: metrics whose query gives nothing now.
    rule:         where a rule of ours would be, and its labels; None if that is not known.
    unread:       why HPAs of other namespaces are not known; empty if they are.
    no_resources: why there is no CPU and memory of pods; empty where there is, or nobody asks for it.
    no_namespace: the namespace that rules are made in, if it is not there.
    inventory:    the id of the inventory that it is asked for.
    foreign_rules: rules that would have to change, and that another inventory made; by name.
    """

    autoscalers: Sequence[Autoscaler] = ()
    hpas: Mapping[Key, Manifest] = field(default_factory=dict)
    managers: Mapping[Key, Sequence[str]] = field(default_factory=dict)
    rules: Mapping[str, Manifest] | None = field(default_factory=dict)
    unserved: AbstractSet[Key] = frozenset()
    unscalable: AbstractSet[Key] = frozenset()
    query_errors: Mapping[str, str] = field(default_factory=dict)
    empty_queries: Sequence[str] = ()
    is_keda_known: bool = True
    no_resources: str = ""
    rule: Manifest | None = None
    unread: str = ""
    no_namespace: str = ""
    inventory: str = DEFAULT_INVENTORY
    foreign_rules: Mapping[str, Manifest] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """A cluster at one time.

    now_s:           Unix seconds, by Prometheus' clock if it answers.
    plan:            what is asked for, if the state is the one that a change would lead to; empty otherwise.
    facts:           results of gpu_facts by node.
    webhooks:        ValidatingWebhookConfigurations.
    controller_events: that the Prometheus operator rejects an object, and that the HPA controller has scaled.
    leases:          of the control plane's controllers, by name.
    events:          warnings about objects that wait or fail: exporters, targets whose pods do not come, such pods.
    resource_slices: GPUs that pods can claim. claim_templates: ResourceClaimTemplates of the autoscalers' namespaces.
    quotas:          ResourceQuotas of the autoscalers' namespaces.
    unavailable:     why an input could not be read, by the name of the field. Such a field is empty.
    denied:          the rights that are missing for it, by the name of the field.
    user:            that the API server takes us for; empty if it does not say.
    place:           context of the kubeconfig and address of the API server.
    """

    now_s: float
    plan: Plan = Plan()
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
    quotas: Sequence[Manifest] = ()
    prometheus: PrometheusState = PrometheusState("")
    apis: Sequence[ApiState] = ()
    autoscalers: Sequence[AutoscalerState] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)
    denied: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    place: Place = Place()

    @property
    def is_before(self) -> bool:
        """HPAs are as they would be after a change, and nothing has been seen of their effects."""
        return bool(self.plan.autoscalers)

    def seconds_since(self, timestamp: str | None) -> float | None:
        """Seconds since a time as objects have it; None without one."""
        then = unix(timestamp)
        return None if then is None else self.now_s - then

    def age_s(self, manifest: Manifest) -> float | None:
        return self.seconds_since(manifest["metadata"].get("creationTimestamp"))

    def last_change_age_s(self, manifest: Manifest) -> float | None:
        """Since the last change that is not one of its status, by managedFields; without those its age."""
        return self._since_a_write(manifest, lambda entry: entry.get("subresource") != "status")

    def last_write_age_s(self, manifest: Manifest) -> float | None:
        """Since the last write, its status included."""
        return self._since_a_write(manifest, lambda entry: True)

    def _since_a_write(self, manifest: Manifest, counts: Callable[[Manifest], bool]) -> float | None:
        entries = manifest["metadata"].get("managedFields") or ()
        written = [self.seconds_since(entry.get("time")) for entry in entries if counts(entry)]
        return youngest([*written, self.age_s(manifest)])

    def condition_age_s(self, manifest: Manifest, kind: str) -> float | None:
        """Seconds since the condition last changed; the object's age if it has no such condition.

        For a pod that is being deleted: seconds since the deletion was asked for.
        """
        metadata = manifest["metadata"]
        ending = self.seconds_since(metadata.get("deletionTimestamp"))
        if ending is not None:
            return ending + (metadata.get("deletionGracePeriodSeconds") or 0)
        age = self.seconds_since(condition(manifest, kind).get("lastTransitionTime"))
        return self.age_s(manifest) if age is None else age

    @cached_property
    def _events(self) -> dict[str, dict[str, list[Manifest]]]:
        """By namespace and name of the object, oldest first."""
        events: dict[str, dict[str, list[Manifest]]] = {}
        for event in sorted(self.events, key=last_seen):
            about = event.get("involvedObject") or {}
            of_namespace = events.setdefault(about.get("namespace", ""), {})
            of_namespace.setdefault(about.get("name", ""), []).append(event)
        return events

    def events_about(self, manifest: Manifest) -> list[Manifest]:
        """Warnings about an object, oldest first."""
        metadata = manifest["metadata"]
        return self._events.get(metadata["namespace"], {}).get(metadata["name"], [])

    def events_about_replica_sets(self, deployment: Manifest) -> list[Manifest]:
        """Warnings about the ReplicaSets of a Deployment, which have its name and a hash."""
        metadata = deployment["metadata"]
        replica_set = re.compile(rf"{re.escape(metadata['name'])}-[a-z0-9]{{6,10}}")
        by_name = self._events.get(metadata["namespace"], {})
        events = [event for name, events in by_name.items() if replica_set.fullmatch(name) for event in events]
        return [event for event in events if event["involvedObject"].get("kind") == "ReplicaSet"]

    @cached_property
    def prometheus_age_s(self) -> float | None:
        """Since the youngest pod of Prometheus became ready, or began."""
        return youngest(self.condition_age_s(pod, "Ready") for pod in self.prometheus.pods)

    def longest_ready_s(self, pods: Iterable[Manifest]) -> float | None:
        """Age of the readiness of the pod that has been ready longest."""
        ages = [self.condition_age_s(pod, "Ready") for pod in pods]
        return max((age for age in ages if age is not None), default=None)

    def missing_for_s(
        self, autoscaler: AutoscalerState, names: Sequence[str], *, of_gpus: bool = False
    ) -> float | None:
        """Since when the objects of these names should have a value: since the first such pod was ready.

        of_gpus: exporters serve the value. Since a restart, that of the pods' nodes has none for its first seconds.
        """
        pods = [pod for pod in autoscaler.ready_pods if pod["metadata"]["name"] in names] or autoscaler.ready_pods
        nodes = {pod["spec"].get("nodeName") for pod in pods} if of_gpus else ()
        exporters = [pod for pod in self.exporter_pods if pod["spec"].get("nodeName") in nodes]
        return youngest([self.longest_ready_s(pods), *(self.condition_age_s(pod, "Ready") for pod in exporters)])

    def readable_s(self, pods: Iterable[Manifest]) -> float | None:
        """Since when Prometheus could read the pod that has been ready longest."""
        return youngest([self.prometheus_age_s, self.longest_ready_s(pods)])

    @cached_property
    def gpu_nodes(self) -> dict[str, Manifest]:
        return {
            node["metadata"]["name"]: node
            for node in self.nodes
            if self._has_gpus(node) and (not _has_label(node, _LEFT_ALONE) or _has_gpus_of_pods(node))
        }

    def _has_gpus(self, node: Manifest) -> bool:
        name = node["metadata"]["name"]
        capacity = (node.get("status") or {}).get("capacity") or {}
        return (
            any(is_gpu(resource) and str(amount) != "0" for resource, amount in capacity.items())
            or offers_gpus(node)
            or has_gpu_label(labels_of(node))
            or bool(self.facts.get(name, {}).get("gpus"))
            or name in self.claimable_devices
        )

    def are_cut_off(self, pods: Sequence[Manifest]) -> bool:
        """Whether all of these pods are on nodes that do not report."""
        silent = {node["metadata"]["name"] for node in self.nodes if not is_up(node)}
        return bool(pods) and all(pod["spec"].get("nodeName") in silent for pod in pods)

    @cached_property
    def claimable_devices(self) -> dict[str, int]:
        """GPUs that pods can claim by dynamic resource allocation, by node: devices of ResourceSlices."""
        devices: Counter[str] = Counter()
        for resource_slice in self.resource_slices:
            spec = resource_slice["spec"]
            if spec.get("driver") == GPU_DRIVER and spec.get("nodeName"):
                devices[spec["nodeName"]] += len(spec.get("devices") or ())
        return dict(devices)

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

    @cached_property
    def exporters(self) -> list[Manifest]:
        """DaemonSets of dcgm-exporter, whoever installed them."""
        return [daemon_set for daemon_set in self.daemon_sets if EXPORTER.container(daemon_set)]

    @cached_property
    def plugins(self) -> list[Manifest]:
        """DaemonSets of NVIDIA's device plugin, of the operator or of a cloud; GPU feature discovery is none."""
        return [daemon_set for daemon_set in self.daemon_sets if plugin_container(daemon_set)]

    @cached_property
    def _pods_by_daemon_set(self) -> dict[str, list[Manifest]]:
        by_namespace: dict[str, list[Manifest]] = {}
        for pod in self.component_pods:
            by_namespace.setdefault(pod["metadata"]["namespace"], []).append(pod)
        return {
            name_of(daemon_set): [
                pod
                for pod in by_namespace.get(daemon_set["metadata"]["namespace"], ())
                if labels_match(daemon_set["spec"]["selector"], labels_of(pod))
            ]
            for daemon_set in (*self.exporters, *self.plugins)
        }

    def pods_of(self, daemon_sets: Iterable[Manifest]) -> list[Manifest]:
        return [pod for daemon_set in daemon_sets for pod in self._pods_by_daemon_set[name_of(daemon_set)]]

    def by_node(self, daemon_sets: Iterable[Manifest]) -> dict[str, list[Manifest]]:
        found: dict[str, list[Manifest]] = {}
        for pod in self.pods_of(daemon_sets):
            found.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        return found

    @cached_property
    def exporter_pods(self) -> list[Manifest]:
        return self.pods_of(self.exporters)

    @property
    def daemon_sets_without_pods(self) -> list[Manifest]:
        """Exporters and device plugins whose controller has yet to make a pod."""
        return [
            daemon_set
            for daemon_set in (*self.exporters, *self.plugins)
            if (status := daemon_set.get("status") or {}).get("currentNumberScheduled", 0)
            < status.get("desiredNumberScheduled", 0)
        ]

    def silent_s(self, controller: str) -> float | None:
        """For how long a controller of the control plane has not renewed its lease; None if it has none."""
        lease = self.leases.get(controller) or {}
        return self.seconds_since((lease.get("spec") or {}).get("renewTime"))

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
        """`up` of the exporter's pods."""
        return self.targets_among(self.prometheus.up)

    def targets_among(self, rows: Sequence[Row]) -> dict[str, Row]:
        """Rows of the exporter's pods, found by the labels of the target or by its address."""
        by_name: dict[str, list[Row]] = {}
        by_host: dict[str, list[Row]] = {}
        for target in rows:
            labels = target.labels
            by_name.setdefault(f"{labels.get('namespace')}/{labels.get('pod')}", []).append(target)
            by_host.setdefault(labels.get("instance", "").rpartition(":")[0].strip("[]"), []).append(target)
        return {
            name_of(pod): row
            for pod in self.exporter_pods
            if (row := _at_its_port(pod, by_name.get(name_of(pod)) or _at_its_address(pod, by_host)))
        }

    @cached_property
    def own_targets(self) -> dict[Key, Row]:
        """`up` of the pods that autoscalers scale, by namespace and name: what their own metrics are read from."""
        pods = {key for autoscaler in self.autoscalers for key in autoscaler.pod_keys}
        named = {(row.labels.get("namespace", ""), row.labels.get("pod", "")): row for row in self.prometheus.up}
        return {key: row for key, row in named.items() if key in pods}

    @cached_property
    def answered_lately(self) -> set[Key]:
        """Targets by job and instance: one scrape that fails is no outage."""
        return {row.target for row in self.prometheus.up_lately}

    @cached_property
    def pods_named_by(self) -> dict[str, set[Key]]:
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

    def names_a_pod_of(self, autoscaler: AutoscalerState) -> bool:
        """Whether any series names a pod of the autoscaler."""
        return any(autoscaler.pod_keys & named for named in self.pods_named_by.values())

    @cached_property
    def api(self) -> dict[str, ApiState]:
        return {api.group: api for api in self.apis}

    def users_of(self, group: str) -> list[AutoscalerState]:
        """Autoscalers with a metric of an API."""
        return [
            autoscaler for autoscaler in self.autoscalers if any(metric.group == group for metric in autoscaler.metrics)
        ]

    def users_of_pods(self, pod: Key | None) -> list[AutoscalerState]:
        """Autoscalers whose target has the pod."""
        return [autoscaler for autoscaler in self.autoscalers if pod in autoscaler.pod_keys]

    def recorders(self, series: str) -> list[Manifest]:
        """PrometheusRules that record a series."""
        return [
            rule_object
            for rule_object in self.rule_objects
            if any(recording["record"] == series for recording in recordings_of(rule_object))
        ]

    def rule_age_s(self, series: str) -> float | None:
        """Since when the rules of a series are as they are, and Prometheus runs."""
        changes = [self.last_change_age_s(rule_object) for rule_object in self.recorders(series)]
        return youngest([*changes, self.prometheus_age_s])

    def rule_interval_s(self, series: str) -> float | None:
        """The slowest of the rules that record a series."""
        intervals = [seconds(rule.get("interval")) for rule in (self.prometheus.rules or {}).get(series, ())]
        return max((interval for interval in intervals if interval), default=None)

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


def _at_its_address(pod: Manifest, by_host: Mapping[str, Sequence[Row]]) -> Sequence[Row]:
    """Rows of an exporter's pod. One on its node's network has its address in common with the kubelet and others."""
    rows = by_host.get((pod.get("status") or {}).get("podIP") or "-", ())
    return [row for row in rows if _is_at_its_port(pod, row)] if pod["spec"].get("hostNetwork") else rows


def _at_its_port(pod: Manifest, rows: Sequence[Row]) -> Row | None:
    """The exporter's own row among those of its pod, where a mesh's proxy may be another target; of two jobs one up."""
    return max(rows, key=lambda row: (_is_at_its_port(pod, row), row.value), default=None)


def _is_at_its_port(pod: Manifest, row: Row) -> bool:
    ports = [port["containerPort"] for port in (EXPORTER.container(pod) or {}).get("ports") or ()] or [_STOCK_PORT]
    return row.labels.get("instance", "").rpartition(":")[2] in map(str, ports)


def is_up(node: Manifest) -> bool:
    """Whether a node's kubelet reports; a node without that condition is taken for one that does."""
    return condition(node, "Ready").get("status", "True") == "True"


def offers_gpus(node: Manifest) -> bool:
    return any(gpus_of([node]).values())


def _has_gpus_of_pods(node: Manifest) -> bool:
    """Healthy or not. GPUs of virtual machines have other names, by their model."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    return any(
        resource.startswith((f"{NVIDIA}gpu", f"{NVIDIA}mig-")) and str(amount) != "0"
        for resource, amount in capacity.items()
    )


def _has_label(node: Manifest, pattern: re.Pattern[str]) -> bool:
    return any(pattern.fullmatch(f"{key}={value}") for key, value in labels_of(node).items())


def lost_gpus(node: Manifest) -> str:
    """Which of a node's GPUs the device plugin has taken out of use; empty if none."""
    capacity = (node.get("status") or {}).get("capacity") or {}
    allocatable = gpus_of([node])
    return ", ".join(
        f"{allocatable.get(resource, 0)} of {int(parse_quantity(str(amount)))} {resource} are allocatable"
        for resource, amount in capacity.items()
        if is_gpu(resource) and allocatable.get(resource, 0) < parse_quantity(str(amount))
    )


def given_collect_interval_s(container: Manifest) -> float | None:
    """Seconds between two readings of the GPUs, by dcgm-exporter's arguments or environment in milliseconds."""
    given = flag(container, "-c", "--collect-interval"), environment(container).get("DCGM_EXPORTER_INTERVAL", "")
    # A shell has a -c as well, with a script behind it.
    return next((float(value) / 1000 for value in given if value.isdecimal()), None)


def collect_interval_s(container: Manifest) -> float:
    return given_collect_interval_s(container) or _STOCK_COLLECT_S


def repeats_values(collect_s: float, scrape_s: float) -> bool:
    """Whether Prometheus sees the same reading again and again; stock pairs (30 s and 15 s) repeat one only once."""
    return collect_s > 2 * scrape_s + 1  # samples are some milliseconds off


def names_pods(container: Manifest) -> bool:
    """Whether dcgm-exporter is told to name pods."""
    told = environment(container).get("DCGM_EXPORTER_KUBERNETES", "").lower()
    return told in ("true", "1") or any(
        argument in ("-k", "--kubernetes", "--kubernetes=true") for argument in arguments(container)
    )
