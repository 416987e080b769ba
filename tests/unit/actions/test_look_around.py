"""What is said of a cluster as a whole, beside its components."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.look_around import look_around
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from fake_cluster import FakeTransport, refusal

MONITORING = "GET /apis/monitoring.coreos.com/v1"


@pytest.mark.parametrize(
    ("answer", "serves"),
    [
        ({"resources": [{"name": "servicemonitors", "kind": "ServiceMonitor"}]}, True),
        ({"resources": [{"name": "prometheusrules", "kind": "PrometheusRule"}]}, False),
        (refusal(404, "not found"), False),
        (refusal(403, "no"), True),
    ],
    ids=["served", "others of the group", "no operator", "not to be seen"],
)
def test_whether_a_monitor_can_be_made(answer: Any, serves: bool) -> None:
    transport = FakeTransport({"GET /version": {}, "GET /api/v1/secrets": {"items": []}, MONITORING: answer})
    found = look_around(lambda: KubeClient(transport), "https://192.0.2.1:6443", Deadline(1)).result
    assert found["serves_monitors"] is serves
