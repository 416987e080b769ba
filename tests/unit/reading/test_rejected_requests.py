"""What is read of the requests that model servers reject."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.rejected_requests import Rejections
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import (
    PrometheusClient,
    Series,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.rejected_requests import read_rejections


class Counted(PrometheusClient):
    """A Prometheus with these rates by counter and pod; None if it does not answer."""

    def __init__(self, rates: dict[str, dict[str, float]] | None) -> None:
        self._rates, self.queries = rates, list[str]()

    def query(self, query: str, **_options: Any) -> list[Series]:
        self.queries.append(query)
        if self._rates is None:
            raise ApiError(503, "no endpoints", query)
        [pods] = [pods for counter, pods in self._rates.items() if counter in query]
        return [Series({"namespace": "ml", "pod": pod}, (rate,), (0.0,)) for pod, rate in pods.items()]


def autoscaler(metric: str, namespace: str = "ml") -> Autoscaler:
    target_value = {"target_value": 8} if metric == "llm_in_flight" else {}
    spec = {"namespace": namespace, "target": {"name": "chat"}, "max_replicas": 4, "metric": metric}
    return Autoscaler.from_params(spec | target_value)


@pytest.mark.parametrize("metric", ["llm", "llm_in_flight"])
def test_each_pod_has_its_rates(metric: str) -> None:
    prometheus = Counted({"admission_rejections": {"a": 65.0, "b": 0.0}, "request_success": {"a": 0.7}})
    found = read_rejections(prometheus, [autoscaler(metric), autoscaler("gpu", "other")])
    assert found == {("ml", "chat"): {"a": Rejections(65.0, 0.7), "b": Rejections(0.0, 0.0)}}
    assert all('namespace=~"ml"' in query for query in prometheus.queries)


def test_nothing_is_asked_where_no_model_server_is_read() -> None:
    prometheus = Counted(None)
    assert read_rejections(prometheus, [autoscaler("gpu")]) == {}
    assert prometheus.queries == []


def test_a_prometheus_that_is_away_says_nothing() -> None:
    assert read_rejections(Counted(None), [autoscaler("llm")]) == {}


@pytest.mark.parametrize(("rejected", "completed", "share"), [(0, 0, 0), (0, 3, 0), (1, 3, 0.25), (2, 0, 1)])
def test_the_share_is_of_the_requests_that_reached_the_pod(rejected: float, completed: float, share: float) -> None:
    assert Rejections(rejected, completed).share == share
