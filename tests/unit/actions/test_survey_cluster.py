"""What of a cluster may be left unread, and what is said of it as a whole. molecule looks at whole ones."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.survey_cluster import survey_cluster
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from fake_cluster import FakeTransport, refusal

MONITORING = "GET /apis/monitoring.coreos.com/v1"
DAEMON_SETS = "GET /apis/apps/v1/daemonsets"
API_SERVICE = "GET /apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io"


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
    found = survey_cluster(lambda: KubeClient(transport), "https://192.0.2.1:6443", "prod", Deadline(1)).result
    assert found["serves_monitors"] is serves


def seen(request: str, status: int) -> dict[str, Any]:
    """Of a cluster that answers this request with an error, and has nothing else."""
    error = ApiError(status, {"message": "no"}, request)
    secrets = {"GET /api/v1/secrets": {"metadata": {}, "items": []}}
    transport = FakeTransport({"GET /version": {}, **secrets, request: error})
    return survey_cluster(lambda: KubeClient(transport), "https://test", "prod", Deadline(0)).result


@pytest.mark.parametrize("request_", [DAEMON_SETS, API_SERVICE, "GET /api/v1/secrets"])
@pytest.mark.parametrize("status", [0, 401, 500, 503, 504])
def test_what_was_not_answered_is_not_taken_for_missing(request_: str, status: int) -> None:
    with pytest.raises(ApiError):
        seen(request_, status)


@pytest.mark.parametrize(("request_", "kind"), [(DAEMON_SETS, "DaemonSet"), (API_SERVICE, "APIService")])
def test_what_there_is_no_right_to_is_named_by_its_kind(request_: str, kind: str) -> None:
    reasons = seen(request_, 403)["not_looked_at"]
    assert list(reasons) == [kind]
    assert reasons[kind].startswith("no right to ")


def test_who_may_not_list_secrets_sees_no_releases() -> None:
    assert seen("GET /api/v1/secrets", 403)["sees_releases"] is False
