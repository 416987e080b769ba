"""What a change asks of a cluster before it is made."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.change_reader import ChangeReader
from fake_cluster import FakeTransport, refusal

HPAS = "GET /apis/autoscaling/v2/horizontalpodautoscalers"
RESOURCE_API = "GET /apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
SERVICE = {"service": {"namespace": "kube-system", "name": "metrics-server"}}
AWAY = {"type": "Available", "status": "False", "reason": "MissingEndpoints", "message": "no endpoints"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


def before(transport: FakeTransport, *extra: dict[str, Any]) -> ChangeReader:
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    spec = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 1, "extra_metrics": list(extra)}
    return ChangeReader(kube, prometheus, [Autoscaler.from_params(spec)], "monitoring")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (refusal(404, "not found"), "no server is registered for metrics.k8s.io"),
        (
            {"metadata": {}, "spec": SERVICE, "status": {"conditions": [AWAY]}},
            "service kube-system/metrics-server does not answer: MissingEndpoints: no endpoints",
        ),
        ({"metadata": {}, "spec": SERVICE}, ""),
        (refusal(403, "no"), ""),
    ],
    ids=["none", "away", "there", "no right to see it"],
)
def test_cpu_needs_a_server_of_resource_metrics(answer: Any, why: str) -> None:
    transport = FakeTransport({HPAS: {"items": []}, RESOURCE_API: answer})
    assert before(transport, CPU).state(RuleOptions()).proposal.no_resources == why


def test_gpus_need_no_server_of_resource_metrics() -> None:
    transport = FakeTransport({HPAS: {"items": []}})
    assert before(transport).state(RuleOptions()).proposal.no_resources == ""
    assert RESOURCE_API not in transport.asked
