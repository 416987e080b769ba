"""When a namespace goes: what counts as being in it, and whose it is."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.namespaces import (
    make_namespace,
    remove_namespace,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import labels as labels_of
from fake_cluster import FakeTransport, refusal

OURS = labels_of("prod")
PATH = "/api/v1/namespaces/monitoring"
RULES = "/apis/monitoring.coreos.com/v1"


def served(kind: str, name: str, *, namespaced: bool = True) -> dict[str, Any]:
    return {"kind": kind, "name": name, "namespaced": namespaced, "verbs": ["get", "list"]}


def remove(labels: dict[str, str], **holds: Any) -> tuple[Outcome, FakeTransport]:
    """holds: lists by the plural of their kind; an ApiError instead of one, too."""
    live = {"kind": "Namespace", "metadata": {"name": "monitoring", "labels": labels}}
    groups = [
        {"name": group, "preferredVersion": {"groupVersion": f"{group}/{version}"}}
        for group, version in (("monitoring.coreos.com", "v1"), ("gone.example.com", "v1"), ("metrics.k8s.io", "v1"))
    ]
    lists = {"configmaps": "/api/v1", "serviceaccounts": "/api/v1", "prometheusrules": RULES}
    answers: dict[str, Any] = {
        f"GET {PATH}": iter([live, refusal(404, "not found")]),
        f"DELETE {PATH}": {},
        "GET /apis": {"groups": groups},
        "GET /api/v1": {
            "resources": [
                served("ConfigMap", "configmaps"),
                served("ServiceAccount", "serviceaccounts"),
                served("Event", "events"),
                served("Node", "nodes", namespaced=False),
                {"kind": "Binding", "name": "bindings", "namespaced": True, "verbs": ["create"]},
            ]
        },
        f"GET {RULES}": {"resources": [served("PrometheusRule", "prometheusrules")]},
        "GET /apis/gone.example.com/v1": refusal(503, "nobody serves it"),
    }
    for plural, base in lists.items():
        found = holds.get(plural, [])
        answers[f"GET {base}/namespaces/monitoring/{plural}"] = {"items": found} if isinstance(found, list) else found
    transport = FakeTransport(answers)
    clock = count()
    deadline = Deadline(3, clock=lambda: next(clock), sleep=lambda _: None)
    return remove_namespace(KubeClient(transport), "monitoring", "prod", deadline), transport


def one(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


def test_an_empty_one_of_ours_goes() -> None:
    outcome, transport = remove(OURS, configmaps=[one("kube-root-ca.crt")], serviceaccounts=[one("default")])
    assert outcome.result == {"name": "monitoring", "action": "deleted", "holds": []}
    assert f"DELETE {PATH}" in transport.asked


@pytest.mark.parametrize("labels", [{"team": "search"}, labels_of("staging")])
def test_one_of_somebody_else_or_of_another_inventory_stays(labels: dict[str, str]) -> None:
    outcome, transport = remove(labels)
    assert (outcome.changed, outcome.result["action"]) == (False, "kept")
    assert transport.asked == [f"GET {PATH}"]


@pytest.mark.parametrize(
    ("holds", "titles"),
    [
        ({"prometheusrules": [one("alerts")]}, ["PrometheusRule alerts"]),
        ({"configmaps": [one("kube-root-ca.crt"), one("dashboards")]}, ["ConfigMap dashboards"]),
        ({"serviceaccounts": refusal(403, "no right")}, ["ServiceAccount, which may not be listed"]),
    ],
)
def test_one_of_ours_stays_for_what_is_in_it(holds: dict[str, Any], titles: list[str]) -> None:
    outcome, transport = remove(OURS, **holds)
    assert outcome.result == {"name": "monitoring", "action": "kept", "holds": titles}
    assert f"DELETE {PATH}" not in transport.asked


def test_what_goes_by_itself_keeps_none() -> None:
    going = [one("a", ownerReferences=[{"kind": "Job"}]), one("b", deletionTimestamp="2026-01-01T00:00:00Z")]
    outcome, _ = remove(OURS, configmaps=going)
    assert outcome.result["action"] == "deleted"


def test_one_that_is_never_gone_is_an_error() -> None:
    live = {"kind": "Namespace", "metadata": {"name": "monitoring", "labels": OURS}}
    transport = FakeTransport(
        {f"GET {PATH}": live, f"DELETE {PATH}": {}, "GET /apis": {"groups": []}, "GET /api/v1": {"resources": []}}
    )
    clock = count()
    deadline = Deadline(3, clock=lambda: next(clock), sleep=lambda _: None)
    with pytest.raises(HopError, match="still being deleted after the timeout"):
        remove_namespace(KubeClient(transport), "monitoring", "prod", deadline)


def test_one_that_is_there_is_left_as_it_is() -> None:
    transport = FakeTransport({f"GET {PATH}": {"metadata": {"name": "monitoring"}}})
    assert make_namespace(KubeClient(transport), "monitoring", "prod").changed is False
    assert transport.asked == [f"GET {PATH}"]
