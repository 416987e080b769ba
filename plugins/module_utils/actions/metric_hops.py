# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from ..autoscaling.manifests import Manifest
from ..chain.check import CheckResult, FindingType
from ..chain.checks.before import WORKLOAD_NOT_SCALABLE
from ..chain.checks.metric import METRIC_NOT_LISTED, METRIC_WITHOUT_VALUE
from ..chain.checks.metrics_api import METRICS_API_MISSING, METRICS_API_UNAVAILABLE
from ..chain.checks.workload import WORKLOAD_MISSING, WORKLOAD_NOT_READY
from ..cluster.errors import ApiError
from ..cluster.kube import APISERVICES, PODS, KubeClient
from ..errors import enumeration
from ..hops import Hop
from .metric_answer import ALL, Answer, MetricQuery
from .metrics_owner import Owner

# KEDA lists this one name for every metric that it serves, since 2.11.
LISTS_NOTHING = {"externalmetrics"}

WORKLOAD_WITHOUT_SELECTOR = FindingType(
    "WORKLOAD_WITHOUT_SELECTOR",
    Hop.WORKLOAD,
    "error",
    cause="an HPA finds the pods of its target by the selector of the scale subresource",
    fix="see status.selector of that {kind}, which its controller sets",
)
WORKLOAD_WITHOUT_PODS = FindingType(
    "WORKLOAD_WITHOUT_PODS",
    Hop.WORKLOAD,
    "error",
    cause="a metric of pods has no value without pods",
    fix="start the workload or scale it up, or correct namespace, name or label_selectors",
)
METRIC_IN_CAPITALS = FindingType(
    "METRIC_IN_CAPITALS",
    Hop.METRIC,
    "error",
    cause="HPAs ask for external metrics in lower case",
    fix="give the metric a name in lower case where it is made",
)
# Here the query tells more exactly where to look.
_NOT_LISTED = replace(METRIC_NOT_LISTED, fix="{fix}")
_WITHOUT_VALUE = replace(
    METRIC_WITHOUT_VALUE,
    cause="the API offers the metric, but has no value of these objects with these labels",
    fix="{fix}",
)

HopCheck = Callable[[KubeClient, Answer], CheckResult | None]


def broken_hop(kube: KubeClient, answer: Answer) -> CheckResult | None:
    """The first hop that keeps values from the one who asks; None if all that was asked for has a value."""
    if answer.is_complete:
        return None
    return next((result for check in HOPS if (result := check(kube, answer))), None)


def _owner(kube: KubeClient, answer: Answer) -> Owner:
    group = answer.query.group
    with suppress(ApiError):  # evidence only: the one who may ask for metrics need not be allowed to read this
        return Owner(group, kube.get(APISERVICES, f"{answer.version}.{group}"))
    return Owner(group, None)


def _served(kube: KubeClient, answer: Answer) -> CheckResult | None:
    if answer.outage is None:
        return None
    group, owner = answer.query.group, _owner(kube, answer)
    name, template_vars = f"APIService {answer.version}.{group}", {"group": group, "owner": str(owner)}
    if owner.api_service is None and answer.outage.is_not_found:
        return CheckResult(METRICS_API_MISSING, name, f"nobody serves {group}", template_vars=template_vars)
    seen = f"{owner} does not answer for {group}: {answer.outage.message.strip()}"
    if owner.unavailable:
        seen = f"{name} of {owner} is not Available: {owner.unavailable}"
    return CheckResult(METRICS_API_UNAVAILABLE, name, seen, template_vars=template_vars)


def _target(_kube: KubeClient, answer: Answer) -> CheckResult | None:
    target, found, query = answer.query.target, answer.target, answer.query
    if target is None or found is None or found.selector:
        return None
    name = f"{target} {query.scope}"
    template_vars = {"namespace": query.namespace or "", "target": f"{target.kind}/{target.name}".lower()}
    if not found.is_scalable:
        seen = f"the cluster has no kind {target.kind} with a scale subresource in {target.api_version}"
        return CheckResult(WORKLOAD_NOT_SCALABLE, name, seen)
    if found.scale is None:
        return CheckResult(WORKLOAD_MISSING, name, f"there is no {name}", template_vars=template_vars)
    seen = f"the scale subresource of {name} has no selector"
    return CheckResult(WORKLOAD_WITHOUT_SELECTOR, name, seen, template_vars={"kind": target.kind})


def _spelling(_kube: KubeClient, answer: Answer) -> CheckResult | None:
    query = answer.query
    if not query.is_external or query.metric == query.metric.lower():
        return None
    seen = f"no value of {query.metric}: HPAs ask for external metrics in lower case, {query.metric.lower()}"
    return CheckResult(METRIC_IN_CAPITALS, f"metric {query.metric}", seen)


def _listed(kube: KubeClient, answer: Answer) -> CheckResult | None:
    if answer.is_listed or answer.items or answer.names == LISTS_NOTHING:
        return None
    query, owner = answer.query, _owner(kube, answer)
    elsewhere = sorted(name for name in answer.names if name.rpartition("/")[2] == query.metric)
    series = _recorded_series(query) if owner.is_prometheus_adapter else ""
    fix = f"see whether the configuration of {owner} has that metric"
    if series:
        fix = (
            f"see in Prometheus whether {series} has samples: by the prometheus_adapter role's rules it becomes the "
            "metric, within the relist interval"
        )
    return CheckResult(
        _NOT_LISTED,
        f"metric {query.metric}",
        f"{owner} serves {query.group} and lists {len(answer.names)} metrics, none of them {query.discovery_name}"
        f"{f', but {enumeration(elsewhere)}' if elsewhere else ''}",
        template_vars={"fix": fix},
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


def _pods(kube: KubeClient, answer: Answer) -> CheckResult | None:
    query, target = answer.query, answer.target
    if query.is_external or query.resource != "pods" or (target and target.ready):
        return None
    name = f"{query.target} {query.scope}"
    if target and target.pods:
        place = {"namespace": query.namespace or "", "target": str(query.target).replace(" ", "/").lower()}
        seen = f"0 of {len(target.pods)} pods of {name} are ready"
        return CheckResult(WORKLOAD_NOT_READY, name, seen, template_vars=place)
    if target:
        return CheckResult(WORKLOAD_WITHOUT_PODS, name, f"{name} has no pods")
    with suppress(ApiError):  # evidence only, as above
        if not _pods_asked_for(kube, query):
            labels = f" with {query.label_selector}" if query.label_selector else ""
            pod = "pod" if query.name == ALL else f"pod {query.name}"
            return CheckResult(WORKLOAD_WITHOUT_PODS, "pods", f"there is no {pod} {query.scope}{labels}")
    return None


def _value(kube: KubeClient, answer: Answer) -> CheckResult | None:
    query, owner = answer.query, _owner(kube, answer)
    objects = f"{query.resource} {enumeration(answer.missing)}" if answer.missing else f"{query.resource} {query.name}"
    whom = "" if query.is_external else f"for {objects} "
    refusal = f": {answer.refusal}" if answer.refusal else ""
    fix = f"see the log of {owner}"
    if owner.is_prometheus_adapter:
        fix = (
            "see in Prometheus whether its series has samples with these labels now, then the log of prometheus-adapter"
        )
    return CheckResult(
        _WITHOUT_VALUE,
        f"metric {query.metric}",
        f"{owner} has no value of {query.metric} {whom}{query.scope}{query.choice}{refusal}",
        template_vars={"fix": fix},
    )


HOPS: tuple[HopCheck, ...] = (_served, _target, _spelling, _listed, _pods, _value)


def _pods_asked_for(kube: KubeClient, query: MetricQuery) -> Sequence[Manifest]:
    if query.name == ALL:
        return kube.list(PODS, namespace=query.namespace, label_selector=query.label_selector) or ()
    pod = kube.get(PODS, query.name, query.namespace)
    return [pod] if pod else []
