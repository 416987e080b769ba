# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""An HPA and its workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

from ...hops import Hop
from ...kube.capacity import NVIDIA, gpus_per_pod
from ...kube.labels import is_managed
from ...kube.objects import (
    Key,
    Manifest,
    condition,
    is_ready,
    is_unseen,
    owners,
    pod_spec,
    pods_per_replica,
    scaled_pod_spec,
)
from ...kube.rollouts import is_rollout, revisions
from .demand import DemandState
from .metric import MetricState
from .rejected_requests import Rejections


@dataclass(frozen=True)
class AutoscalerState:
    """An HPA and its workload.

    target:   its target, or None.
    pods:     pods of the target's selector, without those being deleted.
    metrics:  empty if they could not be read.
    budget:   the periods of the chain: sync_s, evaluate_s ... and in `sources` the source of each.
    replicas: desired replicas of the target; None if unknown.
    title:    its name in findings, if it may not be an HPA.
    rejected_pods: pods that a kubelet rejected, which have failed.
    demand:   recorded demand; None if the HPA uses none, or if Prometheus does not answer.
    rejections: rejected requests of a model server's pods, by pod name.
    waiting:  the fewest requests that waited in a pod at any time in five minutes, by its name; only pods whose queue
              was never empty.
    answer_times: 99th percentile of the seconds until the last byte of an answer, by name of a model server's pod.
    """

    hpa: Manifest
    target: Manifest | None = None
    _by_name: KW_ONLY
    pods: Sequence[Manifest] = ()
    metrics: Sequence[MetricState] = ()
    budget: Mapping[str, Any] | None = None
    history: Mapping[str, Any] | None = None
    replicas: int | None = None
    title: str = ""
    rejected_pods: Sequence[Manifest] = ()
    demand: DemandState | None = None
    rejections: Mapping[str, Rejections] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    answer_times: Mapping[str, float] = field(default_factory=dict)

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
        """Limits of NVIDIA's resources in one pod."""
        return gpus_per_pod(self.template)

    @property
    def mig_instances(self) -> list[str]:
        """MIG instances among the resources of one pod."""
        return [resource for resource in self.gpus if resource.startswith(f"{NVIDIA}mig-")]

    @property
    def has_readiness_probe(self) -> bool:
        return any(
            "readinessProbe" in container for container in scaled_pod_spec(self.target or {}).get("containers") or ()
        )

    @property
    def pods_per_replica(self) -> int:
        return pods_per_replica(self.target or {})

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
        """Whether the replicas are 0 by decision of the HPA, as minReplicas 0 allows, or of KEDA. Source: KEP-2021."""
        is_at_zero = condition(self.hpa, "ScaledToZero").get("status") == "True"
        may_be_at_zero = self.hpa["spec"].get("minReplicas") == 0 and self.is_scaling
        is_of_keda = any(kind == "ScaledObject" for kind, _name in owners(self.hpa))
        return self.replicas == 0 and (is_at_zero or may_be_at_zero or is_of_keda)

    @property
    def lag_s(self) -> float:
        """Twice the periods until a new pod is visible, because one sample may be missing."""
        budget = self.budget or {}
        return 2 * sum(budget.get(f"{period}_s", 0) for period in ("collect", "scrape", "evaluate"))

    @property
    def is_scaling(self) -> bool:
        return condition(self.hpa, "ScalingActive").get("status") == "True"

    @property
    def metrics_without_value(self) -> list[str]:
        """Metrics for which the HPA's status has no current value.

        The condition ScalingActive stays True as long as one of several metrics works. Before the controller has read
        any metric, the status has none of them.
        """
        entries = (self.hpa.get("status") or {}).get("currentMetrics")
        if entries is None:
            return []
        current = {_metric_id(entry) for entry in entries}
        wanted = [_metric_id(entry) for entry in self.hpa["spec"].get("metrics") or ()]
        return [" ".join(filter(None, metric)) for metric in wanted if metric not in current]

    @property
    def is_hopeless(self) -> bool:
        """Whether no pod of the target is ready or starting."""
        return not self.ready_pods and not (self.replicas and (self.pods or is_unseen(self.target or {})))

    @property
    def revisions(self) -> dict[str, list[str]]:
        """Pods of a Rollout's stable and new revision; empty unless there are two."""
        return revisions(self.target or {}, self.pods) if is_rollout(self.reference) else {}

    @property
    def is_proven(self) -> bool:
        """Whether each ready pod has a value that agrees with Prometheus, and the HPA acts on all its metrics.

        An HPA without a metric of the chain, for example on CPU alone, proves nothing of it.
        """
        metrics_work = all(metric.is_proven for metric in self.metrics) and not self.metrics_without_value
        return bool(self.metrics) and bool(self.ready_pods) and metrics_work and self.is_scaling

    @property
    def proven_hops(self) -> frozenset[Hop]:
        """Hops that its proof stands for: those of its metrics' paths; none if it is not proven."""
        return frozenset(hop for metric in self.metrics for hop in metric.path if self.is_proven)

    def describe(self) -> dict[str, Any]:
        """In the format of modules."""
        status = self.hpa.get("status") or {}
        metrics = [metric.describe() for metric in self.metrics]
        return {
            "verified": self.is_proven,
            "replicas": self.replicas or 0,
            "desired_replicas": status.get("desiredReplicas"),
            "ready_pods": sorted(pod["metadata"]["name"] for pod in self.ready_pods),
            "pod_values": metrics[0]["pod_values"] if metrics else {},
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
