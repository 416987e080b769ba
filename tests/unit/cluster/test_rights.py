from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.rights import right_to

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
    "GET /api/v1/namespaces/ml/pods": "list pods of apiGroup '' in namespace ml",
    "GET /apis/custom.metrics.k8s.io": "get path /apis/custom.metrics.k8s.io",
    "GET /apis/custom.metrics.k8s.io/v1beta1": "get path /apis/custom.metrics.k8s.io/v1beta1",
}


@pytest.mark.parametrize(("request_line", "right"), CASES.items())
def test_the_right_that_a_request_needs(request_line: str, right: str) -> None:
    assert right_to(request_line) == right
