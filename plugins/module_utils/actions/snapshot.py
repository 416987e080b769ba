# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..autoscaling.capacity import gpus_of
from ..autoscaling.manifests import METRIC_LABEL, Manifest, metrics_of, resources_of
from ..autoscaling.metrics import Metric
from ..autoscaling.spec import EXTERNAL, OBJECT, PODS, Autoscaler
from ..chain.objects import Key, key_of
from ..cluster.errors import ApiError, QueryError
from ..cluster.kube import (
    APISERVICES,
    HPAS,
    NAMESPACES,
    NODES,
    PROMETHEUSES,
    RESOURCE_SLICES,
    RULES,
    SCALED_OBJECTS,
    KubeClient,
)
from ..cluster.listing import list_in
from ..cluster.prometheus import PrometheusClient
from ..errors import HopError
from ..hops import Hop
from ..marks import MANAGED_BY, MANAGER, namespace_of
from .reading import attempt, reason
from .targets import TargetState, read_targets

# An empty answer is one, so this tells whether Prometheus answers, too.
_GPU_JOBS = 'group by (job) ({__name__=~"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_PROF_GR_ENGINE_ACTIVE"})'
# The API that an HPA asks for a metric of this type.
GROUPS = {PODS: "custom.metrics.k8s.io", OBJECT: "custom.metrics.k8s.io", EXTERNAL: "external.metrics.k8s.io"}


@dataclass(frozen=True)
class Objects:
    """The objects of the kinds that autoscalers are made of.

    hpas:   every HPA of the cluster, by namespace and name. HPAs of others count too: they can be in the way.
    rules:  recording rules of this collection, for whichever inventory, by name; None if their kind is not served.
    unread: why only HPAs of the autoscalers' own namespaces are known; empty if all are.
    namespaces: those of the autoscalers.
    """

    hpas: dict[Key, Manifest]
    rules: dict[str, Manifest] | None
    unread: str = ""
    namespaces: frozenset[str] = frozenset()

    def are_users_known(self, rule: Manifest) -> bool:
        """Whether all HPAs that may use the rule have been seen."""
        return not self.unread or namespace_of(rule) in self.namespaces


@dataclass(frozen=True)
class ClusterSnapshot:
    """The objects that autoscalers depend on.

    targets:          by namespace and name of the autoscaler.
    nodes:            of the cluster. resource_slices: where none of them offers a GPU, those that pods can claim.
    scaled_objects:   KEDA's autoscalers; none if KEDA is not there, None if they may not be read.
    prometheuses:     the operator's objects. namespaces: with their labels, if one of those selects rules by them.
    metrics_apis:     the APIServices of custom.metrics.k8s.io and external.metrics.k8s.io, by group.
    resource_api:     that of metrics.k8s.io, for CPU and memory; not looked at where nobody asks for them.
    prometheus_error: why Prometheus could not be asked.
    query_errors:     what is wrong with a user's own query, by metric.
    empty_queries:    users' metrics whose query gives nothing now.
    no_namespace:     the namespace that rules are made in, if it is not there.
    gpu_jobs:         whose targets report GPUs to Prometheus.
    unread:           why something of the whole cluster may not be read, by the field of a State.
    """

    targets: dict[Key, TargetState] = field(default_factory=dict)
    nodes: Sequence[Manifest] = ()
    resource_slices: Sequence[Manifest] = ()
    scaled_objects: Sequence[Manifest] | None = ()
    metrics_apis: dict[str, Manifest | None] = field(default_factory=dict)
    resource_api: Manifest | None = None
    prometheus_name: str = ""
    prometheus_error: ApiError | None = None
    query_errors: dict[str, str] = field(default_factory=dict)
    empty_queries: tuple[str, ...] = ()
    prometheuses: Sequence[Manifest] = ()
    namespaces: Sequence[Manifest] = ()
    no_namespace: str = ""
    unread: dict[str, str] = field(default_factory=dict)
    gpu_jobs: tuple[str, ...] = ()


def metric_of(manifest: Manifest) -> str:
    return (manifest["metadata"].get("labels") or {}).get(METRIC_LABEL, "")


def read_hpas(kube: KubeClient, namespace: str | None = None) -> dict[Key, Manifest]:
    """All HPAs, or those of a namespace. In a list the server leaves the kind out.

    Raises: HopError if the kind is not served. That does not mean that there is no HPA.
    """
    found = kube.list(HPAS, namespace=namespace)
    if found is None:
        raise HopError(
            Hop.API_SERVER,
            seen=f"it does not serve {HPAS.kind} of {HPAS.api_version}, so it is unknown which HPAs exist",
            fix=f"check `kubectl get --raw /apis/{HPAS.api_version}`, and that the kubeconfig has the address of the "
            "API server itself",
        )
    return {key_of(hpa): {**hpa, "kind": HPAS.kind} for hpa in found}


def read_reachable_hpas(kube: KubeClient, namespaces: Collection[str]) -> tuple[dict[Key, Manifest], str]:
    """All HPAs. Who may not list them gets those of the namespaces, and why not all."""
    try:
        return read_hpas(kube), ""
    except ApiError as err:
        if err.status != 403 or not namespaces:
            raise
        hpas = list_in(kube, HPAS, namespaces)
        return {key: {**hpa, "kind": HPAS.kind} for key, hpa in hpas.items()}, reason(err)


def read_objects(kube: KubeClient, rule_namespace: str, namespaces: Collection[str]) -> Objects:
    """namespaces: of the autoscalers that it is about."""
    rules = read_rules(kube, rule_namespace)
    hpas, unread = read_reachable_hpas(kube, namespaces)
    return Objects(hpas, rules, unread, frozenset(namespaces))


def read_rules(kube: KubeClient, namespace: str) -> dict[str, Manifest] | None:
    """The rules of autoscalers, by name; None if the cluster has no such kind."""
    rules = kube.list(RULES, namespace=namespace, label_selector=f"{MANAGED_BY}={MANAGER},{METRIC_LABEL}")
    return None if rules is None else {key_of(rule)[1]: {**rule, "kind": RULES.kind} for rule in rules}


def gpu_jobs(prometheus: PrometheusClient) -> tuple[str, ...]:
    """Jobs whose targets report GPUs."""
    return tuple(sorted({series.labels.get("job", "") for series in prometheus.query(_GPU_JOBS, retry=True)} - {""}))


def read_snapshot(
    kube: KubeClient, prometheus: PrometheusClient, autoscalers: Sequence[Autoscaler], rule_namespace: str
) -> ClusterSnapshot:
    """rule_namespace: where rules are made; empty if it is known to be there."""
    prometheus_error, query_errors, empty_queries, jobs = _try_queries(prometheus, autoscalers)
    unread: dict[str, str] = {}

    def of_cluster(name: str, read: Callable[[], Any]) -> Any:
        """None for what is not there, and for what may not be read, which is noted."""
        found = attempt(read)
        if isinstance(found, ApiError) and found.status == 403:
            unread[name] = reason(found)
            return None
        if isinstance(found, Exception):
            raise found
        return found

    groups = dict.fromkeys(
        GROUPS[metric_target.type] for autoscaler in autoscalers for metric_target in autoscaler.metric_targets
    )
    asks_for_resources = any(map(resources_of, autoscalers))
    prometheuses = of_cluster("prometheuses", lambda: kube.list(PROMETHEUSES)) or ()
    # Who may not see the namespace learns of it when a rule is made.
    is_missing = bool(rule_namespace) and attempt(lambda: kube.get(NAMESPACES, rule_namespace)) is None
    selects_namespaces = any((prometheus.get("spec") or {}).get("ruleNamespaceSelector") for prometheus in prometheuses)
    nodes = of_cluster("nodes", lambda: kube.list(NODES)) or ()
    # Evidence only: who may not list them is told of nodes without GPUs.
    slices = attempt(lambda: kube.list(RESOURCE_SLICES)) if nodes and not any(gpus_of(nodes).values()) else None
    return ClusterSnapshot(
        gpu_jobs=jobs,
        targets=read_targets(kube, autoscalers, managers=False),
        nodes=nodes,
        resource_slices=slices if isinstance(slices, list) else (),
        scaled_objects=_scaled_objects(kube, {autoscaler.namespace for autoscaler in autoscalers}),
        metrics_apis={
            group: of_cluster("apis", partial(kube.get, APISERVICES, f"v1beta1.{group}")) for group in groups
        },
        resource_api=of_cluster("resource_api", lambda: kube.get(APISERVICES, "v1beta1.metrics.k8s.io"))
        if asks_for_resources
        else None,
        prometheus_name=prometheus.name,
        prometheus_error=prometheus_error,
        query_errors=query_errors,
        empty_queries=empty_queries,
        prometheuses=prometheuses,
        namespaces=of_cluster("namespaces", lambda: kube.list(NAMESPACES)) or () if selects_namespaces else (),
        no_namespace=rule_namespace if is_missing else "",
        unread=unread,
    )


def _scaled_objects(kube: KubeClient, namespaces: Collection[str]) -> Sequence[Manifest] | None:
    """Who may not read them gets 403 even where KEDA is not installed: rights are asked for first."""
    ways: tuple[Callable[[], Sequence[Manifest] | None], ...] = (
        lambda: kube.list(SCALED_OBJECTS),
        lambda: list(list_in(kube, SCALED_OBJECTS, namespaces).values()),
    )
    for read in ways:
        try:
            return read() or ()
        except ApiError as err:
            if err.status != 403:
                raise
    return None


def _try_queries(
    prometheus: PrometheusClient, autoscalers: Iterable[Autoscaler]
) -> tuple[ApiError | None, dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Whether Prometheus answers, the faults of the users' own queries, which are empty, and the jobs of GPUs."""
    wrong: dict[str, str] = {}
    empty = []
    jobs: tuple[str, ...] = ()
    try:
        jobs = gpu_jobs(prometheus)
        for metric in (*metrics_of(autoscalers), *_counters_of(autoscalers)):
            if metric.sources or not metric.query:
                continue
            error, count = _try_query(prometheus, metric)
            if error:
                wrong[metric.name] = error
            elif not count:
                empty.append(metric.name)
    except ApiError as err:
        return err, wrong, tuple(empty), jobs
    return None, wrong, tuple(empty), jobs


def _counters_of(autoscalers: Iterable[Autoscaler]) -> Iterator[Metric]:
    """What demands are made of, which nothing has recorded yet."""
    for autoscaler in autoscalers:
        if autoscaler.demand:
            yield from autoscaler.demand.probes(str(autoscaler))


def _try_query(prometheus: PrometheusClient, metric: Metric) -> tuple[str, int]:
    """The fault of a query's result, and the number of its series."""
    try:
        found = prometheus.query(metric.query)
    except QueryError as err:
        return str(err), 0
    if metric.per == "workload":
        return "", len(found)
    pods: dict[Key, int] = {}
    for series in found:
        namespace, pod = series.labels.get("namespace"), series.labels.get("pod")
        if not namespace or not pod:
            return f"a series has no label {'pod' if namespace else 'namespace'}: {dict(series.labels)}", len(found)
        pods[namespace, pod] = pods.get((namespace, pod), 0) + 1
    several = next((key for key, count in pods.items() if count > 1), None)
    if several:
        return f"pod {'/'.join(several)} has {pods[several]} series", len(found)
    return "", len(found)
