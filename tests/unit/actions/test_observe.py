"""What one look at many autoscalers asks for, and what it makes of the answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.backend import PrometheusAdapter
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.observe import Observer
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import Manifest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state import AutoscalerState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus import PrometheusClient
from fake_cluster import FakeTransport, refusal

PROXY = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1"
CUSTOM = "/apis/custom.metrics.k8s.io"
NAMES = tuple(f"service-{number}" for number in range(50))


def autoscaler(name: str, **changes: Any) -> Autoscaler:
    return Autoscaler.from_params({"namespace": "ml", "target": {"name": name}, "max_replicas": 4, **changes})


def deployment(name: str) -> Manifest:
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}}
    return {"metadata": {"name": name, "namespace": "ml"}, "spec": spec}


def pod(name: str, app: str, *, ready: bool = True, **metadata: Any) -> Manifest:
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "metadata": {"name": name, "namespace": "ml", "labels": {"app": app}, **metadata},
        "spec": {},
        "status": {"conditions": [condition]},
    }


def value(name: str) -> dict[str, Any]:
    described = {"kind": "Pod", "namespace": "ml", "name": f"{name}-0"}
    return {"describedObject": described, "metricName": "gpu", "timestamp": "2026-01-01T00:00:00Z", "value": "41500m"}


def recorded(name: str) -> dict[str, Any]:
    labels = {"__name__": "namespace_pod:gpu:avg", "namespace": "ml", "pod": f"{name}-0"}
    return {"metric": labels, "values": [[100, "40"], [102, "42"]]}


def hpa(name: str) -> Manifest:
    average = {"type": "AverageValue", "averageValue": "60"}
    gpu = {"type": "Pods", "pods": {"metric": {"name": "gpu"}, "target": average}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "maxReplicas": 4, "metrics": [gpu]}
    status = {
        "desiredReplicas": 2,
        "conditions": [{"type": "ScalingActive", "status": "True"}],
        "currentMetrics": [gpu],
    }
    return {"metadata": {"name": name, "namespace": "ml"}, "spec": spec, "status": status}


def cluster(names: tuple[str, ...] = NAMES, **answers: Any) -> FakeTransport:
    return FakeTransport(
        {
            "GET /apis/apps/v1": {
                "resources": [
                    {"name": "deployments", "kind": "Deployment"},
                    {"name": "deployments/scale", "kind": "Scale"},
                ]
            },
            "GET /apis/apps/v1/namespaces/ml/deployments": {"items": [deployment(name) for name in names]},
            "GET /api/v1/namespaces/ml/pods": {"items": [pod(f"{name}-0", name) for name in names]},
            "GET /apis/autoscaling/v2/horizontalpodautoscalers": {"items": [hpa(name) for name in names]},
            "GET /apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io": {
                "metadata": {"name": "v1beta1.custom.metrics.k8s.io"},
                "spec": {"service": {"namespace": "monitoring", "name": "prometheus-adapter"}},
            },
            f"GET {CUSTOM}": {
                "preferredVersion": {"version": "v1beta1"},
                "versions": [{"version": "v1beta1"}],
            },
            f"GET {CUSTOM}/v1beta1": {"resources": [{"name": "pods/gpu"}]},
            f"GET {CUSTOM}/v1beta1/namespaces/ml/pods/*/gpu": {"items": [value(name) for name in names]},
            f"GET {PROXY}/query": {
                "status": "success",
                "data": {"result": [recorded(name) for name in (*names, "other")]},
            },
            **answers,
        }
    )


def observe(transport: FakeTransport, *wanted: Autoscaler) -> list[AutoscalerState]:
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    seen = Observer(kube, prometheus, PrometheusAdapter(kube)).observe(wanted)
    return [seen[each.key] for each in wanted]


def test_each_thing_is_read_once_however_many_autoscalers_there_are() -> None:
    transport = cluster()
    seen = observe(transport, *map(autoscaler, NAMES))
    asked = Counter(transport.asked)
    # The samples, and Prometheus' clock.
    assert asked.pop(f"GET {PROXY}/query") == 2
    assert set(asked.values()) == {1}
    assert len(asked) == 8
    assert all(each.is_proven for each in seen)
    assert [dict(each.metrics[0].values) for each in seen[:2]] == [{f"{name}-0": 41.5 for name in NAMES}] * 2
    described = seen[3].describe()
    assert described["values"] == {"service-3-0": 41.5}
    assert (described["replicas"], described["desired_replicas"]) == (1, 2)


def test_one_that_is_alone_asks_for_its_own_pods_as_the_hpa_does() -> None:
    transport = cluster(("chat",))
    observe(transport, autoscaler("chat"))
    (request,) = [each for each in transport.requests if each.path.endswith("/pods/*/gpu")]
    assert request.query == {"labelSelector": "app=chat"}
    (pods,) = [each for each in transport.requests if each.path == "/api/v1/namespaces/ml/pods"]
    assert pods.query["labelSelector"] == "app=chat"


def test_what_the_cluster_has_besides_is_not_read() -> None:
    """Two namespaces of two hundred, and in them the pods of the autoscalers."""
    transport = cluster(("chat",))
    observe(transport, autoscaler("chat"), autoscaler("chat", namespace="web"))
    pods = [each for each in transport.requests if each.path.endswith("/pods")]
    assert {each.path for each in pods} == {"/api/v1/namespaces/ml/pods"}
    assert all(each.query.get("labelSelector") for each in pods)
    assert not {"GET /api/v1/pods", "GET /apis/apps/v1/deployments"} & set(transport.asked)
    assert "GET /apis/autoscaling/v2/horizontalpodautoscalers" not in transport.asked


def test_a_second_look_reads_no_targets_and_no_rules() -> None:
    transport = cluster(("chat",))
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    observer = Observer(kube, prometheus, PrometheusAdapter(kube))
    observer.observe([autoscaler("chat")])
    transport.requests.clear()
    observer.observe([autoscaler("chat")])
    assert not [path for path in transport.asked if "deployments" in path or path.endswith(("/v1", "/rules"))]


def test_pods_need_not_agree_with_prometheus_all_at_once() -> None:
    """Each agrees in one look of two, while the other one's load has just changed."""
    names = ("a", "b")
    transport = cluster(("chat",))
    transport.answers["GET /api/v1/namespaces/ml/pods"] = {"items": [pod(f"{name}-0", "chat") for name in names]}
    looks = [{"a-0": "41", "b-0": "90"}, {"a-0": "90", "b-0": "41"}]
    answers = [
        {"items": [{**value(name), "value": look[f"{name}-0"]} for name in names if f"{name}-0" in look]}
        for look in looks
    ]
    transport.answers[f"GET {CUSTOM}/v1beta1/namespaces/ml/pods/*/gpu"] = iter(answers)
    transport.answers[f"GET {PROXY}/query"] = {
        "status": "success",
        "data": {"result": [recorded(name) for name in names]},
    }
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    observer = Observer(kube, prometheus, PrometheusAdapter(kube))
    chat = autoscaler("chat")
    assert [observer.observe([chat])[chat.key].is_proven for _ in looks] == [False, True]


def test_the_window_of_a_rule_that_is_evaluated_rarely_is_longer() -> None:
    rules = {"data": {"groups": [{"interval": 60, "rules": [{"name": "namespace_pod:gpu:avg"}]}]}}
    transport = cluster(("chat",), **{f"GET {PROXY}/rules": rules})
    observe(transport, autoscaler("chat"))
    queries = [each.query["query"] for each in transport.requests if each.path.endswith("/query")]
    assert [query for query in queries if query.endswith("[120s]")]


PODS: dict[str, tuple[list[Manifest], set[str], set[str]]] = {
    "ready": ([pod("chat-0", "chat")], {"chat-0"}, {"chat-0"}),
    "not ready": ([pod("chat-0", "chat", ready=False)], {"chat-0"}, set()),
    "going": ([pod("chat-0", "chat", deletionTimestamp="2026-01-01T00:00:00Z")], set(), set()),
    "another's": ([pod("embed-0", "embed")], set(), set()),
}


@pytest.mark.parametrize(("pods", "its", "ready"), PODS.values(), ids=PODS)
def test_which_pods_count(pods: list[Manifest], its: set[str], ready: set[str]) -> None:
    transport = cluster(("chat",), **{"GET /api/v1/namespaces/ml/pods": {"items": pods}})
    (seen,) = observe(transport, autoscaler("chat"))
    assert ({name for _namespace, name in seen.pod_keys}, set(seen.describe()["ready_pods"])) == (its, ready)


def test_a_target_of_unknown_shape_is_asked_for_its_scale() -> None:
    rollout = {"kind": "Rollout", "name": "chat"}
    version = "/apis/argoproj.io/v1alpha1"
    scale = {"spec": {"replicas": 3}, "status": {"selector": "app in (chat),example.com/tier!=canary"}}
    transport = cluster(
        ("chat",),
        **{
            f"GET {version}": {
                "resources": [{"name": "rollouts", "kind": "Rollout"}, {"name": "rollouts/scale", "kind": "Scale"}]
            },
            f"GET {version}/namespaces/ml/rollouts": {
                "items": [{"metadata": {"name": "chat", "namespace": "ml"}, "spec": {}}]
            },
            f"GET {version}/namespaces/ml/rollouts/chat/scale": scale,
        },
    )
    (seen,) = observe(transport, autoscaler("chat", target=rollout))
    assert (seen.target is not None, seen.replicas, seen.describe()["ready_pods"]) == (True, 3, ["chat-0"])


def test_what_does_not_answer_leaves_no_evidence() -> None:
    away = {f"GET {PROXY}/query": refusal(503, "no endpoints"), f"GET {CUSTOM}/v1beta1": refusal(503, "no endpoints")}
    path = f"GET {CUSTOM}/v1beta1/namespaces/ml/pods/*/gpu"
    (seen,) = observe(cluster(("chat",), **away, **{path: refusal(503, "no endpoints")}), autoscaler("chat"))
    (metric,) = seen.metrics
    assert (metric.listed, metric.values, metric.recorded, metric.oldest_sample_s) == (None, {}, {}, None)
    assert metric.refusal == "no endpoints"


def test_a_target_that_is_gone() -> None:
    (seen,) = observe(cluster(()), autoscaler("chat"))
    assert (seen.target, seen.is_hopeless, seen.is_proven) == (None, True, False)
