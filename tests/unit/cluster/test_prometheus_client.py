from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError, QueryError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import (
    PrometheusClient,
    Series,
)
from fake_cluster import FakeTransport, Request, refusal

ROOT = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1"


def prometheus(answers: dict[str, Any]) -> tuple[PrometheusClient, FakeTransport]:
    transport = FakeTransport(answers)
    kube = KubeClient(transport)
    return PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090), transport


def test_an_instant_and_a_range() -> None:
    now = {"metric": {"pod": "chat-0"}, "value": [1700000000.1, "41.5"]}
    lately = {"metric": {"pod": "chat-1"}, "values": [[1700000000, "1"], [1700000002, "NaN"], [1700000004, "3"]]}
    client, transport = prometheus({f"GET {ROOT}/query": {"status": "success", "data": {"result": [now, lately]}}})
    first, second = client.query('up{job="a b"}')
    assert first == Series({"pod": "chat-0"}, (41.5,), (1700000000.1,))
    assert (second.values[0], second.values[2]) == (1, 3)
    assert second.times == (1700000000, 1700000002, 1700000004)
    assert transport.requests == [Request("GET", f"{ROOT}/query", {"query": 'up{job="a b"}'})]


def test_a_scalar_is_a_series_without_labels() -> None:
    answer = {"status": "success", "data": {"resultType": "scalar", "result": [1700000000.5, "1700000000.5"]}}
    client, _transport = prometheus({f"GET {ROOT}/query": answer})
    assert client.query("time()") == [Series({}, (1700000000.5,), (1700000000.5,))]


def test_recording_rules_of_all_groups() -> None:
    groups = [{"interval": 2, "rules": [{"name": "a"}, {"name": "b"}]}, {"interval": 30, "rules": [{"name": "c"}]}]
    client, transport = prometheus({f"GET {ROOT}/rules": {"status": "success", "data": {"groups": groups}}})
    assert [(rule["name"], rule["interval"]) for rule in client.recording_rules()] == [("a", 2), ("b", 2), ("c", 30)]
    assert transport.requests[0].query == {"type": "record"}


def test_a_query_that_prometheus_refuses() -> None:
    body = {"status": "error", "errorType": "bad_data", "error": "parse error: unclosed left parenthesis"}
    client, _transport = prometheus({f"GET {ROOT}/query": ApiError(400, body, "a request")})
    with pytest.raises(QueryError, match="unclosed left parenthesis"):
        client.query("sum(")


@pytest.mark.parametrize(
    "answer", [refusal(503, "no endpoints available"), "<html>a proxy's login</html>", {"status": "ok"}]
)
def test_no_prometheus_at_that_address(answer: Any) -> None:
    client, _transport = prometheus({f"GET {ROOT}/query": answer})
    with pytest.raises(ApiError):
        client.query("up")


def test_a_service_with_tls_and_a_prefix() -> None:
    path = "/api/v1/namespaces/monitoring/services/https:prometheus:9090/proxy/prom/api/v1/query"
    transport = FakeTransport({f"GET {path}": {"data": {"resultType": "vector", "result": []}}})
    kube = KubeClient(transport)
    place = {"namespace": "monitoring", "service": "prometheus", "port": 9090}
    assert PrometheusClient(kube.get_raw, **place, scheme="https", path_prefix="/prom/").query("up") == []
