"""min_replicas: 0 on a cluster: whether its control plane can, and what would keep the workload awake or asleep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from fake_cluster import FakeTransport, refusal
from test_keda_backend import APISERVICE, KEDA, OF_KEDA, SCALED_OBJECT, SCALED_OBJECTS
from test_reconcile import DEPLOYMENTS, PROXY, RULE_OPTIONS, RULES, cluster, deployment, run

HPAS = "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers"
MANAGERS = "/api/v1/namespaces/kube-system/pods"
RULE = f"{RULES}/kubegpu-ml.chat"
GATE_OFF = "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"


def sleeper(**options: Any) -> Autoscaler:
    metric = {"name": "queue", "query": "gateway_queue", "per": "workload"}
    given = {"namespace": "ml", "target": {"name": "chat"}, "metric": metric, "target_value": 5, "max_replicas": 1}
    return Autoscaler.from_params({**given, "min_replicas": 0, **options})


def zero_cluster(*, value: str = "0", **answers: Any) -> FakeTransport:
    """Its API server accepts a minimum of 0, and everything that is applied. value: of the metric; empty for none."""
    rule, hpa = manifests([sleeper()], RULE_OPTIONS)
    row = [{"metric": {}, "value": [0, value]}] if value else []
    *_rules, wanted = manifests([replace(sleeper(), backend="keda")], RULE_OPTIONS)
    return cluster(
        ("chat",),
        [],
        **{
            f"POST {HPAS}": {},
            f"GET {MANAGERS}": {"items": []},
            f"GET {PROXY}/query": {"status": "success", "data": {"result": row}},
            f"PATCH {RULE}": rule,
            f"PATCH {HPAS}/chat": hpa,
            f"GET {SCALED_OBJECTS}": {"items": []},
            f"GET {KEDA}": {"resources": [{"name": "scaledobjects", "kind": "ScaledObject"}]},
            f"GET {APISERVICE}": OF_KEDA,
            "GET /version": {"gitVersion": "v1.34.1"},
            f"PATCH {SCALED_OBJECT}": wanted,
            **answers,
        },
    )


def at_zero(**status: Any) -> dict[str, Any]:
    """The workload has no replica, and its HPA this status."""
    chat = deployment("chat")
    chat["spec"]["replicas"] = 0
    [_rule, hpa] = manifests([sleeper()], RULE_OPTIONS)
    items = [{**hpa, "status": status}] if status else []
    return {
        f"GET {DEPLOYMENTS}": {"items": [chat]},
        "GET /apis/autoscaling/v2/horizontalpodautoscalers": {"items": items},
    }


BY_HPA = {"conditions": [{"type": "ScaledToZero", "status": "True"}]}


def changes(transport: FakeTransport) -> list[str]:
    return [request.path for request in transport.requests if request.method == "PATCH"]


def about_zero(warnings: list[str]) -> list[str]:
    return [warning for warning in warnings if "min_replicas is 0" in warning or "0 replicas" in warning]


def test_the_api_server_is_asked_before_anything_is_changed() -> None:
    transport = zero_cluster()
    outcome = run(transport, [sleeper()])
    assert not outcome.errors
    (asked,) = [request for request in transport.requests if request.method == "POST" and request.path == HPAS]
    assert asked.query == {"dryRun": "All"}
    assert (asked.body["spec"]["minReplicas"], asked.body["metadata"]["generateName"]) == (0, "kubegpu-zero-")
    assert changes(transport) == [RULE, f"{HPAS}/chat"]
    assert about_zero(outcome.warnings) == []


def test_a_control_plane_that_cannot_is_refused_with_its_own_words() -> None:
    transport = zero_cluster(**{f"POST {HPAS}": refusal(422, GATE_OFF)})
    with pytest.raises(HopError, match="must be greater than or equal to 1") as refused:
        run(transport, [sleeper()])
    assert "set backend: keda" in refused.value.fix
    assert changes(transport) == []


def test_a_controller_that_is_older_than_the_api_server_is_refused() -> None:
    container = {"image": "registry.k8s.io/kube-controller-manager:v1.36.3", "command": []}
    metadata = {"name": "kcm", "namespace": "kube-system", "labels": {"component": "kube-controller-manager"}}
    pod = {"metadata": metadata, "spec": {"containers": [container]}}
    transport = zero_cluster(**{f"GET {MANAGERS}": {"items": [pod]}})
    with pytest.raises(HopError, match=r"pod kcm \(kube-controller-manager:v1.36.3\) has the feature gate"):
        run(transport, [sleeper()])
    assert changes(transport) == []


def test_keda_needs_no_control_plane_that_can() -> None:
    """Nor one that keeps a tolerance: its HPA reads the total with that of the cluster."""
    transport = zero_cluster(**{f"POST {HPAS}": refusal(422, GATE_OFF)})
    outcome = run(transport, [replace(sleeper(), backend="keda")])
    assert not outcome.errors
    assert changes(transport) == [RULE, SCALED_OBJECT]


def test_with_a_minimum_of_one_nobody_is_asked() -> None:
    transport = zero_cluster()
    run(transport, [sleeper(min_replicas=1)])
    assert not [request for request in transport.requests if request.method == "POST"]


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("", "metric queue has no value at the moment"),
        ("0.02", "metric queue is 0.02 at the moment, for target 5"),
        ("0", ""),
        ("0.5", ""),
    ],
)
@pytest.mark.parametrize("backend", ["adapter", "keda"])
def test_a_value_that_keeps_it_awake_or_asleep_is_warned_of(value: str, seen: str, backend: str) -> None:
    outcome = run(zero_cluster(value=value), [replace(sleeper(), backend=backend)])
    warnings = about_zero(outcome.warnings)
    assert bool(warnings) is bool(seen)
    assert all(seen in warning for warning in warnings)


def test_a_tolerance_is_warned_of() -> None:
    outcome = run(zero_cluster(), [sleeper(scale_up={"tolerance": 0.2})])
    assert ["scale_up.tolerance is 0.2" in warning for warning in about_zero(outcome.warnings)] == [True]


@pytest.mark.parametrize(
    ("backend", "status", "seen"),
    [
        ("adapter", {}, "kubectl -n ml scale deployment chat --replicas=1"),
        ("adapter", {"conditions": []}, "Deployment chat has 0 replicas, and not by its HPA"),
        ("adapter", BY_HPA, ""),
        ("keda", {}, ""),
        ("keda", BY_HPA, "KEDA's HPA has a minimum of 1"),
    ],
    ids=["new", "by a person", "by the HPA", "new for KEDA", "from the HPA to KEDA"],
)
def test_a_workload_that_is_at_zero_already(backend: str, status: Manifest, seen: str) -> None:
    outcome = run(zero_cluster(**at_zero(**status)), [replace(sleeper(), backend=backend)])
    warnings = about_zero(outcome.warnings)
    assert bool(warnings) is bool(seen)
    assert all(seen in warning for warning in warnings)
