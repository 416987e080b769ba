"""The replica arithmetic against the HPA controller itself: its first decision on each of many workloads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from control_plane import eventually
from kubernetes import client, watch
from metric_chain import MetricChain
from replica_cases import Case, Metric, Pod, cases, is_offered

CASES = cases()
NAMESPACE = "controller-agrees"
METRIC = "agreement"
SERVED_S = 120
DECIDED_S = 120
# What the controller says of a metric without a value, as against one that it could not ask for.
NO_VALUE = (
    "no metrics returned from custom metrics API",
    "did not receive metrics for targeted pods",
    "no pods returned by selector",
    "could not find the metric",
)


class Decision(NamedTuple):
    seen: int
    wanted: int


@pytest.fixture(scope="module")
def decisions(kube: client.ApiClient, chain: MetricChain) -> Iterator[dict[str, Decision]]:
    workloads = CaseWorkloads(kube)
    try:
        workloads.create()
        lines = list(series())
        chain.exporter.counters = lambda: stamped(lines)
        values = sum(is_offered(pod.value) for case in CASES.values() for pod in case.pods)
        eventually(lambda: workloads.served() == values, f"{values} values are served", SERVED_S)
        yield workloads.decisions()
    finally:
        chain.exporter.counters = str
        workloads.remove()


@pytest.mark.parametrize("name", CASES)
def test_the_controller_agrees(decisions: dict[str, Decision], name: str) -> None:
    case = CASES[name]
    assert decisions[name] == Decision(seen=case.spec, wanted=case.expected), case


def series() -> Iterator[str]:
    for name, case in CASES.items():
        values = {pod_name(name, number): pod.value for number, pod in enumerate(case.pods)}
        values |= {object_name(name, number): metric.value for number, metric in enumerate(case.metrics)}
        for pod, value in values.items():
            if value is not None:
                yield f'namespace_pod:{METRIC}:avg{{namespace="{NAMESPACE}",pod="{pod}"}} {value!r}'


def stamped(lines: list[str]) -> str:
    """With the time of now, so that no scrape which is lost ends them: a first decision may be on no value then."""
    now_ms = int(time.time() * 1000)
    return "".join(f"{line} {now_ms}\n" for line in lines)


def pod_name(case: str, number: int) -> str:
    return f"{case}-pod-{number}"


def object_name(case: str, number: int) -> str:
    """The objects of Object metrics are pods by name only: the adapter knows no other kind, and asks for no object."""
    return f"{case}-object-{number}"


class CaseWorkloads:
    """All cases in one namespace: many requests, so several at a time."""

    def __init__(self, kube: client.ApiClient) -> None:
        self._core = client.CoreV1Api(kube)
        self._apps = client.AppsV1Api(kube)
        self._autoscaling = client.AutoscalingV2Api(kube)
        self._custom = client.CustomObjectsApi(kube)

    def create(self) -> None:
        self._core.create_namespace({"metadata": {"name": NAMESPACE}})
        pods = [(name, number, pod) for name, case in CASES.items() for number, pod in enumerate(case.pods)]
        in_parallel(self._deployment, CASES.items())
        in_parallel(self._pod, pods)

    def served(self) -> int:
        """How many pods have a value at the adapter."""
        api = ("custom.metrics.k8s.io", "v1beta1", NAMESPACE, "pods/*")
        try:
            return len(self._custom.get_namespaced_custom_object(*api, METRIC)["items"])
        except client.ApiException:
            return 0

    def decisions(self) -> dict[str, Decision]:
        """The first one on each case. The watch misses none, however soon the next one follows."""
        autoscalers = self._autoscaling.list_namespaced_horizontal_pod_autoscaler
        start = autoscalers(NAMESPACE).metadata.resource_version
        in_parallel(self._autoscaler, CASES.items())
        found: dict[str, Decision] = {}
        follower = watch.Watch()
        for event in follower.stream(autoscalers, NAMESPACE, resource_version=start, timeout_seconds=DECIDED_S):
            hpa = event["object"]
            decision = decided(hpa)
            if decision and hpa.metadata.name not in found:
                found[hpa.metadata.name] = decision
            if len(found) == len(CASES):
                follower.stop()
        assert set(found) == set(CASES), f"not decided within {DECIDED_S} s: {sorted(set(CASES) - set(found))}"
        return found

    def remove(self) -> None:
        self._autoscaling.delete_collection_namespaced_horizontal_pod_autoscaler(NAMESPACE)
        self._core.delete_namespace(NAMESPACE)

    def _deployment(self, name: str, case: Case) -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "service"}]}}
        spec = {"replicas": case.spec, "selector": {"matchLabels": labels}, "template": template}
        self._apps.create_namespaced_deployment(NAMESPACE, {"metadata": {"name": name}, "spec": spec})
        if case.status:
            self._apps.patch_namespaced_deployment_status(name, NAMESPACE, {"status": {"replicas": case.status}})

    def _pod(self, case: str, number: int, pod: Pod) -> None:
        name, state = pod_name(case, number), pod.state
        # On a node whose kubelet never confirms, a deleted pod remains terminating.
        spec = {"containers": [{"name": "main", "image": "service"}], "nodeName": "gone"}
        self._core.create_namespaced_pod(NAMESPACE, {"metadata": {"name": name, "labels": {"app": case}}, "spec": spec})
        if state.phase != "Pending":
            conditions = [{"type": "Ready", "status": str(state.ready)}]
            status = {"status": {"phase": state.phase, "conditions": conditions}}
            self._core.patch_namespaced_pod_status(name, NAMESPACE, status)
        if state.terminating:
            self._core.delete_namespaced_pod(name, NAMESPACE)

    def _autoscaler(self, name: str, case: Case) -> None:
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 1000,
            "metrics": [metric_spec(metric, object_name(name, number)) for number, metric in enumerate(case.metrics)],
            "behavior": behavior(case),
        }
        hpa = {"metadata": {"name": name}, "spec": spec}
        self._autoscaling.create_namespaced_horizontal_pod_autoscaler(NAMESPACE, hpa)


def in_parallel(call: Callable[..., None], arguments: Iterable[tuple[Any, ...]]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda values: call(*values), arguments))


def metric_spec(metric: Metric, described: str) -> dict[str, Any]:
    average = {"type": "AverageValue", "averageValue": str(metric.target)}
    if metric.form == "pods":
        return {"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": average}}
    target = average if metric.form == "total" else {"type": "Value", "value": str(metric.target)}
    reference = {"apiVersion": "v1", "kind": "Pod", "name": described}
    return {"type": "Object", "object": {"metric": {"name": METRIC}, "describedObject": reference, "target": target}}


def behavior(case: Case) -> dict[str, Any]:
    """No limit to what is asked for in one second."""
    unlimited = {
        "scaleUp": {"policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}]},
        "scaleDown": {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}]},
    }
    tolerances = {"scaleUp": case.tolerance.up, "scaleDown": case.tolerance.down} if case.tolerance else {}
    return {
        way: {**rules, "stabilizationWindowSeconds": 0, **({"tolerance": str(tolerances[way])} if tolerances else {})}
        for way, rules in unlimited.items()
    }


def decided(hpa: client.V2HorizontalPodAutoscaler) -> Decision | None:
    """None while the controller has not looked, or could not ask for the metrics."""
    active = next((condition for condition in hpa.status.conditions or () if condition.type == "ScalingActive"), None)
    seen = hpa.status.current_replicas
    if active and active.status == "True":
        return Decision(seen, hpa.status.desired_replicas)
    if active and any(text in active.message for text in NO_VALUE):
        return Decision(seen, seen)
    return None
