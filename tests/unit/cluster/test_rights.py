from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.rights import right_to
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from fake_cluster import FakeTransport, refusal

# As a real API server with RBAC names them: tests/integration/test_missing_rights.py asks one.
CASES = {
    "GET /apis/custom.metrics.k8s.io/v1beta1/namespaces/ml/pods/*/gpu": (
        "get pods/gpu of apiGroup 'custom.metrics.k8s.io' in namespace ml"
    ),
    "GET /apis/custom.metrics.k8s.io/v1beta1/nodes/*/gpu": (
        "get nodes/gpu of apiGroup 'custom.metrics.k8s.io' at the cluster scope"
    ),
    "GET /apis/custom.metrics.k8s.io/v1beta1/namespaces/ml/metrics/gpu": (
        "get metrics of apiGroup 'custom.metrics.k8s.io' in namespace ml"
    ),
    "GET /apis/external.metrics.k8s.io/v1beta1/namespaces/ml/a%7Cb": (
        "list a|b of apiGroup 'external.metrics.k8s.io' in namespace ml"
    ),
    "GET /apis/apps/v1/namespaces/ml/deployments/chat/scale": (
        "get deployments/scale of apiGroup 'apps' in namespace ml"
    ),
    "GET /api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query": (
        "get services/proxy of apiGroup '' in namespace monitoring"
    ),
    "PATCH /apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers/chat": (
        "patch horizontalpodautoscalers of apiGroup 'autoscaling' in namespace ml"
    ),
    "DELETE /apis/monitoring.coreos.com/v1/namespaces/monitoring/prometheusrules/kubegpu-gpu": (
        "delete prometheusrules of apiGroup 'monitoring.coreos.com' in namespace monitoring"
    ),
    "GET /api/v1/namespaces/ml/pods": "list pods of apiGroup '' in namespace ml",
    "GET /apis/custom.metrics.k8s.io": "get path /apis/custom.metrics.k8s.io",
    "GET /apis/custom.metrics.k8s.io/v1beta1": "get path /apis/custom.metrics.k8s.io/v1beta1",
}


@pytest.mark.parametrize(("request_line", "right"), CASES.items())
def test_the_right_that_a_request_needs(request_line: str, right: str) -> None:
    assert right_to(request_line) == right


REVIEW = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"


def forbidden(user: str) -> ApiError:
    """As a real API server says it: tests/integration/test_logins.py asks one."""
    return refusal(403, f'selfsubjectreviews is forbidden: User "{user}" cannot create resource "selfsubjectreviews"')


def user(answer: object) -> str:
    return KubeClient(FakeTransport({REVIEW: answer})).user()


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ({"status": {"userInfo": {"username": "looker"}}}, "looker"),
        (forbidden("looker"), "looker"),
        (refusal(404, "not found"), ""),
    ],
    ids=["says so", "may not ask", "older than 1.28"],
)
def test_who_the_client_is(answer: object, name: str) -> None:
    assert user(answer) == name


@pytest.mark.parametrize(
    "answer", [{"status": {"userInfo": {"username": "system:anonymous"}}}, forbidden("system:anonymous")]
)
def test_a_client_without_a_login_is_refused(answer: object) -> None:
    with pytest.raises(
        HopError, match="the client sends no credentials, so the API server treats it as system:anonymous"
    ):
        user(answer)
