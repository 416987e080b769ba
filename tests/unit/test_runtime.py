"""What a refused request means to the one who runs a module."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import AUTOSCALERS, PROMETHEUS, VERIFY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import (
    ApiError,
    QueryError,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.runtime import GpuModule, Outcome, as_hop, given


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        (0, "check that the address in the kubeconfig is right and reachable"),
        (401, "log in again: the credentials have expired or are wrong"),
        (403, "correct the field in the message, then run again"),
        (422, "correct the field in the message, then run again"),
    ],
)
def test_the_fix_follows_the_status(status: int, fix: str) -> None:
    error = as_hop(ApiError(status, "no", "GET /api/v1/namespaces/ml/pods"))
    assert (error.hop, error.fix) == ("API server", fix)


REFUSED = 'pods is forbidden: User "{}" cannot list resource "pods" in API group "" in the namespace "ml"'


def test_a_missing_right_is_one_sentence() -> None:
    error = as_hop(ApiError(403, {"message": REFUSED.format("chris")}, "GET /api/v1/namespaces/ml/pods"))
    assert error.seen == "user chris has no permission to list pods of apiGroup '' in namespace ml"
    page = "https://github.com/kubegpu/autoscale/blob/main/docs/rights.yml"
    assert error.fix == f"have an administrator grant it to chris: {page} has all required permissions"


def test_a_client_without_a_login_is_not_told_to_get_rights() -> None:
    error = as_hop(ApiError(403, {"message": REFUSED.format("system:anonymous")}, "GET /api/v1/namespaces/ml/pods"))
    assert "treats it as system:anonymous" in error.seen
    assert "log in" in error.fix


def test_a_query_that_prometheus_refuses_ends_a_module_as_any_error_does() -> None:
    """A day of many pods may be more than its limits allow."""
    told: dict[str, Any] = {}

    def fail_json(**result: Any) -> None:
        told.update(result)
        raise SystemExit

    module = GpuModule.__new__(GpuModule)
    module._started, module._argument_spec, module.params, module.outcome = time.monotonic(), {}, {}, Outcome()
    module._module = SimpleNamespace(fail_json=fail_json, _diff=False, warn=print)
    with pytest.raises(SystemExit), module.boundary():
        raise QueryError("query processing would load too many samples into memory in query execution")
    assert told["hop"] == "scrape"
    assert "would load too many samples" in told["msg"]
    assert "query.max-samples" in told["fix"]


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"url": "http://metrics.example", "bearer_token": "hunter2"}, True),
        ({"url": "http://bob:hunter2@metrics.example"}, True),
        ({"url": "http://bob:hunter2@metrics.example", "plain_http": True}, False),
        ({"url": "http://metrics.example"}, False),
        ({"url": "https://metrics.example", "bearer_token": "hunter2"}, False),
    ],
)
def test_no_credential_crosses_a_network_unencrypted(options: dict[str, Any], refused: bool) -> None:
    module = GpuModule.__new__(GpuModule)
    module.params = {"prometheus": {"ca_cert": None, "bearer_token": None, "plain_http": False, **options}}
    if not refused:
        assert module.prometheus_client(SimpleNamespace()).name.endswith("//metrics.example")
        return
    with pytest.raises(HopError, match="Nothing was sent or changed") as raised:
        module.prometheus_client(SimpleNamespace())
    assert "hunter2" not in str(raised.value)
    assert "plain_http" in raised.value.fix


def test_entries_of_lists_are_shown_without_their_defaults() -> None:
    autoscaler = {
        "namespace": "ml",
        "name": None,
        "target": {"kind": "StatefulSet", "name": "chat", "api_version": None},
        "metric": "gpu",
        "max_replicas": 8,
        "scale_down": {"stabilization_window_seconds": 600, "select_policy": None},
        "extra_metrics": [{"type": "Resource", "resource": {"name": "cpu"}, "pods": None, "metric": None}],
        "adopt": False,
    }
    prometheus = {"namespace": "monitoring", "url": None}
    options = {"autoscalers": [autoscaler], "prometheus": prometheus, "verify": True, "kubeconfig": None}

    assert given(options, {**AUTOSCALERS, **PROMETHEUS, **VERIFY}) == {
        "autoscalers": [
            {
                "namespace": "ml",
                "target": {"kind": "StatefulSet", "name": "chat"},
                "max_replicas": 8,
                "scale_down": {"stabilization_window_seconds": 600},
                "extra_metrics": [{"type": "Resource", "resource": {"name": "cpu"}}],
            }
        ],
        "prometheus": prometheus,
        "verify": True,
        "kubeconfig": None,
    }
