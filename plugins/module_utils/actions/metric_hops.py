# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from ..autoscaling.manifests import Manifest
from ..cluster.errors import ApiError
from ..cluster.kube import APISERVICES, PODS, KubeClient
from ..cluster.metrics_api import CUSTOM_METRICS, EXTERNAL_METRICS
from ..errors import Finding, enumeration
from ..hops import Hop
from .metric_answer import ALL, Answer, MetricQuery
from .metrics_owner import Owner

# KEDA lists this one name for every metric that it serves, since 2.11.
LISTS_NOTHING = {"externalmetrics"}

HopCheck = Callable[[KubeClient, Answer], Finding | None]


def broken_hop(kube: KubeClient, answer: Answer) -> Finding | None:
    """The first hop that keeps values from the one who asks; None if all that was asked for has a value."""
    if answer.is_complete:
        return None
    return next((finding for check in HOPS if (finding := check(kube, answer))), None)


def _owner(kube: KubeClient, answer: Answer) -> Owner:
    group = answer.query.group
    with suppress(ApiError):  # evidence only: the one who may ask for metrics need not be allowed to read this
        return Owner(group, kube.get(APISERVICES, f"{answer.version}.{group}"))
    return Owner(group, None)


def _served(kube: KubeClient, answer: Answer) -> Finding | None:
    if answer.outage is None:
        return None
    group, owner = answer.query.group, _owner(kube, answer)
    if owner.api_service is None and answer.outage.is_not_found:
        return Finding(Hop.METRICS_API, seen=f"nobody serves {group}", fix=INSTALL[group])
    seen = f"{owner} does not answer for {group}: {answer.outage.message.strip()}"
    if owner.unavailable:
        seen = f"APIService {answer.version}.{group} of {owner} is not Available: {owner.unavailable}"
    namespace = owner.service.partition("/")[0]
    return Finding(
        Hop.METRICS_API,
        seen,
        fix=f"see that its pods are ready{f' (kubectl -n {namespace} get pods)' if namespace else ''} and that no "
        "firewall keeps the control plane from them",
    )


INSTALL = {
    CUSTOM_METRICS: "run the prometheus_adapter role",
    EXTERNAL_METRICS: "install KEDA, or run the prometheus_adapter role with prometheus_adapter_external_metrics: true",
}


def _target(_kube: KubeClient, answer: Answer) -> Finding | None:
    target, found, query = answer.query.target, answer.target, answer.query
    if target is None or found is None or found.selector:
        return None
    if not found.is_scalable:
        return Finding(
            Hop.WORKLOAD,
            seen=f"the cluster has no kind {target.kind} with a scale subresource in {target.api_version}",
            fix="correct target.kind and target.api_version, or install what brings that kind",
        )
    if found.scale is None:
        return Finding(
            Hop.WORKLOAD,
            seen=f"there is no {target} {query.scope}",
            fix="create it, or correct target.name and namespace",
        )
    return Finding(
        Hop.WORKLOAD,
        seen=f"the scale subresource of {target} {query.scope} has no selector, without which no HPA finds its pods",
        fix=f"see status.selector of that {target.kind}, which its controller sets",
    )


def _spelling(_kube: KubeClient, answer: Answer) -> Finding | None:
    query = answer.query
    if not query.is_external or query.metric == query.metric.lower():
        return None
    return Finding(
        Hop.METRIC,
        seen=f"no value of {query.metric}: HPAs ask for external metrics in lower case, {query.metric.lower()}",
        fix="give the metric a name in lower case where it is made",
    )


def _listed(kube: KubeClient, answer: Answer) -> Finding | None:
    if answer.is_listed or answer.items or answer.names == LISTS_NOTHING:
        return None
    query, owner = answer.query, _owner(kube, answer)
    elsewhere = sorted(name for name in answer.names if name.rpartition("/")[2] == query.metric)
    return Finding(
        Hop.METRICS_API,
        seen=f"{owner} serves {query.group} and lists {len(answer.names)} metrics, none of them {query.discovery_name}"
        f"{f', but {enumeration(elsewhere)}' if elsewhere else ''}",
        fix=f"see in Prometheus whether {series} has samples: by the prometheus_adapter role's rules it becomes the "
        "metric, within the relist interval"
        if owner.is_prometheus_adapter and (series := _recorded_series(query))
        else f"see whether the configuration of {owner} has that metric",
    )


def _recorded_series(query: MetricQuery) -> str:
    """The series behind a metric by the rules of the prometheus_adapter role; empty if there is none."""
    if query.is_external:
        return f"external:{query.metric}:sum"
    return SERIES.get(query.resource, "").format(query.metric)


SERIES = {
    "pods": "namespace_pod:{}:avg",
    # Both rules make metrics of namespaces. Of two series the adapter keeps that of the last rule.
    "namespaces": "namespace_workload:{0}:avg or namespace_pod:{0}:avg",
    "deployments.apps": "namespace_workload:{}:avg",
    "statefulsets.apps": "namespace_workload:{}:avg",
}


def _pods(kube: KubeClient, answer: Answer) -> Finding | None:
    query, target = answer.query, answer.target
    if query.is_external or query.resource != "pods" or (target and target.ready):
        return None
    if target and target.pods:
        return Finding(
            Hop.WORKLOAD,
            seen=f"0 of {len(target.pods)} pods of {query.target} {query.scope} are ready",
            fix=f"kubectl -n {query.namespace} describe pods",
        )
    if target:
        return Finding(Hop.WORKLOAD, seen=f"{query.target} {query.scope} has no pods", fix="scale it up")
    with suppress(ApiError):  # evidence only, as above
        if not _pods_asked_for(kube, query):
            labels = f" with {query.label_selector}" if query.label_selector else ""
            return Finding(
                Hop.WORKLOAD,
                seen=f"there is no pod {'' if query.name == ALL else f'{query.name} '}{query.scope}{labels}",
                fix="start the workload, or correct namespace, name or label_selectors",
            )
    return None


def _value(kube: KubeClient, answer: Answer) -> Finding | None:
    query, owner = answer.query, _owner(kube, answer)
    objects = f"{query.resource} {enumeration(answer.missing)}" if answer.missing else f"{query.resource} {query.name}"
    return Finding(
        Hop.METRIC,
        seen=f"{owner} has no value of {query.metric} {'' if query.is_external else f'for {objects} '}{query.scope}"
        f"{query.choice}{f': {answer.refusal}' if answer.refusal else ''}",
        fix="see in Prometheus whether its series has samples with these labels now, then the log of prometheus-adapter"
        if owner.is_prometheus_adapter
        else f"see the log of {owner}",
    )


HOPS: tuple[HopCheck, ...] = (_served, _target, _spelling, _listed, _pods, _value)


def _pods_asked_for(kube: KubeClient, query: MetricQuery) -> Sequence[Manifest]:
    if query.name == ALL:
        return kube.list(PODS, namespace=query.namespace, label_selector=query.label_selector) or ()
    pod = kube.get(PODS, query.name, query.namespace)
    return [pod] if pod else []
