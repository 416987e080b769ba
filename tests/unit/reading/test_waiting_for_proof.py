"""What verification waits for, and what it says of the reaction time."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.verify import verify
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from fake_cluster import FakeTransport
from test_metric_values import PROXY, autoscaler, cluster, deployment, pod

RULES = {
    "status": "success",
    "data": {"groups": [{"interval": 2, "rules": [{"name": "namespace_pod:gpu:avg", "health": "ok"}]}]},
}


class Clock:
    """Stands still but for sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.deadline = Deadline(60, clock=lambda: self.now, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def run(transport: FakeTransport, clock: Clock) -> Outcome:
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    outcome = Outcome(result={"autoscalers": [{}]})
    verify(kube, prometheus, [autoscaler("chat")], clock.deadline, outcome)
    return outcome


def test_what_is_right_is_not_waited_for() -> None:
    clock = Clock()
    outcome = run(cluster(("chat",), **{f"GET {PROXY}/rules": RULES}), clock)
    assert (outcome.errors, clock.now) == ([], 0)
    assert outcome.result["autoscalers"][0]["verified"] is True


def test_a_target_that_has_no_pods_is_not_waited_for() -> None:
    clock = Clock()
    pods: dict[str, Any] = {"GET /api/v1/namespaces/ml/pods": {"items": []}}
    outcome = run(cluster(("chat",), **pods, **{f"GET {PROXY}/rules": RULES}), clock)
    assert clock.now == 0
    assert [error.hop for error in outcome.errors] == ["workload"]


def generation(seen: dict[str, Any]) -> dict[str, Any]:
    """A Deployment that was just made or changed, and what its controller says of it."""
    made = deployment("chat")
    return {**made, "metadata": {**made["metadata"], "generation": 2}, "status": seen}


@pytest.mark.parametrize("status", [{}, {"observedGeneration": 1}])
def test_a_target_that_its_controller_has_not_looked_at_yet_is_waited_for(status: dict[str, Any]) -> None:
    """It has been made a moment before, by the task before: its pods come."""
    clock = Clock()
    seen = {"observedGeneration": 2}
    targets = iter([{"items": [generation(status)]}, {"items": [generation(seen)]}])
    answers: dict[str, Any] = {
        "GET /apis/apps/v1/namespaces/ml/deployments": targets,
        "GET /api/v1/namespaces/ml/pods": iter([{"items": []}, {"items": [pod("chat-0", "chat")]}]),
    }
    outcome = run(cluster(("chat",), **answers, **{f"GET {PROXY}/rules": RULES}), clock)
    assert (outcome.errors, clock.now) == ([], 1.0)


def test_pods_that_are_starting_are_waited_for() -> None:
    clock = Clock()
    starting, ready = ({"items": [pod("chat-0", "chat", ready=is_ready)]} for is_ready in (False, True))
    pods = {"GET /api/v1/namespaces/ml/pods": iter([starting, starting, ready])}
    outcome = run(cluster(("chat",), **pods, **{f"GET {PROXY}/rules": RULES}), clock)
    assert (outcome.errors, clock.now) == ([], 2.5)


def test_what_may_still_come_is_waited_for_until_the_deadline() -> None:
    clock = Clock()
    nothing: dict[str, Any] = {"GET /apis/custom.metrics.k8s.io/v1beta1/namespaces/ml/pods/*/gpu": {"items": []}}
    outcome = run(cluster(("chat",), **nothing, **{f"GET {PROXY}/rules": RULES}), clock)
    assert clock.now == 60
    assert len(outcome.errors) == 1
    assert outcome.result["autoscalers"][0]["verified"] is False


@pytest.mark.parametrize(("now", "kept"), [(103, True), (190, False)])
def test_a_budget_that_is_not_kept_is_said(now: int, kept: bool) -> None:
    """Without an exporter to look at the metric may be 34 s late: 30 s to collect, 2 s each to scrape and evaluate."""
    transport = cluster(("chat",), **{f"GET {PROXY}/rules": RULES})
    samples = transport.answers[f"GET {PROXY}/query"]
    clock_answer = {"status": "success", "data": {"resultType": "scalar", "result": [now, str(now)]}}

    def send(method: str, path: str, *, query: Any, **rest: Any) -> Any:
        transport.answers[f"GET {PROXY}/query"] = clock_answer if query.get("query") == "time()" else samples
        return transport(method, path, query=query, **rest)

    budget = run(send, Clock()).result["autoscalers"][0]["budget"]  # type: ignore[arg-type]
    assert (budget["worst_s"], budget["seen_age_s"], budget["kept"]) == (49, now - 102, kept)


@pytest.mark.parametrize(("restarts", "seconds"), [(0, 45.0), (1, None)])
def test_the_dead_time_of_each_pod_is_its_start_and_the_lag_of_the_metric(restarts: int, seconds: float | None) -> None:
    started = pod("chat-0", "chat")
    conditions = {"PodScheduled": "2026-01-01T00:00:00Z", "Ready": "2026-01-01T00:00:11Z"}
    started["status"]["conditions"] = [
        {"type": kind, "status": "True", "lastTransitionTime": at} for kind, at in conditions.items()
    ]
    started["status"]["containerStatuses"] = [{"name": "main", "ready": True, "restartCount": restarts}]
    pods: dict[str, Any] = {"GET /api/v1/namespaces/ml/pods": {"items": [started]}}
    outcome = run(cluster(("chat",), **pods, **{f"GET {PROXY}/rules": RULES}), Clock())
    assert outcome.result["autoscalers"][0]["dead_times"] == {"chat-0": seconds}
