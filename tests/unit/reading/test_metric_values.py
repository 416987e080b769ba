"""What one look at many autoscalers asks for, and what it makes of the answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.scaled_object import scaled_object
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.autoscaler import AutoscalerState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.rejected_requests import Rejections
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.existing_autoscalers import read_autoscalers
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.metric_values import Observer
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.prometheus_replicas import read_replicas
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
    seen = Observer(kube, prometheus).observe(wanted)
    return [seen[autoscaler.key] for autoscaler in wanted]


def test_each_thing_is_read_once_however_many_autoscalers_there_are() -> None:
    transport = cluster()
    seen = observe(transport, *map(autoscaler, NAMES))
    asked = Counter(transport.asked)
    # The samples, and Prometheus' clock.
    assert asked.pop(f"GET {PROXY}/query") == 2
    assert set(asked.values()) == {1}
    assert len(asked) == 8
    assert all(state.is_proven for state in seen)
    assert [dict(state.metrics[0].values) for state in seen[:2]] == [{f"{name}-0": 41.5 for name in NAMES}] * 2
    described = seen[3].describe()
    assert described["pod_values"] == {"service-3-0": 41.5}
    assert (described["replicas"], described["desired_replicas"]) == (1, 2)


def test_one_that_is_alone_asks_for_its_own_pods_as_the_hpa_does() -> None:
    transport = cluster(("chat",))
    observe(transport, autoscaler("chat"))
    (request,) = [request for request in transport.requests if request.path.endswith("/pods/*/gpu")]
    assert request.query == {"labelSelector": "app=chat"}
    (pods,) = [request for request in transport.requests if request.path == "/api/v1/namespaces/ml/pods"]
    assert pods.query["labelSelector"] == "app=chat"


def test_what_the_cluster_has_besides_is_not_read() -> None:
    """Two namespaces of two hundred, and in them the pods of the autoscalers."""
    transport = cluster(("chat",))
    observe(transport, autoscaler("chat"), autoscaler("chat", namespace="web"))
    pods = [request for request in transport.requests if request.path.endswith("/pods")]
    assert {request.path for request in pods} == {"/api/v1/namespaces/ml/pods"}
    assert all(request.query.get("labelSelector") for request in pods)
    assert not {"GET /api/v1/pods", "GET /apis/apps/v1/deployments"} & set(transport.asked)
    assert "GET /apis/autoscaling/v2/horizontalpodautoscalers" not in transport.asked


def test_a_second_look_reads_no_targets_and_no_rules() -> None:
    transport = cluster(("chat",))
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    observer = Observer(kube, prometheus)
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
    observer = Observer(kube, prometheus)
    chat = autoscaler("chat")
    assert [observer.observe([chat])[chat.key].is_proven for _ in looks] == [False, True]


def test_the_window_of_a_rule_that_is_evaluated_rarely_is_longer() -> None:
    rules = {"data": {"groups": [{"interval": 60, "rules": [{"name": "namespace_pod:gpu:avg"}]}]}}
    transport = cluster(("chat",), **{f"GET {PROXY}/rules": rules})
    observe(transport, autoscaler("chat"))
    queries = [request.query["query"] for request in transport.requests if request.path.endswith("/query")]
    assert [query for query in queries if query.endswith("[120s]")]


def prometheus_pod(name: str, *, ready: bool = True) -> Manifest:
    metadata = {"name": name, "namespace": "monitoring", "labels": {"app": "prometheus"}}
    container = {"name": "prometheus", "ports": [{"name": "http-web", "containerPort": 9091}]}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": {"conditions": conditions}}


def replicas(*answers: Any, ready: int = 2) -> dict[str, Any]:
    """Two pods behind the Service of Prometheus, and what each answers to queries."""
    ports = [{"port": 9090, "targetPort": "http-web"}]
    service = {
        "metadata": {"name": "prometheus", "namespace": "monitoring"},
        "spec": {"selector": {"app": "prometheus"}, "ports": ports},
    }
    pods = [prometheus_pod(f"prometheus-{n}", ready=n < ready) for n in range(2)]
    return {
        "GET /api/v1/namespaces/monitoring/services/prometheus": service,
        "GET /api/v1/namespaces/monitoring/pods": {"items": pods},
        **{
            f"GET /api/v1/namespaces/monitoring/pods/prometheus-{n}:9091/proxy/api/v1/query": answer
            for n, answer in enumerate(answers)
        },
    }


def vector(*found: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"result": list(found)}}


def observe_replicas(transport: FakeTransport) -> AutoscalerState:
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    chat = autoscaler("chat")
    observer = Observer(kube, prometheus, read_replicas(kube, prometheus))
    return observer.observe([chat])[chat.key]


def test_each_replica_of_prometheus_is_asked_and_a_value_of_either_agrees() -> None:
    """The adapter gave 41.5, as the second replica has it; the first one scraped at moments of 90."""
    other = {**recorded("chat"), "values": [[101, "90"], [103, "90"]]}
    seen = observe_replicas(cluster(("chat",), **replicas(vector(other), vector(recorded("chat")))))
    assert seen.is_proven
    assert list(seen.metrics[0].recorded["chat-0"]) == [40, 90, 42, 90]
    assert seen.metrics[0].sampled_s["chat-0"] == 103


def test_what_only_one_replica_has_proves_nothing() -> None:
    seen = observe_replicas(cluster(("chat",), **replicas(vector(recorded("chat")), vector())))
    assert not seen.is_proven
    assert seen.metrics[0].missing_in_prometheus == ["chat-0"]


@pytest.mark.parametrize(
    "answers",
    [
        replicas(vector(), vector(), ready=1),
        replicas(vector(), refusal(403, "pods/proxy is forbidden")),
        {**replicas(vector(), vector()), "GET /api/v1/namespaces/monitoring/pods": refusal(403, "pods is forbidden")},
        {"GET /api/v1/namespaces/monitoring/services/prometheus": refusal(403, "services is forbidden")},
    ],
    ids=["one is ready", "no right to the proxy", "no right to pods", "no right to the Service"],
)
def test_where_replicas_cannot_be_told_apart_the_service_is_asked(answers: dict[str, Any]) -> None:
    seen = observe_replicas(cluster(("chat",), **answers))
    assert seen.is_proven
    assert list(seen.metrics[0].recorded["chat-0"]) == [40, 42]


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


def test_of_keda_the_values_are_those_that_the_decision_consists_of() -> None:
    """A mixed namespace: neither backend is asked for the other's pods."""
    decided = {"metric": {"namespace": "ml", "pod": "embed-0"}, "value": [0, "41.5"]}
    transport = cluster(("chat", "embed"))
    answers = transport.answers
    answers["GET /apis/external.metrics.k8s.io/v1beta1"] = {"resources": [{"name": "externalmetrics"}]}
    by_keda = replace(autoscaler("embed"), backend="keda")

    class Decided(FakeTransport):
        def __call__(self, method: str, path: str, **request: Any) -> Any:
            answer = super().__call__(method, path, **request)
            query = request["query"].get("query", "")
            if query == 'namespace_workload_pod:gpu_decision:value{namespace="ml"} / 1000':
                return {"status": "success", "data": {"resultType": "vector", "result": [decided]}}
            return answer

    by_adapter, seen = observe(Decided(answers), autoscaler("chat"), by_keda)
    assert dict(seen.metrics[0].values) == {"embed-0": 41.5}
    assert (seen.metrics[0].group, seen.metrics[0].backend) == ("external.metrics.k8s.io", "keda")
    assert seen.metrics[0].listed
    assert seen.metrics[0].is_proven
    assert by_adapter.metrics[0].group == "custom.metrics.k8s.io"
    assert by_adapter.metrics[0].is_proven


def test_a_refused_query_of_decisions_is_the_refusal_of_the_metric() -> None:
    class Refusing(FakeTransport):
        def __call__(self, method: str, path: str, **request: Any) -> Any:
            if "gpu_decision:value" in request["query"].get("query", ""):
                raise refusal(422, "too many samples", errorType="execution", error="too many samples")
            return super().__call__(method, path, **request)

    transport = Refusing(cluster(("chat",)).answers)
    (seen,) = observe(transport, replace(autoscaler("chat"), backend="keda"))
    assert "too many samples" in seen.metrics[0].refusal
    assert not seen.metrics[0].is_proven


def test_rejections_are_those_of_the_ready_pods_of_the_target() -> None:
    """The same samples answer each query here, those of other pods among them."""
    transport = cluster(("chat", "embed"))
    chat, embed = observe(transport, autoscaler("chat", metric="llm"), autoscaler("embed"))
    assert chat.rejections == {"chat-0": Rejections(42.0, 42.0)}
    assert embed.rejections == {}


def test_a_pod_that_is_not_ready_rejects_nothing() -> None:
    pods = {"items": [pod("chat-0", "chat", ready=False)]}
    transport = cluster(("chat",), **{"GET /api/v1/namespaces/ml/pods": pods})
    [chat] = observe(transport, autoscaler("chat", metric="llm"))
    assert chat.rejections == {}


@pytest.mark.parametrize(("backend", "is_scaling"), [("adapter", True), ("keda", False)])
def test_the_hpa_of_the_backend_before_is_no_proof(backend: str, is_scaling: bool) -> None:
    """KEDA adopts it a moment later. Until then it reads the metrics of the adapter."""
    (seen,) = observe(cluster(("chat",)), replace(autoscaler("chat"), backend=backend))
    assert seen.is_scaling is is_scaling


def test_an_autoscaler_is_read_from_its_scaled_object_until_keda_has_made_the_hpa() -> None:
    wanted = scaled_object(replace(autoscaler("chat", target_value=45), backend="keda"), RuleOptions())
    theirs = {**wanted, "metadata": {"namespace": "ml", "name": "theirs", "annotations": {}}}
    hpas = "GET /apis/autoscaling/v2/horizontalpodautoscalers"
    for live in ([], [hpa("chat")]):
        answers = {hpas: {"items": live}, "GET /apis/keda.sh/v1alpha1/scaledobjects": {"items": [wanted, theirs]}}
        found = read_autoscalers(KubeClient(FakeTransport(answers)), "monitoring", namespace=None, keys=())
        (read,) = [made for _hpa, made in found]
        assert (read.key, read.backend, read.target_value) == (("ml", "chat"), "keda", 45)
