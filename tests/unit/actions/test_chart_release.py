"""A release is restored and removed by requests that the API server can reject, and under a Lease."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.chart_release import (
    ensure_release,
    missing_kinds,
    remove_release,
    restored,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.helm import WantedRelease
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from fake_cluster import FakeTransport, refusal

WANTED = WantedRelease(
    name="exporter",
    namespace="ml",
    inventory="prod",
    chart="exporter",
    version="1.0.0",
    folder="",
    values={},
    kinds=[],
    adopt=False,
    hooks=True,
    timeout_s=300,
)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ml/leases/kubegpu-exporter"
LEASES = LEASE.rpartition("/")[0]
SERVICE = "/api/v1/namespaces/ml/services/exporter"
SERVED = {
    "GET /api/v1": {
        "resources": [
            {"name": "services", "kind": "Service", "namespaced": True},
            {"name": "secrets", "kind": "Secret", "namespaced": True},
        ]
    },
    "GET /apis/rbac.authorization.k8s.io/v1": {
        "resources": [{"name": "clusterroles", "kind": "ClusterRole", "namespaced": False}]
    },
}
NOW = {"metadata": {"creationTimestamp": "2026-05-04T10:00:00Z"}}
BASE = {**SERVED, "POST /apis/authentication.k8s.io/v1/selfsubjectreviews": NOW}
WRITES = ("POST", "PATCH", "PUT", "DELETE")
OURS = {"meta.helm.sh/release-name": "exporter", "meta.helm.sh/release-namespace": "ml"}


def service(port: str, **metadata: Any) -> dict[str, Any]:
    known = {"name": "exporter", "namespace": "ml", "uid": "1", "labels": WANTED.labels, "annotations": OURS}
    spec = {"ports": [{"name": port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {**known, **metadata}, "spec": spec}


MANIFEST = """
apiVersion: v1
kind: Service
metadata: {name: exporter}
spec: {ports: [{name: metrics}]}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
"""


class FakeHelm:
    """A release of this inventory. `versions` of its chart are listed one after the other, and then the last one."""

    def __init__(self, *versions: str) -> None:
        self._versions = list(versions)
        self.commands: list[str] = []

    def run(self, *words: str, data: str | None = None) -> str:
        self.commands.append(words[0])
        if words[0] == "status":
            return json.dumps({"config": {}, "manifest": MANIFEST})
        version = self._versions.pop(0) if len(self._versions) > 1 else self._versions[0]
        return json.dumps([{"name": "exporter", "status": "deployed", "chart": f"exporter-{version}"}])

    def mask(self, values: Any) -> None: ...


def written(transport: FakeTransport) -> list[str]:
    """What was written, without reviews of the user and dry runs."""
    return [
        f"{request.method} {request.path}"
        for request in transport.requests
        if request.method in WRITES and "selfsubjectreviews" not in request.path and "dryRun" not in request.query
    ]


def test_an_edited_object_is_restored_under_the_lease() -> None:
    lease = {"metadata": {"name": "kubegpu-exporter", "namespace": "ml"}, "spec": {}}
    answers = {f"GET {SERVICE}": service("http"), f"PATCH {SERVICE}": service("metrics")}
    transport = FakeTransport({**BASE, **answers, f"POST {LEASES}": lease, f"DELETE {LEASE}": {}})
    outcome = Outcome()
    ensure_release(FakeHelm("1.0.0"), KubeClient(transport), WANTED, outcome)
    assert written(transport) == [f"POST {LEASES}", f"PATCH {SERVICE}", f"DELETE {LEASE}"]
    assert (outcome.changed, outcome.result["objects"]) == (True, ["Service ml/exporter"])
    assert outcome.result["differs"] is False


def test_a_release_without_a_difference_writes_nothing() -> None:
    answers = {f"GET {SERVICE}": service("metrics"), f"PATCH {SERVICE}": service("metrics", resourceVersion="9")}
    transport = FakeTransport({**BASE, **answers})
    outcome = Outcome()
    ensure_release(FakeHelm("1.0.0"), KubeClient(transport), WANTED, outcome)
    assert (written(transport), outcome.changed) == ([], False)


def test_a_run_that_waited_for_another_does_not_undo_it() -> None:
    """The release is compared again under the Lease: another run may have upgraded it."""
    lease = {"metadata": {"name": "kubegpu-exporter", "namespace": "ml"}, "spec": {}}
    answers = {f"GET {SERVICE}": service("http"), f"PATCH {SERVICE}": service("metrics")}
    transport = FakeTransport({**BASE, **answers, f"POST {LEASES}": lease, f"DELETE {LEASE}": {}})
    with pytest.raises(HopError, match="was changed by another run meanwhile: chart: exporter-2 -> exporter-1"):
        ensure_release(FakeHelm("1.0.0", "2"), KubeClient(transport), WANTED, Outcome())
    assert written(transport) == [f"POST {LEASES}", f"DELETE {LEASE}"]


def test_a_kind_of_a_crd_is_merged_and_a_cluster_wide_object_has_no_namespace() -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "r", "annotations": OURS},
        "rules": [],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/r"
    after = {**role, "rules": [{}]}
    answers = {f"GET {path}": role, f"PATCH {path}": iter([refusal(415, "unsupported media type"), after])}
    transport = FakeTransport({**BASE, **answers})
    kube = KubeClient(transport)
    named = {**role, "metadata": {"name": "r", "namespace": "ml"}}
    assert list(restored(kube, [named], WANTED)) == [(role, after)]
    first, second = [request for request in transport.requests if request.method == "PATCH"]
    assert first.content_type == "application/strategic-merge-patch+json"
    assert second.content_type == "application/merge-patch+json"
    assert second.body["metadata"] == {"name": "r", "labels": WANTED.labels, "annotations": OURS}


def test_a_missing_kind_is_named() -> None:
    transport = FakeTransport(BASE)
    kinds = ["v1/Service", "keda.sh/v1alpha1/ScaledObject"]
    assert missing_kinds(KubeClient(transport), kinds) == ["keda.sh/v1alpha1/ScaledObject"]
    widget = {"apiVersion": "kubegpu.test/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "ml"}}
    with pytest.raises(HopError, match=r"kubegpu\.test/v1/Widget of release exporter is not served"):
        list(restored(KubeClient(transport), [widget], WANTED))


class NoRelease(FakeHelm):
    def run(self, *words: str, data: str | None = None) -> str:
        return "[]"


def test_only_the_releases_own_leftovers_are_deleted() -> None:
    theirs = service("http", name="theirs", annotations={})
    left = service("http")
    for found in (left, theirs):
        del found["kind"], found["apiVersion"]  # as in a list
    transport = FakeTransport({**BASE, "GET /api/v1/services": {"items": [left, theirs]}, f"DELETE {SERVICE}": {}})
    outcome = Outcome()
    remove_release(NoRelease("1"), KubeClient(transport), WANTED, outcome)
    assert written(transport) == [f"DELETE {SERVICE}"]
    assert outcome.result["objects"] == ["Service ml/exporter"]


def test_a_release_of_another_manager_fails_before_a_change() -> None:
    class Theirs(FakeHelm):
        def run(self, *words: str, data: str | None = None) -> str:
            return "[]" if "--selector" in words else super().run(*words, data=data)

    record = {"metadata": {"name": "v1", "labels": {"owner": "helm", "name": "exporter", "version": "1"}}}
    record["metadata"]["labels"]["status"] = "deployed"
    transport = FakeTransport({**BASE, "GET /api/v1/namespaces/ml/secrets": {"items": [record]}})
    upgrade = replace(WANTED, folder="/chart", version="2.0.0")
    with pytest.raises(HopError, match=r"was not created by this collection.*\n.*set adopt to true"):
        ensure_release(Theirs("1.0.0"), KubeClient(transport), upgrade, Outcome())
    assert written(transport) == []
