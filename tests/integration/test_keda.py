"""KEDA itself beside prometheus-adapter: the same decisions, standing still and over time.

Pods are objects only. What plays kubelets makes them ready and removes them, and their GPUs share the load.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import uniform
from statistics import fmean
from typing import Any, NamedTuple

import pytest
import test_controller_agrees as agrees
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.keda_rules import Decisions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import DEFAULT_TOLERANCE
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from control_plane import eventually
from keda import Rig, beside_the_adapter, needs_keda, takes_minutes
from kubernetes import client, watch
from replica_cases import Case, Pod
from shared_load import (
    BY_ADAPTER,
    BY_KEDA,
    CONTROLLERS,
    READY_S,
    WAYS,
    Counts,
    Nodes,
    deploy,
    followed,
    limit_pods,
    renew,
    replicas_of,
    scale_by,
    turns,
    unlimit_pods,
)

pytestmark = needs_keda

NAMESPACE = "keda-agrees"
CASES = {name: case for name, case in agrees.CASES.items() if [metric.form for metric in case.metrics] == ["pods"]}
DECIDED_S = 240
# What the HPA shows of a query without a value: KEDA keeps the cause for its own log.
NO_VALUE = "encountered error"


class OwnedCases:
    """The known states, in which pods belong to their Deployment by a ReplicaSet, and the HPAs are KEDA's."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._core, self._apps = client.CoreV1Api(rig.kube), client.AppsV1Api(rig.kube)
        self._hpas = client.AutoscalingV2Api(rig.kube)
        self._owners: dict[str, dict[str, Any]] = {}

    def create(self) -> None:
        self._core.create_namespace({"metadata": {"name": NAMESPACE}})
        pods = [(name, number, pod) for name, case in CASES.items() for number, pod in enumerate(case.pods)]
        agrees.in_parallel(self._deployment, CASES.items())
        agrees.in_parallel(self._pod, pods)

    def decisions(self) -> dict[str, agrees.Decision]:
        """The first one on each case."""
        made = self._rig.made_for(*(autoscaler_of(*case) for case in CASES.items()))
        # The first rule is the profile's, whose series are scraped here.
        for rule in [rule for rule in made if rule["kind"] == "PrometheusRule"][1:]:
            self._rig.create(rule)
        with_value = sum(has_value(case) for case in CASES.values())
        decided = f"count({Decisions('gpu').desired_replicas}) == {with_value}"
        eventually(
            lambda: '"value"' in self._rig.chain.answer(decided), f"{with_value} decisions are recorded", READY_S
        )
        listed = self._hpas.list_namespaced_horizontal_pod_autoscaler
        start = listed(NAMESPACE).metadata.resource_version
        agrees.in_parallel(self._rig.create, [(wanted,) for wanted in made if wanted["kind"] == "ScaledObject"])
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
    if active and NO_VALUE in active.message and not has_value(CASES[hpa.metadata.name]):
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
    with beside_the_adapter(tmp_path_factory.mktemp("standing")) as rig:
        workloads = OwnedCases(rig)
        workloads.create()
        rig.chain.exporter.counters = lambda: agrees.stamped(lines)
        yield workloads.decisions()


@pytest.mark.parametrize("name", CASES)
def test_keda_s_hpa_decides_like_the_adapter_s(decisions: dict[str, agrees.Decision], name: str) -> None:
    """test_controller_agrees.py has the adapter's decisions on the same states."""
    case = CASES[name]
    assert decisions[name] == agrees.Decision(seen=case.spec, wanted=case.expected), case


class Run(NamedTuple):
    """What the two autoscalers meet for six minutes.

    sync_s:   between two looks at each HPA.
    states_s: between two scrapes of kube-state-metrics.
    starts_s: the longest start of a pod.
    """

    sync_s: int
    states_s: int
    starts_s: int = 20

    def __str__(self) -> str:
        return f"{self.sync_s}s-states-of-{self.states_s}s-starts-of-{self.starts_s}s"


RUNS = (Run(1, 1), Run(5, 2), Run(15, 2), Run(5, 30), Run(5, 2, starts_s=90))
# Of four pods, which five replicas do not get.
QUOTA = 4
# Seconds from the begin, and what happens then: a load in percent of one GPU, or something else.
STEPS: tuple[tuple[float, float | str], ...] = (
    (0, 110),
    (20, 290),
    (80, "rollout"),
    (120, 235),
    (150, 110),
    (210, "quota"),
    (215, 290),
    (260, "no quota"),
    (290, 110),
    (400, "end"),
)


@pytest.fixture(params=RUNS, ids=str)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Rig, Nodes]]:
    """One workload that the adapter's HPA scales, one that KEDA's does, under the same load."""
    run: Run = request.param
    controllers = (*CONTROLLERS, "resourcequota-controller")
    with beside_the_adapter(tmp_path, *controllers, sync_s=run.sync_s, states_s=run.states_s) as rig:
        for namespace in WAYS:
            deploy(rig.kube, namespace)
        nodes = Nodes(rig.kube, rig.chain.exporter, starts_s=run.starts_s)
        nodes.load = float(STEPS[0][1])
        try:
            scale_by(rig, followed(BY_ADAPTER, "adapter"), followed(BY_KEDA, "keda"))
            yield rig, nodes
        finally:
            nodes.stop()


@takes_minutes
def test_over_time_keda_turns_as_often_as_the_adapter(both: tuple[Rig, Nodes]) -> None:
    rig, nodes = both
    seen = [counts(rig)]
    began, steps = time.monotonic(), list(STEPS)
    while steps:
        passed_s = time.monotonic() - began
        if passed_s >= steps[0][0]:
            _at_s, event = steps.pop(0)
            print(f"{passed_s:6.1f} {event}", flush=True)
            take(rig, nodes, event)
        if counts(rig) != seen[-1]:
            seen.append(counts(rig))
            print(f"{passed_s:6.1f} {dict(zip(WAYS, seen[-1], strict=True))}", flush=True)
        time.sleep(0.2)
    by_adapter, by_keda = zip(*seen, strict=True)
    print(f"turns: adapter {turns(by_adapter)}, keda {turns(by_keda)}; peaks {max(by_adapter)}, {max(by_keda)}")
    assert turns(by_keda) == turns(by_adapter)
    assert by_keda[-1] == by_adapter[-1]
    # Each looks at another moment, and pods that have just started are not at the load of the others yet.
    assert abs(max(by_keda) - max(by_adapter)) <= 1


def counts(rig: Rig) -> tuple[int, ...]:
    return tuple(replicas_of(rig.kube, namespace) for namespace in WAYS)


def take(rig: Rig, nodes: Nodes, event: float | str) -> None:
    match event:
        case float() | int():
            nodes.load = float(event)
        case "rollout":
            renew(rig.kube)
        case "quota":
            limit_pods(rig.kube, QUOTA)
        case "no quota":
            unlimit_pods(rig.kube)


# Load steps from two replicas to five, at another moment of the periods each time.
ROUNDS = 20
LOW, HIGH = 110, 290
STEP_S = 120
# Seconds of the mean: a decision is recorded an evaluation after the values that it is made of.
LATER_S = 1.5
DOWN_AT_ONCE = {
    "stabilization_window_seconds": 0,
    "policies": [{"type": "Pods", "value": 10, "period_seconds": 5}],
}


@takes_minutes
@pytest.mark.timeout(3600)
def test_a_load_step_is_decided_an_evaluation_later(tmp_path: Path) -> None:
    """Both see the same step. Without a limit to one scale-up, so that the peak is what they ask for."""
    up_at_once = {"policies": [{"type": "Pods", "value": 10, "period_seconds": 5}]}
    with beside_the_adapter(tmp_path, *CONTROLLERS, sync_s=5, states_s=2) as rig:
        for namespace in WAYS:
            deploy(rig.kube, namespace)
        nodes = Nodes(rig.kube, rig.chain.exporter, starts_s=2)
        nodes.load = LOW
        try:
            rules = {"scale_up": up_at_once, "scale_down": DOWN_AT_ONCE}
            scale_by(rig, followed(BY_ADAPTER, "adapter", **rules), followed(BY_KEDA, "keda", **rules))
            with Counts(rig.kube, BY_ADAPTER) as by_adapter, Counts(rig.kube, BY_KEDA) as by_keda:
                took = [reactions(rig, nodes) for _round in range(ROUNDS)]
        finally:
            nodes.stop()
    for namespace, seconds in zip(WAYS, zip(*took, strict=True), strict=True):
        ordered = sorted(seconds)
        print(f"{namespace}: {ordered[0]:.1f} to {ordered[-1]:.1f} s, mean {fmean(ordered):.2f} s, n {len(ordered)}")
    later_s = fmean(keda - adapter for adapter, keda in took)
    print(f"later by {later_s:.2f} s; counts {sorted(by_adapter.values)} and {sorted(by_keda.values)}")
    assert abs(max(by_keda.values) - max(by_adapter.values)) <= 1
    assert later_s <= LATER_S


def reactions(rig: Rig, nodes: Nodes) -> tuple[float, ...]:
    """Seconds from a step until each asks for more replicas; once they have settled, back to the low load."""
    eventually(lambda: counts(rig) == (2, 2) and nodes.ready == {2}, "both have two replicas", STEP_S)
    time.sleep(uniform(0, 10))
    began, found = time.monotonic(), dict.fromkeys(WAYS, 0.0)
    nodes.load = HIGH
    while not all(found.values()):
        assert time.monotonic() - began < STEP_S, found
        for namespace, count in zip(WAYS, counts(rig), strict=True):
            if count > 2 and not found[namespace]:
                found[namespace] = time.monotonic() - began
        time.sleep(0.05)
    eventually(lambda: counts(rig) == (5, 5) and nodes.ready == {5}, "both have five replicas", STEP_S)
    time.sleep(uniform(5, 10))
    nodes.load = LOW
    return tuple(found.values())
