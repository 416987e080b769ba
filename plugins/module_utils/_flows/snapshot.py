# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..clients import (
    APISERVICES,
    HPAS,
    NODES,
    RULES,
    ApiError,
    KubeClient,
    PrometheusClient,
    QueryError,
)
from ..domain import MANAGED_BY, MANAGER, METRIC_LABEL, Autoscaler, Manifest, metrics_of, parse_quantity

Key = tuple[str, str]


@dataclass(frozen=True)
class TargetState:
    """What the cluster knows of one target.

    served:   its kind exists.  scalable: that kind has a scale subresource.
    manifest: the object itself, None if there is none.
    """

    served: bool
    scalable: bool
    manifest: Manifest | None


@dataclass(frozen=True)
class Objects:
    """What there is of the kinds that autoscalers are made of.

    hpas:  every HPA of the cluster, by namespace and name: also others' count, they can be in the way.
    rules: our recording rules, by metric; None if the kind PrometheusRule is not served.
    """

    hpas: dict[Key, Manifest]
    rules: dict[str, Manifest] | None

    @property
    def managed_hpas(self) -> dict[Key, Manifest]:
        return {key: hpa for key, hpa in self.hpas.items() if is_managed(hpa)}


@dataclass(frozen=True)
class Surroundings:
    """What the autoscalers depend on.

    targets:          by namespace and name of the autoscaler.
    metrics_api:      the APIService of custom.metrics.k8s.io.
    gpus:             allocatable extended resources of all nodes, by name.
    prometheus_error: why Prometheus could not be asked.
    query_errors:     what Prometheus said of a user's own query, by metric.
    """

    targets: dict[Key, TargetState] = field(default_factory=dict)
    metrics_api: Manifest | None = None
    gpus: dict[str, int] = field(default_factory=dict)
    prometheus_error: str | None = None
    query_errors: dict[str, str] = field(default_factory=dict)


def key_of(manifest: Manifest) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def is_managed(manifest: Manifest) -> bool:
    return manifest["metadata"].get("labels", {}).get(MANAGED_BY) == MANAGER


def metric_of(manifest: Manifest) -> str:
    return manifest["metadata"]["labels"].get(METRIC_LABEL, "")


def read_objects(kube: KubeClient, rule_namespace: str) -> Objects:
    hpas = [{**hpa, "kind": HPAS.kind} for hpa in kube.list(HPAS) or ()]
    rules = kube.list(RULES, namespace=rule_namespace, label_selector=f"{MANAGED_BY}={MANAGER}")
    return Objects(
        hpas={key_of(hpa): hpa for hpa in hpas},
        rules=None if rules is None else {metric_of(rule): {**rule, "kind": RULES.kind} for rule in rules},
    )


def read_surroundings(
    kube: KubeClient, prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler]
) -> Surroundings:
    prometheus_error, query_errors = _try_queries(prometheus, autoscalers)
    return Surroundings(
        targets=_read_targets(kube, autoscalers),
        metrics_api=kube.get(APISERVICES, "v1beta1.custom.metrics.k8s.io"),
        gpus=_allocatable(kube.list(NODES) or ()),
        prometheus_error=prometheus_error,
        query_errors=query_errors,
    )


def _read_targets(kube: KubeClient, autoscalers: Iterable[Autoscaler]) -> dict[Key, TargetState]:
    """Discovery once a version, a list once a kind and namespace, however many autoscalers there are."""
    kinds, listed, found = {}, {}, {}
    for autoscaler in autoscalers:
        target = autoscaler.target
        if target.api_version not in kinds:
            kinds[target.api_version] = kube.discover(target.api_version)
        resource = kinds[target.api_version].get(target.kind)
        key = (autoscaler.namespace, autoscaler.name)
        if resource is None:
            found[key] = TargetState(served=False, scalable=False, manifest=None)
            continue
        place = (resource, autoscaler.namespace)
        if place not in listed:
            objects = kube.list(resource, namespace=autoscaler.namespace) or ()
            listed[place] = {each["metadata"]["name"]: each for each in objects}
        found[key] = TargetState(served=True, scalable=resource.scalable, manifest=listed[place].get(target.name))
    return found


def _allocatable(nodes: Iterable[Manifest]) -> dict[str, int]:
    total: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.get("status", {}).get("allocatable", {}).items():
            if "/" in resource:
                total[resource] = total.get(resource, 0) + int(parse_quantity(amount))
    return total


def _try_queries(prometheus: PrometheusClient, autoscalers: Iterable[Autoscaler]) -> tuple[str | None, dict[str, str]]:
    """Whether Prometheus answers, and what it says of the queries that are not ours and so not tested."""
    refused = {}
    try:
        prometheus.query("vector(1)")
        for metric in metrics_of(autoscalers):
            if metric.sources:
                continue
            try:
                prometheus.query(metric.query)
            except QueryError as err:
                refused[metric.name] = str(err)
    except ApiError as err:
        return str(err), refused
    return None, refused
