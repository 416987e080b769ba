from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import (
    HPAS,
    NODES,
    RULES,
    SECRETS,
    KubeClient,
    Resource,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import labels as labels_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from fake_cluster import FakeTransport, Request, refusal

CHAT = "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"
MANIFEST = {"kind": "HorizontalPodAutoscaler", "metadata": {"namespace": "ml", "name": "chat"}, "spec": {}}


def test_apply_is_server_side_and_strict() -> None:
    transport = FakeTransport({f"PATCH {CHAT}": MANIFEST})
    assert KubeClient(transport).apply(HPAS, MANIFEST) == MANIFEST
    query = {"fieldManager": "kubegpu.autoscale", "fieldValidation": "Strict"}
    # With a version that no object has, the API server changes none that is there.
    made = {**MANIFEST, "metadata": {"namespace": "ml", "name": "chat", "resourceVersion": "1"}}
    assert transport.requests == [Request("PATCH", CHAT, query, made, "application/apply-patch+yaml")]


def test_a_list_that_is_null_is_empty() -> None:
    transport = FakeTransport({f"GET {HPAS.path()}": {"items": None}})
    assert KubeClient(transport).list(HPAS) == []


def test_a_dry_run_writes_nothing() -> None:
    transport = FakeTransport({f"PATCH {CHAT}": MANIFEST, f"DELETE {CHAT}": {}})
    kube = KubeClient(transport, dry_run=True)
    kube.apply(HPAS, MANIFEST)
    kube.delete(HPAS, MANIFEST, bool)
    applied, deleted = transport.requests
    # Where a request has a body, the API server takes the options of a deletion from there alone.
    assert (applied.query["dryRun"], deleted.body["dryRun"]) == ("All", ["All"])


def test_a_conflict_names_the_manager() -> None:
    causes = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl-edit"', "field": ".spec.maxReplicas"}
    ]
    transport = FakeTransport({f"PATCH {CHAT}": refusal(409, "conflict", details={"causes": causes})})
    with pytest.raises(HopError) as caught:
        KubeClient(transport).apply(HPAS, MANIFEST)
    assert caught.value.seen == ('HorizontalPodAutoscaler ml/chat: conflict with "kubectl-edit" at .spec.maxReplicas')


@pytest.mark.parametrize(
    ("kind", "fix"),
    [
        ("HorizontalPodAutoscaler", "adopt: true"),
        ("CustomResourceDefinition", "leave the CRD to it: `kubectl label crd chat app.kubernetes.io/managed-by-`"),
        ("PrometheusRule", "or delete the object"),
    ],
)
def test_a_conflict_says_how_to_end_it(kind: str, fix: str) -> None:
    """With a CRD all objects of its kind would be deleted."""
    causes = [{"reason": "FieldManagerConflict", "message": 'conflict with "argocd"', "field": ".spec"}]
    transport = FakeTransport({f"PATCH {CHAT}": refusal(409, "conflict", details={"causes": causes})})
    with pytest.raises(HopError) as caught:
        KubeClient(transport).apply(HPAS, {**MANIFEST, "kind": kind})
    assert caught.value.fix.endswith(fix)


def test_force_takes_fields_over() -> None:
    transport = FakeTransport({f"PATCH {CHAT}": MANIFEST})
    KubeClient(transport).apply(HPAS, MANIFEST, force=True)
    assert transport.requests[0].query["force"] == "true"


def test_an_object_that_is_written_all_the_time_is_no_conflict_of_fields() -> None:
    transport = FakeTransport({f"PATCH {CHAT}": refusal(409, "the object has been modified", reason="Conflict")})
    with pytest.raises(ApiError, match="the object has been modified"):
        KubeClient(transport).apply(HPAS, MANIFEST, MANIFEST)


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
    assert kube.delete(HPAS, MANIFEST, bool) is False
    assert kube.discover("argoproj.io/v1alpha1") == {}


def test_list_asks_for_a_label_in_a_namespace() -> None:
    path = "/apis/monitoring.coreos.com/v1/namespaces/monitoring/prometheusrules"
    labelled = {"metadata": {"name": "chosen", "labels": {"a": "b"}}}
    transport = FakeTransport({f"GET {path}": {"items": [MANIFEST, labelled]}})
    assert KubeClient(transport).list(RULES, namespace="monitoring", label_selector="a=b") == [labelled]
    assert transport.requests == [Request("GET", path, {"labelSelector": "a=b", "limit": "500"})]


def pages(*names: str, token: str = "") -> dict[str, Any]:
    items = [{**MANIFEST, "metadata": {"namespace": "ml", "name": name, "labels": {"a": "b"}}} for name in names]
    return {"metadata": {"continue": token}, "items": items}


def names_of(found: Sequence[Manifest] | None) -> list[str]:
    return [item["metadata"]["name"] for item in found or ()]


def test_a_list_is_read_page_by_page() -> None:
    answers = iter([pages("a", "b", token="second"), pages("c", token="third"), pages("d")])
    transport = FakeTransport({f"GET {HPAS.path()}": answers})
    assert names_of(KubeClient(transport).list(HPAS)) == ["a", "b", "c", "d"]
    tokens = [request.query.get("continue") for request in transport.requests]
    assert tokens == [None, "second", "third"]
    assert {request.query["limit"] for request in transport.requests} == {"500"}


def test_a_list_of_nodes_is_without_what_nobody_reads() -> None:
    """Half of a node is its images and who has written which field; others' fields are read."""
    gpu1 = {"name": "gpu1", "managedFields": [{"manager": "kubelet"}]}
    gpu2 = {"metadata": {"name": "gpu2"}}
    items = [{"metadata": gpu1, "status": {"images": [{}], "capacity": {"cpu": "1"}}}, gpu2]
    kube = KubeClient(FakeTransport({f"GET {kind.path()}": {"items": items} for kind in (NODES, HPAS)}))
    assert kube.list(NODES) == [{"metadata": {"name": "gpu1"}, "status": {"capacity": {"cpu": "1"}}}, gpu2]
    assert kube.list(HPAS) == items


def test_a_page_that_has_expired_starts_the_list_over() -> None:
    answers = iter([pages("a", token="second"), refusal(410, "the token has expired"), pages("a", "b")])
    transport = FakeTransport({f"GET {HPAS.path()}": answers})
    assert names_of(KubeClient(transport).list(HPAS, label_selector="a=b")) == ["a", "b"]
    assert transport.requests[-1].query == {"labelSelector": "a=b"}


def test_what_stands_behind_the_api_server_is_asked_once() -> None:
    transport = FakeTransport({f"GET {CHAT}": MANIFEST, "GET /apis/custom.metrics.k8s.io/v1beta1": {}})
    kube = KubeClient(transport)
    kube.get(HPAS, "chat", "ml")
    kube.get_raw("/apis/custom.metrics.k8s.io/v1beta1")
    assert [request.retry for request in transport.requests] == [True, False]


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


def test_a_field_that_the_kind_does_not_have_is_a_mistake_in_the_spec() -> None:
    message = "failed to create typed patch object (ml/chat; autoscaling/v2): .spec.x: field not declared in schema"
    transport = FakeTransport({f"PATCH {HPAS.path('ml', 'chat')}": ApiError(500, {"message": message}, "PATCH x")})
    manifest = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "chat", "namespace": "ml"}, "spec": {"x": 1}}
    with pytest.raises(HopError) as raised:
        KubeClient(transport).apply(HPAS, manifest)
    assert (raised.value.hop, "field not declared" in raised.value.seen) == ("autoscaler spec", True)
    assert not ApiError(500, {"message": message}, "PATCH x").is_retryable


def test_a_list_of_metadata_alone_may_be_null() -> None:
    transport = FakeTransport({"GET /api/v1/secrets": {"items": None}})
    assert KubeClient(transport).list_metadata(SECRETS, label_selector="owner=helm") == []
    assert transport.requests[0].query == {"labelSelector": "owner=helm"}


OURS = {
    **MANIFEST,
    "metadata": {"namespace": "ml", "name": "chat", "uid": "1", "resourceVersion": "7", "labels": {"a": "b"}},
}
MODIFIED = refusal(
    409,
    'Operation cannot be fulfilled on HorizontalPodAutoscaler "chat": the ResourceVersion in the precondition (7) does '
    "not match the ResourceVersion in record (8). The object might have been modified",
    reason="Conflict",
)


def changed(uid: str, labels: dict[str, str]) -> Manifest:
    return {**OURS, "metadata": {**OURS["metadata"], "uid": uid, "resourceVersion": "8", "labels": labels}}


def test_what_is_deleted_is_what_was_seen() -> None:
    transport = FakeTransport({f"DELETE {CHAT}": {}})
    assert KubeClient(transport).delete(HPAS, OURS, bool) is True
    assert transport.requests[0].body["preconditions"] == {"uid": "1", "resourceVersion": "7"}


def test_what_has_changed_is_judged_anew() -> None:
    """The status of an HPA changes all the time."""
    transport = FakeTransport({f"DELETE {CHAT}": iter([MODIFIED, {}]), f"GET {CHAT}": changed("1", {"a": "b"})})
    assert KubeClient(transport).delete(HPAS, OURS, lambda live: live["metadata"]["labels"] == {"a": "b"}) is True
    assert transport.requests[-1].body["preconditions"] == {"uid": "1", "resourceVersion": "8"}


@pytest.mark.parametrize("live", [changed("2", {"a": "b"}), changed("1", {})], ids=["made anew", "no longer ours"])
def test_what_is_another_object_by_now_is_not_deleted(live: Manifest) -> None:
    transport = FakeTransport({f"DELETE {CHAT}": iter([MODIFIED, {}]), f"GET {CHAT}": live})
    with pytest.raises(HopError, match="HorizontalPodAutoscaler ml/chat was changed by another client"):
        KubeClient(transport).delete(HPAS, OURS, lambda found: found["metadata"]["labels"] == {"a": "b"})
    assert transport.asked == [f"DELETE {CHAT}", f"GET {CHAT}"]


@pytest.mark.parametrize(
    "error",
    [
        refusal(409, "uid mismatch: the provided object specified uid 1, and no existing object was found"),
        refusal(422, 'metadata.uid: Invalid value: "1": field is immutable'),
    ],
    ids=["gone", "made anew"],
)
def test_what_is_another_object_by_now_is_not_changed(error: ApiError) -> None:
    transport = FakeTransport({f"PATCH {CHAT}": error})
    with pytest.raises(HopError, match="was deleted or recreated during the change"):
        KubeClient(transport).apply(HPAS, MANIFEST, OURS, force=True)
    assert transport.requests[0].body["metadata"]["uid"] == "1"


EXISTS = refusal(
    409, "the object has been modified; please apply your changes to the latest version", reason="Conflict"
)


def test_what_another_run_has_made_meanwhile_is_taken_if_it_is_as_wanted() -> None:
    transport = FakeTransport({f"PATCH {CHAT}": EXISTS, f"GET {CHAT}": OURS})
    assert KubeClient(transport).apply(HPAS, MANIFEST) == OURS


@pytest.mark.parametrize(
    ("labels", "whose"),
    [({}, "is not managed by this collection"), (labels_of("staging"), "belongs to inventory staging")],
)
def test_what_somebody_else_has_made_meanwhile_stays(labels: dict[str, str], whose: str) -> None:
    live = {**OURS, "metadata": {**OURS["metadata"], "labels": labels}}
    transport = FakeTransport({f"PATCH {CHAT}": EXISTS, f"GET {CHAT}": live})
    wanted = {**MANIFEST, "metadata": {**MANIFEST["metadata"], "labels": labels_of("prod")}}
    with pytest.raises(HopError) as caught:
        KubeClient(transport).apply(HPAS, wanted)
    assert f"was created by another client at the same time: it {whose}. It was not changed" in caught.value.seen
    assert transport.asked == [f"PATCH {CHAT}", f"GET {CHAT}"]
