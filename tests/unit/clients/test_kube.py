from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.clients import (
    HPAS,
    NODES,
    RULES,
    ApiError,
    KubeClient,
    Resource,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import HopError
from fake_cluster import FakeTransport, Request, refusal

CHAT = "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"
MANIFEST = {"kind": "HorizontalPodAutoscaler", "metadata": {"namespace": "ml", "name": "chat"}, "spec": {}}


def test_apply_is_server_side_and_strict() -> None:
    transport = FakeTransport({f"PATCH {CHAT}": MANIFEST})
    assert KubeClient(transport).apply(HPAS, MANIFEST) == MANIFEST
    query = {"fieldManager": "kubegpu.autoscale", "fieldValidation": "Strict"}
    assert transport.requests == [Request("PATCH", CHAT, query, MANIFEST, "application/apply-patch+yaml")]


def test_a_dry_run_writes_nothing() -> None:
    transport = FakeTransport({f"PATCH {CHAT}": MANIFEST, f"DELETE {CHAT}": {}})
    kube = KubeClient(transport, dry_run=True)
    kube.apply(HPAS, MANIFEST)
    kube.delete(HPAS, "chat", "ml")
    assert [request.query.get("dryRun") for request in transport.requests] == ["All", "All"]


def test_a_conflict_names_the_manager() -> None:
    causes = [{"message": 'conflict with "kubectl-edit"', "field": ".spec.maxReplicas"}]
    transport = FakeTransport({f"PATCH {CHAT}": refusal(409, "conflict", details={"causes": causes})})
    with pytest.raises(HopError) as caught:
        KubeClient(transport).apply(HPAS, MANIFEST)
    assert caught.value.seen == ('HorizontalPodAutoscaler ml/chat: conflict with "kubectl-edit" at .spec.maxReplicas')


def test_other_refusals_come_through() -> None:
    transport = FakeTransport(
        {f"PATCH {CHAT}": refusal(400, "unknown field"), f"GET {CHAT}": refusal(403, "forbidden")}
    )
    kube = KubeClient(transport)
    with pytest.raises(ApiError, match="400: unknown field"):
        kube.apply(HPAS, MANIFEST)
    with pytest.raises(ApiError, match="403: forbidden"):
        kube.get(HPAS, "chat", "ml")


def test_what_is_not_there() -> None:
    kube = KubeClient(FakeTransport({}))
    assert kube.get(HPAS, "chat", "ml") is None
    assert kube.list(RULES, namespace="monitoring") is None
    assert kube.delete(HPAS, "chat", "ml") is False
    assert kube.discover("argoproj.io/v1alpha1") == {}


def test_list_asks_for_a_label_in_a_namespace() -> None:
    path = "/apis/monitoring.coreos.com/v1/namespaces/monitoring/prometheusrules"
    transport = FakeTransport({f"GET {path}": {"items": [MANIFEST]}})
    assert KubeClient(transport).list(RULES, namespace="monitoring", label_selector="a=b") == [MANIFEST]
    assert transport.requests == [Request("GET", path, {"labelSelector": "a=b", "limit": "500"})]


def test_discovery_knows_what_can_be_scaled() -> None:
    resources = [
        {"name": "deployments", "kind": "Deployment"},
        {"name": "deployments/scale", "kind": "Scale"},
        {"name": "daemonsets", "kind": "DaemonSet"},
        {"name": "daemonsets/status", "kind": "DaemonSet"},
    ]
    served = KubeClient(FakeTransport({"GET /apis/apps/v1": {"resources": resources}})).discover("apps/v1")
    assert served == {
        "Deployment": Resource("apps/v1", "Deployment", "deployments", scalable=True),
        "DaemonSet": Resource("apps/v1", "DaemonSet", "daemonsets", scalable=False),
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (NODES.path(), "/api/v1/nodes"),
        (HPAS.path("ml", "chat", "status"), f"{CHAT}/status"),
        (HPAS.path("ml", "a/b"), "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/a%2Fb"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected
