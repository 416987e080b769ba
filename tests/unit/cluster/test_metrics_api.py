"""Paths and versions: those of k8s.io/metrics, the HPA controller's own client."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.metrics_api import (
    EXTERNAL_METRICS,
    MetricsApi,
    MetricValue,
)
from fake_cluster import FakeTransport, Request, refusal

CUSTOM = "/apis/custom.metrics.k8s.io"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
NOW = "2026-11-21T03:21:57Z"


def group(*versions: str, preferred: str = "") -> dict[str, Any]:
    """The group as /apis/custom.metrics.k8s.io shows it; the API server prefers the first version."""
    served = [{"groupVersion": f"custom.metrics.k8s.io/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "versions": served, "preferredVersion": {"version": preferred or versions[0]}}


def metrics_api(answers: dict[str, Any]) -> tuple[MetricsApi, FakeTransport]:
    transport = FakeTransport({f"GET {CUSTOM}": group("v1beta1"), **answers})
    return MetricsApi(KubeClient(transport).get_raw), transport


def pod(name: str, value: str) -> dict[str, Any]:
    described = {"kind": "Pod", "namespace": "ml", "name": name, "apiVersion": "/v1"}
    return {"describedObject": described, "metricName": "gpu", "timestamp": NOW, "value": value, "selector": None}


CASES: dict[str, tuple[dict[str, Any], str, dict[str, str]]] = {
    "all pods": ({"namespace": "ml"}, "/namespaces/ml/pods/*/gpu", {}),
    "one pod": ({"namespace": "ml", "name": "chat-0"}, "/namespaces/ml/pods/chat-0/gpu", {}),
    "pods by label": (
        {"namespace": "ml", "label_selector": "app in (chat, b),tier!=x"},
        "/namespaces/ml/pods/*/gpu",
        {"labelSelector": "app in (chat, b),tier!=x"},
    ),
    "series by label": (
        {"namespace": "ml", "metric_label_selector": "model=a"},
        "/namespaces/ml/pods/*/gpu",
        {"metricLabelSelector": "model=a"},
    ),
    "another group": (
        {"namespace": "ml", "resource": "deployments.apps", "name": "chat"},
        "/namespaces/ml/deployments.apps/chat/gpu",
        {},
    ),
    "root-scoped": ({"namespace": None, "resource": "nodes"}, "/nodes/*/gpu", {}),
    "one node": ({"namespace": None, "resource": "nodes", "name": "gpu1"}, "/nodes/gpu1/gpu", {}),
    "a namespace": ({"namespace": None, "resource": "namespaces", "name": "ml"}, "/namespaces/ml/metrics/gpu", {}),
    "an HPA's own namespace": ({"namespace": "ml", "resource": "namespaces"}, "/namespaces/ml/metrics/gpu", {}),
    "quoted": ({"namespace": "ml", "name": "a b?c"}, "/namespaces/ml/pods/a%20b%3Fc/gpu", {}),
}


@pytest.mark.parametrize(("asked", "path", "query"), CASES.values(), ids=CASES)
def test_custom_metrics_are_asked_for_where_the_controller_asks(
    asked: dict[str, Any], path: str, query: dict[str, str]
) -> None:
    api, transport = metrics_api({f"GET {CUSTOM}/v1beta1{path}": {"items": []}})
    assert api.custom("gpu", **asked) == []
    assert transport.requests == [Request("GET", CUSTOM, {}), Request("GET", f"{CUSTOM}/v1beta1{path}", query)]


def test_external_metrics_are_asked_for_in_lower_case() -> None:
    """client-go lowers what stands where paths have a resource, so an HPA does not find a metric in upper case."""
    path = f"{EXTERNAL}/namespaces/ml/s0-queue%7Clength"
    series = {"metricName": "s0-queue|length", "metricLabels": {"queue": "a"}, "timestamp": NOW, "value": "1500m"}
    api, transport = metrics_api({f"GET {path}": {"items": [series]}})
    found = api.external("s0-Queue|Length", namespace="ml", label_selector="queue=a")
    assert found == [MetricValue("", "", "", 1.5, NOW, {"queue": "a"})]
    assert transport.requests == [Request("GET", path, {"labelSelector": "queue=a"})]


def test_values_say_which_object_they_belong_to() -> None:
    items = [pod("chat-0", "41500m"), pod("chat-1", "1e2")]
    api, _transport = metrics_api({f"GET {CUSTOM}/v1beta1/namespaces/ml/pods/*/gpu": {"items": items}})
    assert api.custom("gpu", namespace="ml") == [
        MetricValue("Pod", "ml", "chat-0", 41.5, NOW),
        MetricValue("Pod", "ml", "chat-1", 100, NOW),
    ]


def test_an_object_outside_of_namespaces() -> None:
    node = {"describedObject": {"kind": "Node", "name": "gpu1"}, "timestamp": None, "value": "3"}
    api, _transport = metrics_api({f"GET {CUSTOM}/v1beta1/nodes/*/gpu": {"items": [node]}})
    assert api.custom("gpu", namespace=None, resource="nodes") == [MetricValue("Node", "", "gpu1", 3, "")]


@pytest.mark.parametrize(
    ("served", "asked"),
    [
        (group("v1beta1"), "v1beta1"),
        (group("v1beta2", "v1beta1"), "v1beta2"),
        (group("v1beta2", "v1beta1", preferred="v1beta1"), "v1beta1"),
        (group("v2", "v1beta1"), "v1beta1"),
    ],
)
def test_the_version_is_the_one_that_discovery_prefers(served: dict[str, Any], asked: str) -> None:
    path = f"{CUSTOM}/{asked}"
    api, transport = metrics_api({f"GET {CUSTOM}": served, f"GET {path}": {"resources": None}})
    assert api.version() == asked
    assert api.listed() == set()
    assert transport.asked == [f"GET {CUSTOM}", f"GET {path}"]


def test_versions_that_no_hpa_reads() -> None:
    api, _transport = metrics_api({f"GET {CUSTOM}": group("v2", "v3")})
    with pytest.raises(ApiError, match="501: served as v2, v3, which no HPA reads"):
        api.listed()


def test_metrics_are_listed_by_the_names_of_discovery() -> None:
    custom = {"resources": [{"name": "pods/gpu"}, {"name": "namespaces/gpu"}, {"name": "deployments.apps/queue"}]}
    external = {"resources": [{"name": "s0-queue"}]}
    api, transport = metrics_api({f"GET {CUSTOM}/v1beta1": custom, f"GET {EXTERNAL}": external})
    assert api.listed() == {"pods/gpu", "namespaces/gpu", "deployments.apps/queue"}
    assert api.listed(EXTERNAL_METRICS) == {"s0-queue"}
    assert transport.asked == [f"GET {CUSTOM}", f"GET {CUSTOM}/v1beta1", f"GET {EXTERNAL}"]


@pytest.mark.parametrize("status", [403, 404, 503])
def test_refusals_come_through(status: int) -> None:
    refused = refusal(status, "no")
    api, _transport = metrics_api(
        {f"GET {CUSTOM}/v1beta1": refused, f"GET {CUSTOM}/v1beta1/namespaces/ml/pods/*/gpu": refused}
    )
    for ask in (api.listed, lambda: api.custom("gpu", namespace="ml")):
        with pytest.raises(ApiError) as caught:
            ask()
        assert caught.value.status == status


def test_an_api_that_is_not_there_yet() -> None:
    api, transport = metrics_api({f"GET {CUSTOM}": refusal(404, "404 page not found")})
    with pytest.raises(ApiError) as caught:
        api.listed()
    assert caught.value.is_not_found
    transport.answers |= {f"GET {CUSTOM}": group("v1beta2"), f"GET {CUSTOM}/v1beta2": {"resources": []}}
    assert api.listed() == set()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("<html>a proxy's login</html>", "has no items"),
        ({"resources": []}, "has no items"),
        ({"items": [pod("chat-0", "much")]}, "'much' is not a Kubernetes quantity"),
        ({"items": [{"describedObject": None}]}, "'None' is not a Kubernetes quantity"),
    ],
)
def test_an_answer_that_is_no_metric_apis(answer: Any, message: str) -> None:
    api, _transport = metrics_api({f"GET {CUSTOM}/v1beta1/namespaces/ml/pods/*/gpu": answer})
    with pytest.raises(ApiError, match=message):
        api.custom("gpu", namespace="ml")
