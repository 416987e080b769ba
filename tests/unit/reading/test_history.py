"""Whose series a history is made of."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import Series
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.history import read_history


class Prometheus:
    """One series a query: that of the metric."""

    def __init__(self, series: Series) -> None:
        self._series = series

    def query(self, promql: str) -> list[Series]:
        return [] if promql.startswith("kube_") else [self._series]


def is_taken(labels: dict[str, str], **given: Any) -> bool:
    autoscaler = Autoscaler.from_params({"namespace": "chat", "max_replicas": 8, **given})
    series = Series({"namespace": "chat", **labels}, (1.0,), (1000.0,))
    return bool(read_history(Prometheus(series), [autoscaler], {}, 300))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "pod", "expected"),
    [
        ("Deployment", "chat-5d9c7f6b8-x2x4q", True),
        ("Deployment", "chat-finetune-x7k2p", False),
        ("StatefulSet", "chat-3", True),
        ("StatefulSet", "chat-3-1", False),
        ("ReplicaSet", "chat-x7k2p", True),
    ],
)
def test_a_pod_that_is_gone_is_told_by_its_name(kind: str, pod: str, expected: bool) -> None:
    assert is_taken({"pod": pod}, target={"kind": kind, "name": "chat"}) is expected


@pytest.mark.parametrize(("deployment", "expected"), [("chat", True), ("embed", False)])
def test_a_value_of_a_workload_is_told_by_its_kinds_label(deployment: str, expected: bool) -> None:
    """Not by the namespace, which may have the workload's name."""
    labels = {"deployment": deployment}
    assert is_taken(labels, target={"name": "chat"}, metric_type="Object") is expected
