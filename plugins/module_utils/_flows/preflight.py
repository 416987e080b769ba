# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..domain import ADAPTER, EXPORTER, RULE, SPEC, WORKLOAD, Autoscaler, Finding, Manifest, metrics_of
from .snapshot import Objects, Surroundings, TargetState, is_managed

Check = Callable[[Sequence[Autoscaler], Objects, Surroundings], Iterator[Finding]]


def preflight(autoscalers: Sequence[Autoscaler], objects: Objects, around: Surroundings) -> list[Finding]:
    """What speaks against making these autoscalers, refusals and warnings, before anything is changed."""
    return [finding for check in CHECKS for finding in check(autoscalers, objects, around)]


def _one_name_each(autoscalers: Sequence[Autoscaler], _objects: Objects, _around: Surroundings) -> Iterator[Finding]:
    for name, times in Counter(map(str, autoscalers)).items():
        if times > 1:
            yield Finding(SPEC, seen=f"{times} autoscalers are called {name}", fix="give each a name of its own")


def _one_query_each(autoscalers: Sequence[Autoscaler], _objects: Objects, _around: Surroundings) -> Iterator[Finding]:
    for name, times in Counter(metric.name for metric in metrics_of(autoscalers)).items():
        if times > 1:
            yield Finding(SPEC, seen=f"metric {name} has {times} queries", fix="give each query a name of its own")


def _foreign_hpa(autoscalers: Sequence[Autoscaler], objects: Objects, _around: Surroundings) -> Iterator[Finding]:
    for autoscaler in autoscalers:
        live = objects.hpas.get((autoscaler.namespace, autoscaler.name))
        if live is not None and not is_managed(live):
            yield Finding(
                SPEC,
                seen=f"HPA {autoscaler} exists and was not made by this module",
                fix="delete it, or give the autoscaler another name",
            )


def _second_hpa(autoscalers: Sequence[Autoscaler], objects: Objects, _around: Surroundings) -> Iterator[Finding]:
    """Two controllers on one target undo each other's work."""
    holders: dict[tuple[str, ...], set[str]] = {}
    wanted = {(autoscaler.namespace, autoscaler.name): autoscaler for autoscaler in autoscalers}
    for (namespace, name), hpa in objects.hpas.items():
        if (namespace, name) not in wanted:
            ref = hpa["spec"]["scaleTargetRef"]
            group = ref.get("apiVersion", "").rpartition("/")[0]
            holders.setdefault((namespace, group, ref["kind"], ref["name"]), set()).add(f"{namespace}/{name}")
    for autoscaler in wanted.values():
        holders.setdefault((autoscaler.namespace, *autoscaler.target.identity), set()).add(str(autoscaler))
    for (namespace, *_group, kind, name), hpas in holders.items():
        ours = hpas & set(map(str, autoscalers))
        if ours and len(hpas) > 1:
            yield Finding(
                SPEC,
                seen=f"{kind} {namespace}/{name} would have {len(hpas)} HPAs: {', '.join(sorted(hpas))}",
                fix="keep one (state: absent removes ours); further metrics go into its extra_metrics",
            )


def _target_exists(autoscalers: Sequence[Autoscaler], _objects: Objects, around: Surroundings) -> Iterator[Finding]:
    for autoscaler in autoscalers:
        target, state = autoscaler.target, _target_state(autoscaler, around)
        if not state.served:
            yield Finding(
                WORKLOAD,
                seen=f"autoscaler {autoscaler}: the cluster has no kind {target.kind} in {target.api_version}",
                fix="check target.kind and target.api_version, or install what brings that kind",
                awaited=True,
            )
        elif not state.scalable:
            yield Finding(
                WORKLOAD,
                seen=f"autoscaler {autoscaler}: {target.kind} has no scale subresource",
                fix="choose a kind whose replicas can be set, a Deployment for instance",
            )
        elif state.manifest is None:
            yield Finding(
                WORKLOAD,
                seen=f"autoscaler {autoscaler}: there is no {target} in namespace {autoscaler.namespace}",
                fix="create it first, or correct target.name and namespace",
                awaited=True,
            )


def _prometheus_answers(
    _autoscalers: Sequence[Autoscaler], _objects: Objects, around: Surroundings
) -> Iterator[Finding]:
    if around.prometheus_error:
        yield Finding(
            EXPORTER,
            seen=f"Prometheus does not answer: {around.prometheus_error}",
            fix="run the prometheus_stack role, or set prometheus.namespace, .service and .port",
            awaited=True,
        )


def _queries_parse(_autoscalers: Sequence[Autoscaler], _objects: Objects, around: Surroundings) -> Iterator[Finding]:
    for metric, message in around.query_errors.items():
        yield Finding(
            RULE,
            seen=f"Prometheus refuses the query of metric {metric}: {message}",
            fix="try the query in Prometheus until it gives one series per namespace and pod",
        )


def _rules_served(_autoscalers: Sequence[Autoscaler], objects: Objects, _around: Surroundings) -> Iterator[Finding]:
    if objects.rules is None:
        yield Finding(
            RULE,
            seen="the cluster has no kind PrometheusRule",
            fix="run the prometheus_stack role, it brings the Prometheus operator",
            awaited=True,
        )


def _metrics_api_is_adapters(
    _autoscalers: Sequence[Autoscaler], _objects: Objects, around: Surroundings
) -> Iterator[Finding]:
    if around.metrics_api is None:
        yield Finding(
            ADAPTER,
            seen="nobody serves custom.metrics.k8s.io",
            fix="run the prometheus_adapter role",
            awaited=True,
        )
        return
    metadata, service = around.metrics_api["metadata"], around.metrics_api["spec"].get("service") or {}
    labels = metadata.get("labels", {})
    names = (service.get("name", ""), labels.get("app.kubernetes.io/name", ""), labels.get("app", ""))
    if not any("prometheus-adapter" in name for name in names):
        owner = f"service {service.get('namespace')}/{service.get('name')}" if service else "the API server itself"
        yield Finding(
            ADAPTER,
            seen=f"custom.metrics.k8s.io belongs to {owner}, not to prometheus-adapter",
            fix="a cluster has one owner of that API: remove the other before you run the prometheus_adapter role",
        )


def _readiness_probe(autoscalers: Sequence[Autoscaler], _objects: Objects, around: Surroundings) -> Iterator[Finding]:
    for autoscaler in autoscalers:
        containers = _containers(_target_state(autoscaler, around))
        if containers and not any(container.get("readinessProbe") for container in containers):
            yield Finding(
                WORKLOAD,
                seen=f"{autoscaler.target} of autoscaler {autoscaler} has no readiness probe",
                fix="add one: pods that count as ready while they still load make the HPA overshoot",
                severity="warning",
            )


def _gpu_limit(autoscalers: Sequence[Autoscaler], _objects: Objects, around: Surroundings) -> Iterator[Finding]:
    for autoscaler in autoscalers:
        containers = _containers(_target_state(autoscaler, around))
        if autoscaler.metric.is_percent and containers and not _gpus_per_pod(containers):
            yield Finding(
                WORKLOAD,
                seen=f"the pod template of {autoscaler.target} of autoscaler {autoscaler} has no nvidia.com/gpu limit",
                fix="add it: the exporter cannot tell whose GPU it is without",
                severity="warning",
            )


def _enough_gpus(autoscalers: Sequence[Autoscaler], _objects: Objects, around: Surroundings) -> Iterator[Finding]:
    for autoscaler in autoscalers:
        for resource, each in _gpus_per_pod(_containers(_target_state(autoscaler, around))).items():
            needed, there = each * autoscaler.max_replicas, around.gpus.get(resource, 0)
            if needed > there:
                yield Finding(
                    WORKLOAD,
                    seen=f"autoscaler {autoscaler}: max_replicas {autoscaler.max_replicas} needs {needed} {resource}, "
                    f"the nodes offer {there}",
                    fix="lower max_replicas, or add nodes: the pods over it stay Pending",
                    severity="warning",
                )


CHECKS: tuple[Check, ...] = (
    _one_name_each,
    _one_query_each,
    _foreign_hpa,
    _second_hpa,
    _target_exists,
    _prometheus_answers,
    _queries_parse,
    _rules_served,
    _metrics_api_is_adapters,
    _readiness_probe,
    _gpu_limit,
    _enough_gpus,
)


def _target_state(autoscaler: Autoscaler, around: Surroundings) -> TargetState:
    return around.targets[(autoscaler.namespace, autoscaler.name)]


def _containers(state: TargetState) -> list[Manifest]:
    """The containers of the target's pod template; none if it keeps the template elsewhere."""
    spec: dict[str, Any] = (state.manifest or {}).get("spec", {})
    template = spec.get("template") or spec.get("leaderWorkerTemplate", {}).get("workerTemplate") or {}
    return template.get("spec", {}).get("containers", [])


def _gpus_per_pod(containers: Sequence[Manifest]) -> dict[str, int]:
    """Limits of NVIDIA's resources, whole GPUs, shared ones and MIG instances, by resource."""
    limits: Counter[str] = Counter()
    for container in containers:
        for resource, amount in container.get("resources", {}).get("limits", {}).items():
            if resource.startswith("nvidia.com/"):
                limits[resource] += int(amount)
    return dict(limits)
