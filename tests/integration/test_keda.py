"""The HPA that KEDA makes of a ScaledObject beside the adapter's: the same decisions, standing still and over time.

Its two External metrics are served by the adapter here, in KEDA's place.

Pods are objects only. A stand-in for kubelets makes them ready and removes them, and their GPUs share the load.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
import test_controller_agrees as agrees
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.keda_rules import Decisions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    Manifest,
    RuleOptions,
    horizontal_pod_autoscaler,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import DEFAULT_TOLERANCE
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from control_plane import eventually, running
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException
from metric_chain import have_namespace
from owned_chain import OwnedChain
from prometheus_rules import GROUP, PLURAL, VERSION, serve_kind
from replica_cases import Case, Pod

# Minutes for each pair of periods, so `make test` leaves them to a target of their own.
OVER_TIME = bool(os.environ.get("KEDA"))

NAMESPACE = "keda-agrees"
CASES = {name: case for name, case in agrees.CASES.items() if [metric.form for metric in case.metrics] == ["pods"]}
READY_S, DECIDED_S = 120, 240
NO_VALUE = ("no metrics returned", "could not find the metric")


@contextmanager
def chained(
    work: Path, *controllers: str, sync_s: int = 1, states_s: int = 1
) -> Iterator[tuple[client.ApiClient, OwnedChain]]:
    """A control plane with both backends."""
    with running(work, *controllers, sync_s=sync_s) as (plane, kube):
        chain = DecisionChain(plane, kube, states_s=states_s)
        serve_kind(kube)
        chain.start()
        try:
            with chain.api("external.metrics.k8s.io"):
                yield kube, chain
        finally:
            chain.stop()


class DecisionChain(OwnedChain):
    """Its adapter can serve what KEDA asks Prometheus for."""

    def external_rules(self) -> list[dict[str, Any]]:
        return [
            *super().external_rules(),
            {
                "seriesQuery": '{__name__=~"namespace_workload:.+_decision:(wanted|stays)"}',
                "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
                "name": {"matches": "namespace_workload:(.+)_decision:(.+)", "as": "${1}_${2}"},
                "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>})",
            },
        ]


def made_for(chain: OwnedChain, *autoscalers: Autoscaler) -> list[Manifest]:
    """The rules, then the ScaledObjects."""
    rules = RuleOptions(evaluation_interval_s=1, prometheus_url=f"http://127.0.0.1:{chain.port}")
    return manifests(autoscalers, rules)


def create(kube: client.ApiClient, made: Manifest) -> None:
    namespace = made["metadata"]["namespace"]
    if made["kind"] == "ScaledObject":
        hpas = client.AutoscalingV2Api(kube)
        hpas.create_namespaced_horizontal_pod_autoscaler(namespace, as_keda_makes_it(made))
    else:
        client.CustomObjectsApi(kube).create_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, made)


def as_keda_makes_it(wanted: Manifest) -> Manifest:
    """The HPA of a ScaledObject (keda controllers/keda/hpa.go), with metrics by the names that the adapter serves."""
    spec, metadata = wanted["spec"], wanted["metadata"]
    config, fields = (
        spec["advanced"]["horizontalPodAutoscalerConfig"],
        {"AverageValue": "averageValue", "Value": "value"},
    )
    selector = {"matchLabels": {"workload": spec["scaleTargetRef"]["name"]}}
    metrics = [
        {
            "type": "External",
            "external": {
                "metric": {"name": trigger["name"].replace("-", "_"), "selector": selector},
                "target": {"type": trigger["metricType"], fields[trigger["metricType"]]: "1"},
            },
        }
        for trigger in spec["triggers"]
    ]
    return {
        "metadata": {**metadata, "name": config["name"]},
        "spec": {
            "scaleTargetRef": spec["scaleTargetRef"],
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": metrics,
            "behavior": config["behavior"],
        },
    }


class OwnedCases:
    """The known states, in which pods belong to their Deployment by a ReplicaSet, and the HPAs are KEDA's."""

    def __init__(self, kube: client.ApiClient, chain: OwnedChain) -> None:
        self._kube, self._chain = kube, chain
        self._core, self._apps = client.CoreV1Api(kube), client.AppsV1Api(kube)
        self._hpas = client.AutoscalingV2Api(kube)
        self._owners: dict[str, dict[str, Any]] = {}

    def create(self) -> None:
        self._core.create_namespace({"metadata": {"name": NAMESPACE}})
        pods = [(name, number, pod) for name, case in CASES.items() for number, pod in enumerate(case.pods)]
        agrees.in_parallel(self._deployment, CASES.items())
        agrees.in_parallel(self._pod, pods)

    def decisions(self) -> dict[str, agrees.Decision]:
        """The first one on each case."""
        made = made_for(self._chain, *(autoscaler_of(*case) for case in CASES.items()))
        # The first rule is the profile's, whose series are scraped here.
        for rule in [rule for rule in made if rule["kind"] == "PrometheusRule"][1:]:
            create(self._kube, rule)
        with_value = sum(has_value(case) for case in CASES.values())
        decided = f"count({Decisions('gpu').wanted}) == {with_value}"
        eventually(lambda: '"value"' in self._chain.answer(decided), f"{with_value} decisions are recorded", READY_S)
        listed = self._hpas.list_namespaced_horizontal_pod_autoscaler
        start = listed(NAMESPACE).metadata.resource_version
        agrees.in_parallel(
            lambda wanted: create(self._kube, wanted),
            [(wanted,) for wanted in made if wanted["kind"] == "ScaledObject"],
        )
        found: dict[str, agrees.Decision] = {}
        follower = watch.Watch()
        for event in follower.stream(listed, NAMESPACE, resource_version=start, timeout_seconds=DECIDED_S):
            name, decision = event["object"].metadata.name, decision_of(event["object"])
            if decision and name not in found:
                found[name] = decision
            if len(found) == len(CASES):
                follower.stop()
        assert set(found) == set(CASES), f"not decided within {DECIDED_S} s: {sorted(set(CASES) - set(found))}"
        return found

    def _deployment(self, name: str, case: Case) -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "service"}]}}
        spec = {"replicas": case.spec, "selector": {"matchLabels": labels}, "template": template}
        made = self._apps.create_namespaced_deployment(NAMESPACE, {"metadata": {"name": name}, "spec": spec})
        if case.status:
            self._apps.patch_namespaced_deployment_status(name, NAMESPACE, {"status": {"replicas": case.status}})
        owner = reference("Deployment", made)
        replica_set = {"metadata": {"name": f"{name}-rs", "ownerReferences": [owner]}, "spec": spec}
        self._owners[name] = reference("ReplicaSet", self._apps.create_namespaced_replica_set(NAMESPACE, replica_set))

    def _pod(self, case: str, number: int, pod: Pod) -> None:
        name, state = agrees.pod_name(case, number), pod.state
        metadata = {"name": name, "labels": {"app": case}, "ownerReferences": [self._owners[case]]}
        # On a node whose kubelet never confirms, a deleted pod remains terminating.
        spec = {"containers": [{"name": "main", "image": "service"}], "nodeName": "gone"}
        self._core.create_namespaced_pod(NAMESPACE, {"metadata": metadata, "spec": spec})
        if state.phase != "Pending":
            conditions = [{"type": "Ready", "status": str(state.ready)}]
            status = {"status": {"phase": state.phase, "conditions": conditions}}
            self._core.patch_namespaced_pod_status(name, NAMESPACE, status)
        if state.terminating:
            self._core.delete_namespaced_pod(name, NAMESPACE)


def reference(kind: str, made: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1", "kind": kind, "name": made.metadata.name, "uid": made.metadata.uid, "controller": True,
    }  # fmt: skip


def autoscaler_of(name: str, case: Case) -> Autoscaler:
    """No limit to what is asked for in one second."""
    tolerance = case.tolerance or DEFAULT_TOLERANCE
    at_once = {"stabilization_window_seconds": 0, "select_policy": "Max"}
    return Autoscaler.from_params(
        {
            "namespace": NAMESPACE,
            "target": {"name": name},
            "target_value": case.metrics[0].target,
            "max_replicas": 1000,
            "scale_up": {
                **at_once,
                "tolerance": tolerance.up,
                "policies": [{"type": "Pods", "value": 1000, "period_seconds": 1}],
            },
            "scale_down": {
                **at_once,
                "tolerance": tolerance.down,
                "policies": [{"type": "Percent", "value": 100, "period_seconds": 1}],
            },
        },
        backend="keda",
    )


def has_value(case: Case) -> bool:
    return any(pod.state.counts == "running" and agrees.is_offered(pod.value) for pod in case.pods)


def decision_of(hpa: client.V2HorizontalPodAutoscaler) -> agrees.Decision | None:
    """None while the controller has not looked, or could not ask for the metrics."""
    active = next((condition for condition in hpa.status.conditions or () if condition.type == "ScalingActive"), None)
    seen = hpa.status.current_replicas
    if active and active.status == "True":
        return agrees.Decision(seen, hpa.status.desired_replicas)
    if active and any(text in active.message for text in NO_VALUE) and not has_value(CASES[hpa.metadata.name]):
        return agrees.Decision(seen, seen)
    return None


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, agrees.Decision]]:
    lines = [
        f'namespace_pod:gpu:avg{{namespace="{NAMESPACE}",pod="{agrees.pod_name(name, number)}"}} {pod.value!r}'
        for name, case in CASES.items()
        for number, pod in enumerate(case.pods)
        if pod.value is not None
    ]
    with chained(tmp_path_factory.mktemp("standing")) as (kube, chain):
        workloads = OwnedCases(kube, chain)
        workloads.create()
        chain.exporter.counters = lambda: agrees.stamped(lines)
        yield workloads.decisions()


@pytest.mark.parametrize("name", CASES)
def test_keda_s_hpa_decides_like_the_adapter_s(decisions: dict[str, agrees.Decision], name: str) -> None:
    """test_controller_agrees.py has the adapter's decisions on the same states."""
    case = CASES[name]
    assert decisions[name] == agrees.Decision(seen=case.spec, wanted=case.expected), case


# Seconds from the begin, and what happens then: a load in percent of one GPU, or a rolling update.
STEPS: tuple[tuple[float, float | str], ...] = (
    (0, 110),
    (20, 290),
    (80, "rollout"),
    (120, 235),
    (150, 110),
    (200, 290),
    (240, 110),
    (310, "end"),
)
WAYS = ("by-adapter", "by-keda")
# The same for both ways: how long a pod takes to start, by the order of creation.
STARTS_S = [Random(49).uniform(0, 20) for _ in range(200)]
ENDS_S = 3


class Nodes:
    """Scheduler, kubelets and GPUs of both workloads."""

    def __init__(self, kube: client.ApiClient, chain: OwnedChain) -> None:
        self.load = 0.0
        self._core, self._exporter = client.CoreV1Api(kube), chain.exporter
        self._starts: dict[str, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stopped.wait(0.25):
            lines = [line for namespace in WAYS for line in self._step(namespace)]
            self._exporter.text = "".join(lines)

    def _step(self, namespace: str) -> Iterator[str]:
        now, ready = datetime.now(UTC), []
        for pod in self._core.list_namespaced_pod(namespace).items:
            name = pod.metadata.name
            if pod.metadata.deletion_timestamp:
                grace_s = pod.metadata.deletion_grace_period_seconds or 0
                if (pod.metadata.deletion_timestamp - now).total_seconds() <= grace_s - ENDS_S:
                    with suppress(ApiException):
                        self._core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
                continue
            key = f"{namespace}/{name}"
            if key not in self._starts:
                number = sum(known.startswith(f"{namespace}/") for known in self._starts)
                self._starts[key] = STARTS_S[number % len(STARTS_S)]
            age_s = (now - pod.metadata.creation_timestamp).total_seconds()
            if pod.status.phase == "Pending" and age_s >= self._starts[key]:
                with suppress(ApiException):
                    self._start(name, namespace, now.isoformat())
            elif pod.status.phase == "Running":
                ready.append(name)
        for name in ready:
            percent = min(100.0, self.load / len(ready))
            labels = f'UUID="GPU-{namespace}-{name}",namespace="{namespace}",pod="{name}",container="main"'
            yield f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {percent}\n"

    def _start(self, name: str, namespace: str, now: str) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        status = {"phase": "Running", "startTime": now, "conditions": [ready]}
        self._core.patch_namespaced_pod_status(name, namespace, {"status": status})


def followed(namespace: str) -> Autoscaler:
    """As by default, but in a run of minutes: windows and periods are shorter."""
    return Autoscaler.from_params(
        {
            "namespace": namespace,
            "target": {"name": "chat"},
            "max_replicas": 12,
            "scale_up": {"policies": [{"type": kind, "value": value, "period_seconds": 15} for kind, value in UP]},
            "scale_down": {
                "stabilization_window_seconds": 20,
                "policies": [{"type": kind, "value": value, "period_seconds": 10} for kind, value in DOWN],
            },
        }
    )


UP, DOWN = (("Pods", 2), ("Percent", 50)), (("Pods", 1), ("Percent", 25))


def deploy(kube: client.ApiClient, namespace: str) -> None:
    have_namespace(client.CoreV1Api(kube), namespace)
    container = {"name": "main", "image": "service:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    labels = {"app": "chat"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeName": "gpu1"}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    client.AppsV1Api(kube).create_namespaced_deployment(namespace, {"metadata": {"name": "chat"}, "spec": spec})


def replicas(kube: client.ApiClient) -> tuple[int, ...]:
    apps = client.AppsV1Api(kube)
    return tuple(apps.read_namespaced_deployment("chat", namespace).spec.replicas for namespace in WAYS)


def turns(counts: Sequence[int]) -> int:
    """Changes of direction."""
    ways = [after > before for before, after in pairwise(counts) if after != before]
    return sum(one != other for one, other in pairwise(ways))


@pytest.fixture
def both(kube_and_chain: tuple[client.ApiClient, OwnedChain]) -> Iterator[tuple[client.ApiClient, Nodes]]:
    """One workload that the adapter's HPA scales, one that KEDA's does, under the same load."""
    kube, chain = kube_and_chain
    for namespace in WAYS:
        deploy(kube, namespace)
    nodes = Nodes(kube, chain)
    nodes.load = float(STEPS[0][1])
    try:
        by_adapter, by_keda = map(followed, WAYS)
        *rules, wanted = made_for(chain, replace(by_keda, backend="keda"))
        for rule in rules:
            create(kube, rule)
        stays = f'{Decisions("gpu").stays}{{namespace="{WAYS[1]}"}} == 1'
        eventually(lambda: '"value"' in chain.answer(stays), "the load is steady", READY_S)
        hpas = client.AutoscalingV2Api(kube)
        hpas.create_namespaced_horizontal_pod_autoscaler(WAYS[0], horizontal_pod_autoscaler(by_adapter))
        create(kube, wanted)

        def all_scale() -> bool:
            found = [hpa for way in WAYS for hpa in hpas.list_namespaced_horizontal_pod_autoscaler(way).items]
            conditions = [row for hpa in found for row in (hpa.status.conditions if hpa.status else None) or ()]
            return sum((row.type, row.status) == ("ScalingActive", "True") for row in conditions) == len(WAYS)

        eventually(all_scale, "both HPAs have a value", READY_S)
        yield kube, nodes
    finally:
        nodes.stop()


@pytest.fixture(params=[(1, 1), (5, 2), (15, 2), (5, 30)], ids=lambda row: f"{row[0]}s-states-of-{row[1]}s")
def kube_and_chain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[client.ApiClient, OwnedChain]]:
    sync_s, states_s = request.param
    controllers = ("deployment-controller", "replicaset-controller", "garbage-collector-controller")
    with chained(tmp_path, *controllers, sync_s=sync_s, states_s=states_s) as made:
        yield made


@pytest.mark.skipif(not OVER_TIME, reason="`make test-keda` takes minutes")
def test_over_time_keda_turns_as_often_as_the_adapter(both: tuple[client.ApiClient, Nodes]) -> None:
    kube, nodes = both
    seen: list[tuple[int, ...]] = [replicas(kube)]
    began, steps = time.monotonic(), list(STEPS)
    while steps:
        passed_s = time.monotonic() - began
        if passed_s >= steps[0][0]:
            _at_s, event = steps.pop(0)
            print(f"{passed_s:6.1f} {event}", flush=True)
            if isinstance(event, float | int):
                nodes.load = float(event)
            elif event == "rollout":
                renew(kube)
        counts = replicas(kube)
        if counts != seen[-1]:
            seen.append(counts)
            print(f"{passed_s:6.1f} {dict(zip(WAYS, counts, strict=True))}", flush=True)
        time.sleep(0.2)
    by_adapter, by_keda = zip(*seen, strict=True)
    print(f"turns: adapter {turns(by_adapter)}, keda {turns(by_keda)}; peaks {max(by_adapter)}, {max(by_keda)}")
    assert turns(by_keda) == turns(by_adapter)
    assert by_keda[-1] == by_adapter[-1]
    assert max(by_keda) == max(by_adapter)


def renew(kube: client.ApiClient) -> None:
    stamp = {"metadata": {"annotations": {"renewed": str(time.time())}}}
    for namespace in WAYS:
        client.AppsV1Api(kube).patch_namespaced_deployment("chat", namespace, {"spec": {"template": stamp}})
