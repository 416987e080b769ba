# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..clients import HPAS, PODS, ApiError, KubeClient, PrometheusClient, Resource
from ..domain import WORKLOAD, Autoscaler, HopError, Manifest, Metric, metrics_of, parse_quantity
from .snapshot import Key, key_of

CUSTOM_METRICS = "/apis/custom.metrics.k8s.io/v1beta1"

# Under load the adapter's value and Prometheus' move between two reads: any value of this window agrees.
AGREEMENT_WINDOW_S = 30
# The adapter rounds to thousandths.
ROUNDING = 0.01

PodValues = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Observation:
    """What the last hops show for one autoscaler.

    replicas:   as the target's scale subresource has them.
    ready_pods: names of the target's ready pods.
    values:     custom.metrics.k8s.io, by pod; refusal: what it answered instead.
    recorded:   the series in Prometheus, by pod: its values of the last seconds.
    conditions: of the HPA, by type.
    """

    replicas: int
    ready_pods: frozenset[str]
    values: Mapping[str, float]
    refusal: str
    recorded: PodValues
    conditions: Mapping[str, Mapping[str, Any]]

    @property
    def is_verified(self) -> bool:
        return bool(self.ready_pods) and not self.silent and not self.disagreeing and self.is_scaling

    @property
    def silent(self) -> list[str]:
        """Ready pods without a value in custom.metrics.k8s.io."""
        return sorted(self.ready_pods - set(self.values))

    @property
    def unrecorded(self) -> list[str]:
        """Ready pods without a recorded series."""
        return sorted(self.ready_pods - set(self.recorded))

    @property
    def disagreeing(self) -> list[str]:
        """Ready pods whose value is none of those that Prometheus has recorded lately."""
        return sorted(pod for pod in self.ready_pods & set(self.values) if not self._agrees(pod))

    @property
    def is_scaling(self) -> bool:
        return self.conditions.get("ScalingActive", {}).get("status") == "True"

    def _agrees(self, pod: str) -> bool:
        recorded = self.recorded.get(pod)
        return bool(recorded) and min(recorded) - ROUNDING <= self.values[pod] <= max(recorded) + ROUNDING


class Observer:
    """Reads what autoscalers show. What several of them share is read once a round."""

    def __init__(self, kube: KubeClient, prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler]) -> None:
        self._kube = kube
        self._prometheus = prometheus
        versions = {autoscaler.target.api_version for autoscaler in autoscalers}
        self._kinds = {version: kube.discover(version) for version in versions}

    def observe(self, autoscalers: Sequence[Autoscaler]) -> dict[Key, Observation]:
        """One round. Prometheus is read last, so that its window covers what the adapter said."""
        scales = [self._scale(autoscaler) for autoscaler in autoscalers]
        answers = [self._custom_metric(*each) for each in zip(autoscalers, scales, strict=True)]
        recorded = {metric.name: self._recorded(metric) for metric in metrics_of(autoscalers)}
        hpas = {key_of(hpa): hpa for hpa in self._kube.list(HPAS) or ()}
        observations = {}
        for autoscaler, scale, (values, refusal) in zip(autoscalers, scales, answers, strict=True):
            key = (autoscaler.namespace, autoscaler.name)
            observations[key] = Observation(
                replicas=scale["spec"].get("replicas", 0),
                ready_pods=self._ready_pods(autoscaler.namespace, scale),
                values=values,
                refusal=refusal,
                recorded=recorded[autoscaler.metric.name].get(autoscaler.namespace, {}),
                conditions=_conditions(hpas.get(key, {})),
            )
        return observations

    def _scale(self, autoscaler: Autoscaler) -> Manifest:
        target = autoscaler.target
        resource: Resource = self._kinds[target.api_version][target.kind]
        scale = self._kube.get(resource, target.name, autoscaler.namespace, subresource="scale")
        if scale is None:
            raise HopError(
                WORKLOAD, seen=f"{target} of autoscaler {autoscaler} is gone", fix="create it, then run again"
            )
        return scale

    def _ready_pods(self, namespace: str, scale: Manifest) -> frozenset[str]:
        pods = self._kube.list(PODS, namespace=namespace, label_selector=_selector(scale)) or ()
        return frozenset(
            pod["metadata"]["name"]
            for pod in pods
            if not pod["metadata"].get("deletionTimestamp")
            and _conditions(pod).get("Ready", {}).get("status") == "True"
        )

    def _custom_metric(self, autoscaler: Autoscaler, scale: Manifest) -> tuple[dict[str, float], str]:
        """The values by pod as the HPA controller would get them, or what was answered instead."""
        path = f"{CUSTOM_METRICS}/namespaces/{autoscaler.namespace}/pods/*/{autoscaler.metric.name}"
        try:
            items = self._kube.get_raw(path, {"labelSelector": _selector(scale)})["items"]
        except ApiError as err:
            return {}, err.message
        return {item["describedObject"]["name"]: parse_quantity(item["value"]) for item in items}, ""

    def _recorded(self, metric: Metric) -> dict[str, PodValues]:
        """The values of the window by namespace and pod; none while Prometheus does not answer."""
        found: dict[str, dict[str, Sequence[float]]] = {}
        try:
            series = self._prometheus.query(f"{metric.series}[{AGREEMENT_WINDOW_S}s]")
        except ApiError:
            return {}
        for each in series:
            found.setdefault(each.labels.get("namespace", ""), {})[each.labels.get("pod", "")] = each.values
        return found


def _selector(scale: Manifest) -> str:
    return scale.get("status", {}).get("selector", "")


def _conditions(manifest: Manifest) -> dict[str, Manifest]:
    return {each["type"]: each for each in manifest.get("status", {}).get("conditions", [])}
