"""The hops that a real control plane is not easily brought to break."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils._flows.diagnose import first_broken_hop
from ansible_collections.kubegpu.autoscale.plugins.module_utils._flows.observe import Observation
from ansible_collections.kubegpu.autoscale.plugins.module_utils.clients import ApiError, KubeClient, PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import Autoscaler
from fake_cluster import FakeTransport

PROXY = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1"
CUSTOM_METRICS = "/apis/custom.metrics.k8s.io/v1beta1"

CHAT = Autoscaler.from_params({"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4})

GOOD = Observation(
    replicas=1,
    ready_pods=frozenset({"chat-0"}),
    values={"chat-0": 41.0},
    refusal="",
    recorded={"chat-0": (40.0, 42.0)},
    conditions={"ScalingActive": {"status": "True"}},
)


def data(**content: Any) -> dict[str, Any]:
    return {"status": "success", "data": content}


ANSWERS: dict[str, Any] = {
    f"GET {PROXY}/query": data(result=[{"metric": {"namespace": "ml", "pod": "chat-0"}, "value": [0, "1"]}]),
    f"GET {PROXY}/rules": data(groups=[{"rules": [{"name": "namespace_pod:gpu:avg", "health": "ok"}]}]),
    f"GET {CUSTOM_METRICS}": {"resources": [{"name": "pods/gpu"}, {"name": "namespaces/gpu"}]},
}
FAILING_RULE = {"name": "namespace_pod:gpu:avg", "health": "err", "lastError": "many-to-many matching"}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "scaled to nothing": ({"replicas": 0}, {}, "workload", "has 0 replicas"),
    "nothing ready": ({"ready_pods": frozenset()}, {}, "workload", "none of the pods"),
    "prometheus down": (
        {},
        {f"GET {PROXY}/query": ApiError(503, "no endpoints", "")},
        "exporter -> Prometheus",
        "does not answer: no endpoints",
    ),
    "rule that fails": (
        {},
        {f"GET {PROXY}/rules": data(groups=[{"rules": [FAILING_RULE]}])},
        "Prometheus -> recording rule",
        "many-to-many matching",
    ),
    "no series": ({"recorded": {}}, {}, "recording rule -> series", "no value for pod ml/chat-0"),
    "metric not listed": (
        {},
        {f"GET {CUSTOM_METRICS}": {"resources": [{"name": "pods/gpu_util"}]}},
        "series -> adapter",
        "does not list pods/gpu",
    ),
    "no value": (
        {"values": {}, "refusal": "no metrics returned"},
        {},
        "adapter -> custom.metrics.k8s.io",
        "no gpu for pod ml/chat-0: no metrics returned",
    ),
    "another value": (
        {"values": {"chat-0": 90.0}},
        {},
        "adapter -> custom.metrics.k8s.io",
        "gpu of pod ml/chat-0 is 90, Prometheus recorded 40 to 42",
    ),
    "no condition": ({"conditions": {}}, {}, "custom.metrics.k8s.io -> HPA", "no condition yet"),
    "only now": ({}, {}, "custom.metrics.k8s.io -> HPA", "only now"),
}


@pytest.mark.parametrize(("changes", "answers", "hop", "seen"), CASES.values(), ids=CASES)
def test_first_broken_hop(changes: dict[str, Any], answers: dict[str, Any], hop: str, seen: str) -> None:
    kube = KubeClient(FakeTransport({**ANSWERS, **answers}))
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    finding = first_broken_hop(kube, prometheus, CHAT, replace(GOOD, **changes))
    assert finding.hop == hop
    assert seen in finding.seen
    assert finding.fix


def test_the_leftmost_of_several_broken_hops_is_named() -> None:
    kube = KubeClient(FakeTransport({f"GET {PROXY}/query": data(result=[])}))
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    everything = replace(GOOD, values={}, recorded={}, conditions={})
    assert first_broken_hop(kube, prometheus, CHAT, everything).hop == "exporter -> Prometheus"


@pytest.mark.parametrize(
    ("changes", "verified"),
    [
        ({}, True),
        ({"values": {"chat-0": 42.005}}, True),
        ({"values": {"chat-0": 43.0}}, False),
        ({"values": {}}, False),
        ({"recorded": {}}, False),
        ({"ready_pods": frozenset()}, False),
        ({"ready_pods": frozenset({"chat-0", "chat-1"})}, False),
        ({"conditions": {"ScalingActive": {"status": "False"}}}, False),
    ],
)
def test_what_counts_as_verified(changes: dict[str, Any], verified: bool) -> None:
    assert replace(GOOD, **changes).is_verified is verified
