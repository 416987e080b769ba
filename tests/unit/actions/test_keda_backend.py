"""Autoscalers with KEDA's HPAs: what is written, kept, rejected and removed, and the change of the backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions import reconcile as reconciling
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.reconcile import remove
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from fake_cluster import FakeTransport, refusal
from test_reconcile import HPAS, RULE_OPTIONS, RULES, autoscalers, cluster, run

KEDA = "/apis/keda.sh/v1alpha1"
SCALED_OBJECTS = f"{KEDA}/scaledobjects"
SCALED_OBJECT = f"{KEDA}/namespaces/ml/scaledobjects/chat"
HPA = "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat"
APISERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io"
OF_KEDA = {"metadata": {}, "spec": {"service": {"namespace": "keda", "name": "keda-operator-metrics-apiserver"}}}
NAMES = ("kubegpu-gpu", "kubegpu-decisions-gpu", "kubegpu-ml.chat")


def by_keda() -> list[Autoscaler]:
    return [replace(autoscaler, backend="keda") for autoscaler in autoscalers("chat")]


def keda_cluster(*live: Manifest, scaled_objects: tuple[Manifest, ...] = (), **answers: Any) -> FakeTransport:
    """It accepts what is applied."""
    desired = {manifest["metadata"]["name"]: manifest for manifest in manifests(by_keda(), RULE_OPTIONS)}
    applied = {f"PATCH {RULES}/{name}": desired[name] for name in NAMES}
    return cluster(
        ("chat",),
        list(live),
        **{
            f"GET {SCALED_OBJECTS}": {"items": list(scaled_objects)},
            f"GET {APISERVICE}": OF_KEDA,
            f"GET {KEDA}": {"resources": [{"name": "scaledobjects", "kind": "ScaledObject"}]},
            "GET /version": {"gitVersion": "v1.36.3"},
            f"PATCH {SCALED_OBJECT}": desired["chat"],
            **applied,
            **answers,
        },
    )


def hpa_of_keda(owner: bool = True) -> Manifest:
    """As KEDA leaves it: the labels and annotations of the ScaledObject."""
    *_rules, wanted = manifests(by_keda(), RULE_OPTIONS)
    [*_adapter_rules, hpa] = manifests(autoscalers("chat"), RULE_OPTIONS)
    owners = [{"kind": "ScaledObject", "name": "chat"}] if owner else []
    selector = {"matchLabels": {"scaledobject.keda.sh/name": "chat"}}
    metric = {
        "metric": {"name": "s0-prometheus", "selector": selector},
        "target": {"type": "AverageValue", "averageValue": "1"},
    }
    spec = {**hpa["spec"], "metrics": [{"type": "External", "external": metric}]}
    return {**hpa, "metadata": {**wanted["metadata"], "uid": "hpa-1", "ownerReferences": owners}, "spec": spec}


def sent(transport: FakeTransport) -> list[str]:
    return [f"{request.method} {request.path}" for request in transport.requests if request.method != "GET"]


def test_rules_come_before_the_scaled_object_that_reads_them() -> None:
    transport = keda_cluster()
    outcome = run(transport, by_keda())
    assert sent(transport) == [*(f"PATCH {RULES}/{name}" for name in NAMES), f"PATCH {SCALED_OBJECT}"]
    assert [entry["action"] for entry in outcome.result["autoscalers"]] == ["created"]
    assert not outcome.errors


def test_a_second_run_changes_nothing() -> None:
    *rules, wanted = manifests(by_keda(), RULE_OPTIONS)
    transport = keda_cluster(*rules, hpa_of_keda(), scaled_objects=(wanted,))
    outcome = run(transport, by_keda())
    assert not outcome.changed
    assert sent(transport) == []


def test_a_measured_dead_time_is_kept_before_keda_has_made_the_hpa() -> None:
    measured = [autoscaler.with_dead_time(90) for autoscaler in by_keda()]
    *rules, wanted = manifests(measured, RULE_OPTIONS)
    transport = keda_cluster(*rules, scaled_objects=(wanted,))
    assert not run(transport, by_keda()).changed


def test_an_hpa_of_the_adapter_is_left_to_keda() -> None:
    """KEDA adopts the HPA of this name, so the module neither deletes nor changes it."""
    live = manifests(autoscalers("chat"), RULE_OPTIONS)
    transport = keda_cluster(*live)
    run(transport, by_keda())
    assert f"PATCH {SCALED_OBJECT}" in sent(transport)
    assert not any(HPA in request for request in sent(transport))


def theirs(**spec: Any) -> Manifest:
    """A ScaledObject that another client created, for the same target."""
    *_rules, wanted = manifests(by_keda(), RULE_OPTIONS)
    advanced = {"horizontalPodAutoscalerConfig": {"name": "chat"}}
    trigger = {"type": "prometheus", "metadata": {"query": "sum(gpu)", "threshold": "60"}}
    return {
        **wanted,
        "metadata": {"namespace": "ml", "name": "chat", "uid": "theirs"},
        "spec": {"scaleTargetRef": wanted["spec"]["scaleTargetRef"], "triggers": [trigger], "advanced": advanced}
        | spec,
    }


def adopting() -> list[Autoscaler]:
    return [replace(autoscaler, adopt=True) for autoscaler in by_keda()]


def test_a_scaled_object_of_others_is_refused_before_anything_is_changed() -> None:
    transport = keda_cluster(scaled_objects=(theirs(),))
    with pytest.raises(HopError, match="ScaledObject ml/chat is not managed by this collection") as refused:
        run(transport, by_keda())
    assert "set adopt: true" in refused.value.fix
    assert sent(transport) == []


def test_a_scaled_object_of_others_is_adopted_with_adopt_only() -> None:
    transport = keda_cluster(scaled_objects=(theirs(),))
    outcome = run(transport, adopting())
    assert not outcome.errors
    assert f"PATCH {SCALED_OBJECT}" in sent(transport)
    (applied,) = [request for request in transport.requests if request.path == SCALED_OBJECT]
    assert (applied.query["force"], applied.body["metadata"]["uid"]) == ("true", "theirs")
    assert not [warning for warning in outcome.warnings if "has HPA" in warning]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"idleReplicaCount": 0}, "spec.idleReplicaCount"),
        ({"fallback": {"failureThreshold": 3, "replicas": 6}}, "spec.fallback"),
        ({"advanced": {"scalingModifiers": {"formula": "a + b"}}}, "spec.advanced.scalingModifiers"),
        ({"advanced": {"restoreToOriginalReplicaCount": True}}, "spec.advanced.restoreToOriginalReplicaCount"),
    ],
)
def test_fields_that_scale_by_other_rules_are_not_adopted(spec: dict[str, Any], field: str) -> None:
    transport = keda_cluster(scaled_objects=(theirs(**spec),))
    with pytest.raises(HopError, match=field):
        run(transport, adopting())
    assert sent(transport) == []


def test_a_fallback_to_the_current_replicas_moves_nothing_and_is_adopted() -> None:
    fallback = {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicas"}
    transport = keda_cluster(scaled_objects=(theirs(fallback=fallback),))
    assert not run(transport, adopting()).errors


def test_an_adoption_that_renames_the_hpa_is_warned_of() -> None:
    transport = keda_cluster(scaled_objects=(theirs(advanced={}),))
    assert [warning for warning in run(transport, adopting()).warnings if "has HPA keda-hpa-chat" in warning]


def test_a_cluster_without_keda_is_refused_and_the_role_named() -> None:
    transport = keda_cluster(**{f"GET {KEDA}": refusal(404, "not found")})
    with pytest.raises(HopError, match="does not serve the kind ScaledObject") as refused:
        run(transport, by_keda())
    assert "run the role keda" in refused.value.fix
    assert sent(transport) == []


def test_a_preview_without_keda_only_warns() -> None:
    """An earlier task may install it."""
    missing = {f"PATCH {SCALED_OBJECT}": refusal(404, "not found"), f"GET {KEDA}": refusal(404, "not found")}
    outcome = run(keda_cluster(**missing), by_keda(), dry_run=True)
    assert outcome.changed
    assert [warning for warning in outcome.warnings if "does not serve the kind ScaledObject" in warning]


@pytest.mark.parametrize("wanted", [by_keda, lambda: autoscalers("chat")], ids=["keda", "adapter"])
@pytest.mark.parametrize("adopt", [True, False])
def test_an_hpa_of_another_scaled_object_is_never_written(wanted: Callable[[], list[Autoscaler]], adopt: bool) -> None:
    """Not even with adopt: KEDA would overwrite it."""
    hpa, scaled_object = hpa_of_keda(), theirs()
    hpa["metadata"] |= {"labels": {}, "ownerReferences": [{"kind": "ScaledObject", "name": "web"}]}
    scaled_object["metadata"] |= {"name": "web"}
    scaled_object["spec"] |= {"scaleTargetRef": {"name": "web"}}
    transport = keda_cluster(hpa, scaled_objects=(scaled_object,))
    with pytest.raises(HopError, match="its HPA belongs to ScaledObject ml/web"):
        run(transport, [replace(autoscaler, adopt=adopt) for autoscaler in wanted()])
    assert sent(transport) == []


def test_the_adapter_s_autoscaler_releases_no_scaled_object_of_others() -> None:
    """It has the same name, and another target and HPA."""
    other = theirs(advanced={}, scaleTargetRef={"name": "web"})
    [*_rules, hpa] = manifests(autoscalers("chat"), RULE_OPTIONS)
    transport = keda_cluster(scaled_objects=(other,), **{f"PATCH {HPA}": hpa})
    run(transport, autoscalers("chat"))
    assert sent(transport) == [f"PATCH {RULES}/kubegpu-gpu", f"PATCH {HPA}"]


def test_without_the_right_to_list_scaled_objects_none_is_written() -> None:
    refusals = {
        f"GET {SCALED_OBJECTS}": refusal(403, "no"),
        f"GET {KEDA}/namespaces/ml/scaledobjects": refusal(403, "no"),
    }
    transport = keda_cluster(**refusals)
    with pytest.raises(HopError, match="may not list scaledobjects"):
        run(transport, by_keda())
    assert sent(transport) == []


def test_removal_keeps_an_hpa_whose_scaled_object_cannot_be_listed() -> None:
    *rules, _wanted = manifests(by_keda(), RULE_OPTIONS)
    transport = FakeTransport(
        {
            f"GET {HPAS}": {"items": [hpa_of_keda()]},
            f"GET {RULES}": {"items": rules},
            f"GET {SCALED_OBJECTS}": refusal(403, "forbidden"),
            f"GET {KEDA}/namespaces/ml/scaledobjects": refusal(403, "forbidden"),
        }
    )
    outcome = remove(KubeClient(transport), [{"namespace": "ml", "name": "chat"}], RULE_OPTIONS)
    assert sent(transport) == []
    assert "HPA ml/chat belongs to ScaledObject chat, which this user has no permission to list, and stays" in (
        outcome.warnings
    )


def test_another_server_of_external_metrics_is_refused() -> None:
    service = {"metadata": {}, "spec": {"service": {"namespace": "monitoring", "name": "prometheus-adapter"}}}
    transport = keda_cluster(**{f"GET {APISERVICE}": service})
    with pytest.raises(HopError, match=r"external\.metrics\.k8s\.io.*prometheus-adapter"):
        run(transport, by_keda())
    assert sent(transport) == []


@pytest.mark.parametrize(("version", "is_refused"), [("v1.34.8", True), ("v1.35.0", False), ("v1.36.3-gke.1", False)])
def test_a_cluster_that_drops_the_tolerance_is_refused(version: str, is_refused: bool) -> None:
    transport = keda_cluster(**{"GET /version": {"gitVersion": version}})
    with pytest.raises(HopError, match=version) if is_refused else nullcontext():
        run(transport, by_keda())
    assert bool(sent(transport)) is not is_refused
    by_adapter = cluster(
        ("chat",), manifests(autoscalers("chat"), RULE_OPTIONS), **{"GET /version": {"gitVersion": version}}
    )
    assert not run(by_adapter, autoscalers("chat")).errors
    assert "GET /version" not in by_adapter.asked


def back_to_the_adapter(*gets: Any, **answers: Any) -> FakeTransport:
    """gets: the HPA as each look sees it."""
    *rules, wanted = manifests(by_keda(), RULE_OPTIONS)
    [*_rules, hpa] = manifests(autoscalers("chat"), RULE_OPTIONS)
    left = {f"DELETE {RULES}/{name}": {} for name in NAMES[1:]}
    return cluster(
        ("chat",),
        [*rules, hpa_of_keda()],
        **{
            f"GET {SCALED_OBJECTS}": iter([{"items": [wanted]}, {"items": []}]),
            f"DELETE {SCALED_OBJECT}": {},
            f"GET {HPA}": iter(gets),
            f"PATCH {HPA}": hpa,
            **left,
            **answers,
        },
    )


def test_back_to_the_adapter_the_hpa_outlives_its_scaled_object() -> None:
    transport = back_to_the_adapter(hpa_of_keda(), hpa_of_keda(owner=False))
    outcome = run(transport, autoscalers("chat"))
    assert not outcome.errors
    assert sent(transport)[:2] == [f"DELETE {SCALED_OBJECT}", f"PATCH {HPA}"]
    deletion = next(request for request in transport.requests if request.method == "DELETE")
    assert deletion.body["propagationPolicy"] == "Orphan"
    applied = next(request for request in transport.requests if request.path == HPA and request.method == "PATCH")
    assert applied.body["metadata"]["uid"] == "hpa-1", "no other HPA of that name may be changed"
    assert sent(transport)[2:] == [f"DELETE {RULES}/{name}" for name in NAMES[1:]]


def test_an_hpa_that_keda_does_not_let_go_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "RELEASED_S", 0.0)
    transport = back_to_the_adapter(hpa_of_keda(), hpa_of_keda())
    with pytest.raises(HopError, match="ScaledObject ml/chat is still being deleted"):
        run(transport, autoscalers("chat"))
    assert sent(transport) == [f"DELETE {SCALED_OBJECT}"]


def test_a_preview_of_the_change_waits_for_nothing() -> None:
    transport = back_to_the_adapter(hpa_of_keda())
    outcome = run(transport, autoscalers("chat"), dry_run=True)
    assert outcome.changed
    assert all(request.query.get("dryRun") == "All" for request in transport.requests if request.method == "PATCH")


def test_removal_deletes_the_scaled_object_and_leaves_its_hpa_to_kubernetes() -> None:
    *rules, wanted = manifests(by_keda(), RULE_OPTIONS)
    transport = FakeTransport(
        {
            f"GET {HPAS}": iter([{"items": [hpa_of_keda()]}, {"items": []}]),
            f"GET {RULES}": {"items": rules},
            f"GET {SCALED_OBJECTS}": iter([{"items": [wanted]}, {"items": []}]),
            f"DELETE {SCALED_OBJECT}": {},
            **{f"DELETE {RULES}/{name}": {} for name in NAMES},
        }
    )
    outcome = remove(KubeClient(transport), [{"namespace": "ml", "name": "chat"}], RULE_OPTIONS)
    assert not outcome.errors
    assert sent(transport) == [f"DELETE {SCALED_OBJECT}", *(f"DELETE {RULES}/{name}" for name in NAMES)]
    deletion = next(request for request in transport.requests if request.method == "DELETE")
    assert deletion.body["propagationPolicy"] == "Background"


def test_without_the_right_to_list_scaled_objects_keda_s_hpa_keeps_the_rules() -> None:
    *rules, _wanted = manifests(by_keda(), RULE_OPTIONS)
    transport = FakeTransport(
        {
            f"GET {HPAS}": {"items": [hpa_of_keda()]},
            f"GET {RULES}": {"items": rules},
            f"GET {SCALED_OBJECTS}": refusal(403, "forbidden"),
            f"GET {KEDA}/namespaces/ml/scaledobjects": refusal(403, "forbidden"),
        }
    )
    outcome = remove(KubeClient(transport), [{"namespace": "ml", "name": "other"}], RULE_OPTIONS)
    assert sent(transport) == []
    assert outcome.result["rules"] == []
