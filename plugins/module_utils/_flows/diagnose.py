# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Sequence

from ..clients import ApiError, KubeClient, PrometheusClient
from ..domain import ADAPTER, CUSTOM_METRIC, EXPORTER, HPA, RULE, SERIES, WORKLOAD, Autoscaler, Finding
from .observe import CUSTOM_METRICS, Observation

HopCheck = Callable[[KubeClient, PrometheusClient, Autoscaler, Observation], Finding | None]


def first_broken_hop(
    kube: KubeClient, prometheus: PrometheusClient, autoscaler: Autoscaler, seen: Observation
) -> Finding:
    """Walk the chain from left to right and stop where it is broken: what lies right of it is only a consequence."""
    for check in HOPS:
        finding = check(kube, prometheus, autoscaler, seen)
        if finding is not None:
            return finding
    return Finding(HPA, seen=f"autoscaler {autoscaler}: each hop answers, but only now", fix="raise wait_timeout")


def _workload(
    _kube: KubeClient, _prometheus: PrometheusClient, autoscaler: Autoscaler, seen: Observation
) -> Finding | None:
    target = f"{autoscaler.target.kind} {autoscaler.namespace}/{autoscaler.target.name}"
    kubectl = f"kubectl -n {autoscaler.namespace}"
    if not seen.replicas:
        return Finding(
            WORKLOAD,
            seen=f"{target} has 0 replicas: an HPA leaves that alone",
            fix=f"{kubectl} scale {autoscaler.target.kind}/{autoscaler.target.name} --replicas=1",
        )
    if not seen.ready_pods:
        return Finding(
            WORKLOAD,
            seen=f"none of the pods of {target} is ready",
            fix=f"{kubectl} describe pods",
        )
    return None


def _exporter(
    _kube: KubeClient, prometheus: PrometheusClient, autoscaler: Autoscaler, seen: Observation
) -> Finding | None:
    names = "|".join(source.series for source in autoscaler.metric.sources)
    if not names:
        return None
    labels = "exported_namespace, exported_pod, namespace, pod"
    try:
        rows = prometheus.query(f'count by ({labels}) ({{__name__=~"{names}"}})')
    except ApiError as err:
        return Finding(
            EXPORTER,
            seen=f"Prometheus {prometheus.name} does not answer: {err.message}",
            fix="run the prometheus_stack role, then again",
        )
    if not rows:
        return Finding(
            EXPORTER,
            seen=f"Prometheus has no series {names.replace('|', ' or ')}",
            fix="see that the ServiceMonitor of dcgm-exporter has the label release that Prometheus selects; "
            "the dcgm_exporter role sets it",
        )
    named = {
        (
            row.labels.get("exported_namespace") or row.labels.get("namespace"),
            row.labels.get("exported_pod") or row.labels.get("pod"),
        )
        for row in rows
    }
    missing = [pod for pod in sorted(seen.ready_pods) if (autoscaler.namespace, pod) not in named]
    if missing:
        total = sum(int(row.values[-1]) for row in rows)
        return Finding(
            EXPORTER,
            seen=f"{names.replace('|', ' and ')}: {total} series, none names {_pods(autoscaler, missing)}",
            fix="see that the pod has an nvidia.com/gpu limit, that dcgm-exporter runs on its node, "
            "has DCGM_EXPORTER_KUBERNETES=true and mounts the kubelet's pod-resources folder",
        )
    return None


def _rule(
    _kube: KubeClient, prometheus: PrometheusClient, autoscaler: Autoscaler, _seen: Observation
) -> Finding | None:
    metric = autoscaler.metric
    rules = [rule for rule in prometheus.recording_rules() if rule["name"] == metric.series]
    if not rules:
        return Finding(
            RULE,
            seen=f"Prometheus {prometheus.name} has not loaded PrometheusRule {metric.rule_name}",
            fix="set prometheus.rule_labels and .rule_namespace to what the Prometheus object's ruleSelector and "
            "ruleNamespaceSelector ask for",
        )
    failed = [rule for rule in rules if rule.get("health") == "err"]
    if failed:
        return Finding(
            RULE,
            seen=f"rule {metric.series} fails: {failed[0].get('lastError')}",
            fix="look for other rules that record the same series, or correct the query",
        )
    return None


def _series(
    _kube: KubeClient, _prometheus: PrometheusClient, autoscaler: Autoscaler, seen: Observation
) -> Finding | None:
    if not seen.unrecorded:
        return None
    return Finding(
        SERIES,
        seen=f"{autoscaler.metric.series} has no value for {_pods(autoscaler, seen.unrecorded)}",
        fix="see in Prometheus whether the query gives a value for it: what is outside 0..100 is left out"
        if autoscaler.metric.is_percent
        else "see in Prometheus whether the query gives one series per namespace and pod",
    )


def _adapter(
    kube: KubeClient, _prometheus: PrometheusClient, autoscaler: Autoscaler, seen: Observation
) -> Finding | None:
    try:
        listed = {each["name"] for each in kube.get_raw(CUSTOM_METRICS)["resources"]}
    except ApiError as err:
        return Finding(
            ADAPTER,
            seen=f"custom.metrics.k8s.io does not answer: {err.message}",
            fix="kubectl describe apiservice v1beta1.custom.metrics.k8s.io; see the log of prometheus-adapter",
        )
    if f"pods/{autoscaler.metric.name}" in listed:
        return None
    return Finding(
        ADAPTER,
        seen=f"{autoscaler.metric.series} exists, but prometheus-adapter does not list pods/{autoscaler.metric.name}",
        fix="run the prometheus_adapter role: its generic rule makes a metric of each namespace_pod:<metric>:avg",
    )


def _custom_metric(
    _kube: KubeClient, _prometheus: PrometheusClient, autoscaler: Autoscaler, seen: Observation
) -> Finding | None:
    metric = autoscaler.metric.name
    if seen.silent:
        return Finding(
            CUSTOM_METRIC,
            seen=f"no {metric} for {_pods(autoscaler, seen.silent)}{': ' if seen.refusal else ''}{seen.refusal}",
            fix="see the log of prometheus-adapter; its rule has to keep the labels namespace and pod",
        )
    if seen.disagreeing:
        pod = seen.disagreeing[0]
        recorded = seen.recorded[pod]
        return Finding(
            CUSTOM_METRIC,
            seen=f"{metric} of pod {autoscaler.namespace}/{pod} is {seen.values[pod]:g}, "
            f"Prometheus recorded {min(recorded):g} to {max(recorded):g}",
            fix="see that prometheus-adapter asks the same Prometheus and has no second rule for this metric",
        )
    return None


def _hpa(_kube: KubeClient, _prometheus: PrometheusClient, autoscaler: Autoscaler, seen: Observation) -> Finding | None:
    if seen.is_scaling:
        return None
    condition = seen.conditions.get("ScalingActive")
    return Finding(
        HPA,
        seen=f"HPA {autoscaler}: ScalingActive is False, {condition['reason']}: {condition['message']}"
        if condition
        else f"HPA {autoscaler} has no condition yet: its controller has not seen it",
        fix=f"kubectl -n {autoscaler.namespace} describe hpa {autoscaler.name}",
    )


HOPS: tuple[HopCheck, ...] = (_workload, _exporter, _rule, _series, _adapter, _custom_metric, _hpa)


def _pods(autoscaler: Autoscaler, names: Sequence[str]) -> str:
    rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"pod {autoscaler.namespace}/{names[0]}{rest}"
