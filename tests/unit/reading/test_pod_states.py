"""The states of pods are asked for where an HPA of KEDA reads decisions, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import (
    PrometheusClient,
    Series,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.prometheus_queries import ask_prometheus
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.unread_parts import UnreadParts

TOTAL = {"metric": {"name": "queue", "query": "sum(gateway_queue)", "per": "workload"}, "metric_type": "Object"}


class Asked(PrometheusClient):
    """It remembers its queries, and answers those about the states of pods."""

    def __init__(self) -> None:
        super().__init__(lambda *_args, **_more: {}, namespace="monitoring", service="prometheus", port=9090)
        self.queries: list[str] = []

    def query(self, promql: str) -> list[Series]:
        self.queries.append(promql)
        if promql.startswith("count by (__name__)"):
            return [Series({"__name__": "kube_pod_status_phase"}, (7.0,))]
        return [Series({"job": "states"}, (30.0,))] if promql.startswith("120 /") else []

    def recording_rules(self) -> list[dict[str, Any]]:
        return []

    def runtime(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("options", "reads"),
    [({}, False), ({"backend": "keda"}, True), ({"backend": "keda", "target_value": 5, **TOTAL}, False)],
)
def test_only_decisions_need_them(options: dict[str, Any], reads: bool) -> None:
    wanted = Autoscaler.from_params({"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4, **options})
    client = Asked()
    state = ask_prometheus(UnreadParts(), client, [], 0.0, [wanted], [])
    assert any("kube_pod_status_phase" in query for query in client.queries) is reads
    assert [row.labels["__name__"] for row in state.pod_states] == (["kube_pod_status_phase"] if reads else [])
    assert [row.value for row in state.pod_states_every] == ([30.0] if reads else [])
