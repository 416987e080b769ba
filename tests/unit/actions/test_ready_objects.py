"""When an object is ready, and what is said of one that is not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.ready_objects import (
    not_ready,
    read_objects,
    why_not_ready,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from fake_cluster import FakeTransport, refusal


def seen(kind: str, *, generation: int = 2, spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    metadata = {"name": "one", "namespace": "ml", "generation": generation}
    return {"kind": kind, "metadata": metadata, "spec": spec or {}, "status": status}


def deployment(**status: Any) -> dict[str, Any]:
    return seen("Deployment", spec={"replicas": 2}, **{"observedGeneration": 2, **status})


def daemon_set(**status: Any) -> dict[str, Any]:
    return seen("DaemonSet", **{"observedGeneration": 2, **status})


def condition(name: str, status: str, **more: Any) -> dict[str, Any]:
    return seen("Prometheus", conditions=[{"type": name, "status": status, **more}])


READY = {
    "a Deployment": deployment(updatedReplicas=2, availableReplicas=2),
    "a Deployment of none": seen("Deployment", spec={"replicas": 0}, observedGeneration=2),
    "a DaemonSet": daemon_set(desiredNumberScheduled=3, updatedNumberScheduled=3, numberReady=3),
    "a DaemonSet without nodes": daemon_set(desiredNumberScheduled=0, numberReady=0),
    "a Job": seen("Job", succeeded=1),
    "a condition": condition("Available", "True"),
    "a condition of this generation": condition("Available", "True", observedGeneration=2),
    "a node": condition("Ready", "True"),
}

WAITED_FOR = {
    "seen by its controller": (
        deployment(observedGeneration=1, updatedReplicas=2, availableReplicas=2),
        "not observed",
    ),
    "made just now": (seen("Deployment", spec={"replicas": 2}), "not observed"),
    "replicas of an old template": (deployment(updatedReplicas=1, availableReplicas=2), "1 of 2 replicas updated"),
    "replicas that start": (deployment(updatedReplicas=2), "0 of 2 replicas available"),
    "pods of an old template": (
        daemon_set(desiredNumberScheduled=2, updatedNumberScheduled=1, numberReady=2),
        "updated pods on 1 of 2 nodes",
    ),
    "pods that start": (
        daemon_set(desiredNumberScheduled=2, updatedNumberScheduled=2, numberReady=1),
        "ready pods on 1 of 2 nodes",
    ),
    "a Job that runs": (seen("Job", active=1), "has not succeeded"),
    "a condition with a message": (condition("Available", "False", message="no pod"), "is not Available: no pod"),
    "a condition of an older generation": (condition("Available", "True", observedGeneration=1), "not observed"),
    "no condition": (seen("Prometheus"), "has no Ready or Available condition"),
}


@pytest.mark.parametrize("name", READY)
def test_it_is_ready(name: str) -> None:
    assert why_not_ready(READY[name]) == ""


@pytest.mark.parametrize("name", WAITED_FOR)
def test_it_is_waited_for(name: str) -> None:
    found, why = WAITED_FOR[name]
    assert why in why_not_ready(found)


def test_what_is_not_ready_is_named() -> None:
    query = {"kind": "Deployment", "wait": True}
    assert not_ready(query, [deployment(), READY["a Deployment"]]) == ["Deployment ml/one has 0 of 2 replicas updated"]


def test_what_is_not_there_is_waited_for_where_that_is_asked() -> None:
    query = {"kind": "DaemonSet", "namespace": "ml", "name": None, "label_selectors": ["app=x"], "wait": True}
    assert not_ready(query, []) == ["DaemonSet ml/app=x is missing"]
    assert not_ready({**query, "wait": False}, []) == []


PATH = "/apis/apps/v1/namespaces/ml/deployments"
SERVED = {"GET /apis/apps/v1": {"resources": [{"name": "deployments", "kind": "Deployment", "namespaced": True}]}}


def query(*, wait: bool, **names: Any) -> dict[str, Any]:
    known = {"api_version": "apps/v1", "kind": "Deployment", "namespace": "ml", "name": "one", "label_selectors": []}
    return {**known, "wait": wait, **names}


def run(answers: dict[str, Any], *queries: dict[str, Any], wait_s: float = 60) -> Outcome:
    """Reads without a real pause; the clock advances by the pauses alone. Fails as the module does."""
    kube, outcome, times = KubeClient(FakeTransport({**SERVED, **answers})), Outcome(), [0.0]
    deadline = Deadline(wait_s, clock=lambda: times[-1], sleep=lambda pause: times.append(times[-1] + pause))
    try:
        read_objects(lambda: kube, queries, wait_s, deadline, outcome)
    except HopError as err:
        outcome.errors.append(err)
    outcome.result["pauses"] = len(times) - 1
    return outcome


def test_it_waits_over_an_api_server_that_restarts() -> None:
    ready = READY["a Deployment"]
    outcome = run({f"GET {PATH}/one": iter([deployment(), refusal(503, "restarts"), ready])}, query(wait=True))
    assert outcome.result == {"objects": [[ready]], "not_ready": [], "pauses": 2}
    assert outcome.errors == []


def test_the_reason_is_in_the_error_when_the_time_is_over() -> None:
    outcome = run({}, query(wait=True), wait_s=0)
    assert outcome.result["not_ready"] == ["Deployment ml/one is missing"]
    assert outcome.errors[0].seen == "not ready after 0 s: Deployment ml/one is missing"
    assert "503" in run({f"GET {PATH}/one": refusal(503, "busy")}, query(wait=True), wait_s=0).errors[0].seen


def test_an_error_without_a_wait_is_raised_at_once() -> None:
    with pytest.raises(ApiError):
        run({f"GET {PATH}/one": refusal(401, "who are you")}, query(wait=False))


def test_objects_of_a_list_have_their_kind_and_a_kind_that_is_not_served_has_none() -> None:
    item = {key: value for key, value in READY["a Deployment"].items() if key != "kind"}
    of_labels = query(wait=False, name=None, label_selectors=["app=x"])
    outcome = run({f"GET {PATH}": {"items": [labelled(item)]}}, of_labels, query(wait=False, kind="Widget"))
    [[found], none] = outcome.result["objects"]
    assert (found["apiVersion"], found["kind"], none) == ("apps/v1", "Deployment", [])


def labelled(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], "labels": {"app": "x"}}}
