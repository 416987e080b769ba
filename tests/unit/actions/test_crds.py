"""CRDs of a chart: what is applied, what is left to its owner, and when they count as there."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.crds import apply_crds, remove_crds
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import labels as labels_of
from fake_cluster import FakeTransport

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PROBES = "/apis/example.com/v1/probes"
OURS = labels_of("prod")


def crd(generation: int, *, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "probes.example.com", "labels": labels or {}, "generation": generation},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Probe", "plural": "probes"},
            "versions": [{"name": "v1alpha1", "served": False}, {"name": "v1", "served": True}],
        },
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }


def deadline() -> Deadline:
    clock = count()
    return Deadline(3, clock=lambda: next(clock), sleep=lambda _: None)


def run(answers: dict[str, Any], *, dry_run: bool = False) -> tuple[Outcome, FakeTransport]:
    transport = FakeTransport(answers)
    wanted = {**crd(0), "metadata": {"name": "probes.example.com", "labels": {"theirs": "too"}}}
    return apply_crds(KubeClient(transport, dry_run=dry_run), [wanted], "prod", deadline()), transport


@pytest.mark.parametrize(
    ("after", "action"),
    [
        (crd(1, labels=OURS), "unchanged"),
        (crd(2, labels=OURS), "changed"),
        # The API server counts a generation for the spec alone.
        (crd(1, labels={**OURS, "theirs": "too"}), "changed"),
    ],
)
def test_one_of_ours_follows_the_chart(after: dict[str, Any], action: str) -> None:
    path = f"{CRDS}/probes.example.com"
    outcome, transport = run({f"GET {path}": crd(1, labels=OURS), f"PATCH {path}": after})
    assert outcome.result == {"crds": [{"name": "probes.example.com", "action": action}]}
    assert outcome.changed is (action == "changed")
    [patch] = [request for request in transport.requests if request.method == "PATCH"]
    assert patch.body["metadata"]["labels"] == {"theirs": "too", **OURS}


@pytest.mark.parametrize("labels", [{"app": "operator"}, labels_of("staging")])
def test_one_of_somebody_else_or_of_another_inventory_stays(labels: dict[str, str]) -> None:
    outcome, transport = run({f"GET {CRDS}/probes.example.com": crd(1, labels=labels)})
    assert outcome.result == {"crds": [{"name": "probes.example.com", "action": "kept"}]}
    assert outcome.changed is False
    assert {request.method for request in transport.requests} == {"GET"}


def test_a_dry_run_does_not_wait_for_what_it_did_not_make() -> None:
    outcome, transport = run({f"PATCH {CRDS}/probes.example.com": crd(1)}, dry_run=True)
    assert outcome.result == {"crds": [{"name": "probes.example.com", "action": "created"}]}
    assert transport.asked == [f"GET {CRDS}/probes.example.com", f"PATCH {CRDS}/probes.example.com"]


@pytest.mark.parametrize("conditions", [None, [], [{"type": "Established", "status": "False"}]])
def test_one_that_is_never_served_is_an_error(conditions: Any) -> None:
    path = f"{CRDS}/probes.example.com"
    refused = {**crd(1, labels=OURS), "status": {"conditions": conditions}}
    with pytest.raises(HopError) as caught:
        run({f"GET {path}": refused, f"PATCH {path}": refused})
    assert caught.value.seen == "not Established in time: probes.example.com"


def test_only_the_group_that_is_meant_is_removed() -> None:
    other = {**crd(1, labels=OURS), "metadata": {"name": "other"}, "spec": {"group": "example.org"}}
    path = f"{CRDS}/probes.example.com"
    transport = FakeTransport({f"GET {CRDS}": {"items": [crd(1, labels=OURS), other]}, f"DELETE {path}": {}})
    outcome = remove_crds(KubeClient(transport, dry_run=True), "example.com", "prod", deadline())
    assert outcome.result == {"crds": [{"name": "probes.example.com", "action": "deleted"}]}
    assert outcome.changed is True
    assert transport.asked == [f"GET {CRDS}", f"GET {PROBES}", f"DELETE {path}"]
    assert transport.requests[0].query["labelSelector"] == ",".join(f"{key}={value}" for key, value in OURS.items())


@pytest.mark.parametrize(
    ("metadata", "action"),
    [
        ({"labels": {"app": "theirs"}}, "kept"),
        ({"labels": OURS}, "deleted"),
        ({"labels": {"kubegpu.autoscale/release": "exporter"}}, "deleted"),
        ({"labels": labels_of("staging")}, "kept"),
        ({"labels": {"kubegpu.autoscale/release": "exporter", "kubegpu.autoscale/inventory": "prod"}}, "deleted"),
        ({"labels": {"kubegpu.autoscale/release": "exporter", "kubegpu.autoscale/inventory": "staging"}}, "kept"),
        ({"ownerReferences": [{"kind": "DaemonSet", "name": "worker"}]}, "deleted"),
        ({"ownerReferences": [{"kind": "CephCluster", "name": "rook-ceph"}]}, "kept"),
    ],
)
def test_one_stays_for_what_somebody_else_has_of_its_kind(metadata: dict[str, Any], action: str) -> None:
    probe = {"kind": "Probe", "metadata": {"name": "web", "namespace": "shop", **metadata}}
    transport = FakeTransport(
        {
            f"GET {CRDS}": {"items": [crd(1, labels=OURS)]},
            f"GET {PROBES}": {"items": [probe]},
            f"DELETE {CRDS}/probes.example.com": {},
        }
    )
    outcome = remove_crds(KubeClient(transport), "example.com", "prod", deadline())
    assert outcome.result == {"crds": [{"name": "probes.example.com", "action": action}]}
    warned = ["CRD probes.example.com is kept for Probe shop/web"] if action == "kept" else []
    assert outcome.warnings == warned


def test_nothing_to_remove_is_no_change() -> None:
    outcome = remove_crds(KubeClient(FakeTransport({f"GET {CRDS}": {"items": []}})), "example.com", "prod", deadline())
    assert (outcome.changed, outcome.result) == (False, {"crds": []})


def test_one_that_is_never_gone_is_an_error() -> None:
    path = f"{CRDS}/probes.example.com"
    transport = FakeTransport(
        {f"GET {CRDS}": {"items": [crd(1, labels=OURS)]}, f"DELETE {path}": {}, f"GET {path}": crd(1, labels=OURS)}
    )
    with pytest.raises(HopError) as caught:
        remove_crds(KubeClient(transport), "example.com", "prod", deadline())
    assert caught.value.seen == "still being deleted after the timeout: probes.example.com"
