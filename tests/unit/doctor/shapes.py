"""Short forms of objects in written clusters: a mapping whose one key is `$pod` stands for what `pod` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

CREATED = "2027-01-14T08:00:00Z"
NOW = 1_800_000_000


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Object:
    more = {name: text for name, text in {"reason": reason, "message": message}.items() if text}
    return {"type": kind, "status": status, "lastTransitionTime": CREATED, **more}


def resource(name: str, namespace: str = "", meta: Object | None = None, **rest: Any) -> Object:
    """Any object. `meta`: what its metadata has besides."""
    place = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, **place, "creationTimestamp": CREATED, **(meta or {})}, **rest}


def node(name: str, labels: Object, gpus: int = 0, spec: Object | None = None) -> Object:
    amount = {"cpu": "32", "memory": "256Gi", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    ready = condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    meta = {"labels": {"kubernetes.io/hostname": name, **labels}}
    status = {"capacity": dict(amount), "allocatable": dict(amount), "conditions": [ready]}
    return resource(name, meta=meta, spec=spec or {}, status=status)


def pod(
    name: str, namespace: str, labels: Object, node: str, ip: str, containers: list[Object], owner: str = ""
) -> Object:
    """One that is ready. `owner`: kind and name of what made it."""
    kind, _, of = owner.partition("/")
    owners = {"ownerReferences": [{"kind": kind, "name": of, "controller": True}]} if owner else {}
    running = {"ready": True, "restartCount": 0, "state": {"running": {"startedAt": CREATED}}}
    status = {
        "phase": "Running",
        "podIP": ip,
        "conditions": [condition("PodScheduled"), condition("Ready")],
        "containerStatuses": [{"name": container["name"], **running} for container in containers],
    }
    spec = {"nodeName": node, "containers": containers}
    return resource(name, namespace, {"labels": labels, **owners}, spec=spec, status=status)


def workload(name: str, namespace: str, labels: Object, pods: Object, **spec: Any) -> Object:
    """A DaemonSet or a Deployment. `pods`: the spec of its pods."""
    template = {"metadata": {"labels": labels}, "spec": pods}
    made = {"selector": {"matchLabels": labels}, "template": template, **spec}
    return resource(name, namespace, {"labels": labels}, spec=made)


def service(name: str, namespace: str, labels: Object, ports: list[Object], selector: Object | None = None) -> Object:
    spec = {"ports": ports, "selector": labels if selector is None else selector}
    return resource(name, namespace, {"labels": labels}, spec=spec)


def hpa(minimum: int, maximum: int, metrics: list[Object], replicas: int = 2, **meta: Any) -> Object:
    """That of the Deployment ml/chat, which works."""
    conditions = [
        condition("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
        condition(
            "ScalingActive", "True", "ValidMetricFound", "the HPA was able to successfully calculate a replica count"
        ),
        condition("ScalingLimited", "False", "DesiredWithinRange", "the desired count is within the acceptable range"),
    ]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    spec = {"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": maximum, "metrics": metrics}
    status = {"currentReplicas": replicas, "desiredReplicas": replicas, "conditions": conditions}
    return resource("chat", "ml", spec=spec, status=status) | meta


def no_metric(message: str, reason: str = "FailedGetPodsMetric") -> Object:
    """The status of an HPA whose metric has no value."""
    scales = condition("AbleToScale", "True", "SucceededGetScale")
    return {"conditions": [scales, condition("ScalingActive", "False", reason, message)]}


def pods_metric(name: str, value: str) -> Object:
    target = {"type": "AverageValue", "averageValue": value}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def api_service(group: str, version: str, service: str, labels: Object | None = None) -> Object:
    namespace, _, name = service.partition("/")
    spec = {"group": group, "version": version, "service": {"namespace": namespace, "name": name, "port": 443}}
    status = {"conditions": [condition("Available", "True", "Passed", "all checks passed")]}
    meta = {"labels": labels} if labels else {}
    return resource(f"{version}.{group}", meta=meta, spec=spec, status=status)


def values(of: Mapping[str, str], kind: str = "Pod", version: str = "v1beta1") -> Object:
    """What the custom metrics API says of objects in ml."""
    items = [
        {
            "describedObject": {"kind": kind, "namespace": "ml", "name": name},
            "timestamp": "2027-01-15T07:59:58Z",
            "value": value,
        }
        for name, value in of.items()
    ]
    return {"kind": "MetricValueList", "apiVersion": f"custom.metrics.k8s.io/{version}", "items": items}


def failure(code: int, reason: str, message: str) -> Object:
    return {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}


def series(rows: list[Any]) -> list[Object]:
    """Labels and value of each."""
    return [{"metric": labels, "value": [NOW, value]} for labels, value in rows]


def vector(rows: list[Any]) -> Object:
    return {"status": "success", "data": {"resultType": "vector", "result": series(rows)}}


def changed(rows: list[Any]) -> Object:
    """Another result for an answer that is a vector."""
    return {"data": {"result": series(rows)}}


def namespaces(names: list[str]) -> Object:
    items = [resource(name, meta={"labels": {"kubernetes.io/metadata.name": name}}) for name in names]
    return {"kind": "NamespaceList", "items": items}


def shared(name: str) -> Object:
    """What several clusters have, of shared.yml."""
    return expanded(SHARED[name])


SHARED: Object = yaml.safe_load(Path(__file__).with_name("answers").joinpath("shared.yml").read_text())
SHAPES: dict[str, Callable[..., Any]] = {
    f"${shape.__name__}": shape
    for shape in (
        *(resource, node, pod, workload, service, hpa, no_metric, pods_metric, api_service),
        *(values, failure, vector, changed, namespaces, condition, shared),
    )
}


def expanded(short: Any) -> Any:
    """What a file means, with all its shapes made."""
    if isinstance(short, list):
        return [expanded(part) for part in short]
    if not isinstance(short, dict):
        return short
    inner = {name: expanded(part) for name, part in short.items()}
    [name, *others] = inner or [""]
    if others or name not in SHAPES:
        return inner
    given = inner[name]
    if isinstance(given, dict) and name != "$values":
        return SHAPES[name](**given)
    return SHAPES[name](*given) if name == "$condition" else SHAPES[name](given)
