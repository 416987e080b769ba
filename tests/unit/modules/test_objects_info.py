"""When an object is ready, and what is said of one that is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.modules import objects_info
from ansible_collections.kubegpu.autoscale.plugins.modules.objects_info import (
    look_until_ready,
    not_ready,
    why_not_ready,
    words_of,
)
from ansible_collections.kubernetes.core.plugins.module_utils.k8s.exceptions import CoreException
from kubernetes.client.exceptions import ApiException


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
    "seen by its controller": (deployment(observedGeneration=1, updatedReplicas=2, availableReplicas=2), "not looked"),
    "made just now": (seen("Deployment", spec={"replicas": 2}), "not looked"),
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
    "a condition of an older generation": (condition("Available", "True", observedGeneration=1), "not looked"),
    "no condition": (seen("Prometheus"), "says nothing of its state"),
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
    assert not_ready(query, []) == ["there is no DaemonSet ml/app=x"]
    assert not_ready({**query, "wait": False}, []) == []


class Cluster:
    """Gives one answer after the other, and then the last one for ever; an error is raised."""

    def __init__(self, *answers: list[dict[str, Any]] | Exception) -> None:
        self.answers = list(answers)

    def find(self, kind: str, api_version: str, **_: Any) -> dict[str, Any]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"resources": answer}


def query(*, wait: bool) -> dict[str, Any]:
    names = {"api_version": "apps/v1", "kind": "Deployment", "namespace": "ml", "name": "one", "label_selectors": []}
    return {**names, "wait": wait}


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr(objects_info.time, "sleep", slept.append)
    return slept


def test_it_waits_over_an_api_server_that_restarts(sleeps: list[float]) -> None:
    ready = READY["a Deployment"]
    cluster, found = Cluster([deployment()], CoreException("503"), [ready]), [[]]
    assert look_until_ready(lambda: cluster, [query(wait=True)], found, 60) == []
    assert (found, len(sleeps)) == ([[ready]], 2)


def test_it_says_what_is_lacking_when_the_time_is_over(sleeps: list[float]) -> None:
    assert look_until_ready(lambda: Cluster([]), [query(wait=True)], [[]], 0) == ["there is no Deployment ml/one"]
    assert look_until_ready(lambda: Cluster(CoreException("503")), [query(wait=True)], [[]], 0) == ["503"]
    assert sleeps == []


def test_who_does_not_wait_is_told_at_once(sleeps: list[float]) -> None:
    with pytest.raises(CoreException):
        look_until_ready(lambda: Cluster(CoreException("401")), [query(wait=False)], [[]], 60)
    assert sleeps == []


def test_a_missing_right_is_one_sentence() -> None:
    """The library names a request in its own words, with headers, and keeps the answer as the error before."""
    message = 'deployments.apps is forbidden: User "chris" cannot list resource "deployments" in API group "apps"'
    answer = ApiException(status=403)
    answer.body = json.dumps({"message": f'{message} in the namespace "ml"'}).encode()
    error = CoreException("Exception '403' raised while trying to get resource")
    error.__context__ = answer
    said = words_of(error)
    assert said.startswith(
        "API server: user chris has no permission to list deployments of apiGroup 'apps' in namespace ml"
    )
    assert "fix: have an administrator grant it to chris: docs/rights.yml" in said
