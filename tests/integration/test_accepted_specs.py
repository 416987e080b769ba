"""What the options of an autoscaler may be, the API server accepts: a sample of them, in a dry run."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_autoscaler_manifests import gpu_autoscaler_manifests
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_specs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.errors import ApiError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import HPAS, RULES, KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.transport import connect
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from autoscaler_specs import right, some_wrong
from control_plane import ControlPlane
from hypothesis import HealthCheck, given, settings
from kubernetes import client
from metric_chain import have_namespace
from prometheus_rules import serve_kind

RESOURCES = {"HorizontalPodAutoscaler": HPAS, "PrometheusRule": RULES}
NAMESPACES = ("ml", "n" * 63, "monitoring")
SAMPLE = 150


@pytest.fixture(scope="module")
def served(plane: tuple[ControlPlane, client.ApiClient]) -> KubeClient:
    serve_kind(plane[1])
    for name in NAMESPACES:
        have_namespace(client.CoreV1Api(plane[1]), name)
    return KubeClient(connect({"kubeconfig": str(plane[0].kubeconfig)}), dry_run=True)


def rejections(kube: KubeClient, manifests: list[dict[str, Any]]) -> list[str]:
    found = []
    for manifest in manifests:
        try:
            kube.apply(RESOURCES[manifest["kind"]], manifest, force=True)
        except (ApiError, HopError) as err:
            found.append(f"{err}: {manifest}")
    return found


def test_the_api_server_accepts_what_is_accepted(served: KubeClient) -> None:
    judged = 0

    @settings(max_examples=SAMPLE, suppress_health_check=list(HealthCheck), deadline=None)
    @given(right() | some_wrong())
    def judge(spec: Any) -> None:
        nonlocal judged
        if not is_read([spec]) or spec.get("namespace") not in (None, "default", *NAMESPACES):
            return
        judged += 1
        assert rejections(served, gpu_autoscaler_manifests([spec])) == []

    judge()
    assert judged >= SAMPLE // 5, "most of the sample was rejected before the API server was asked"


def is_read(specs: list[Any]) -> bool:
    try:
        return bool(read_specs(specs))
    except HopError:
        return False


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "maxReplicas"), 0),
        (("spec", "behavior", "scaleUp", "stabilizationWindowSeconds"), 3601),
        (("spec", "behavior", "scaleUp", "tolerance"), "-1"),
        (("spec", "behavior", "scaleUp", "policies"), [{"type": "Pods", "value": 0, "periodSeconds": 15}]),
        (("spec", "behavior", "scaleUp", "policies"), [{"type": "Pods", "value": 1, "periodSeconds": 1801}]),
        (("metadata", "name"), "n" * 254),
    ],
    ids=lambda given: ".".join(given) if isinstance(given, tuple) else None,
)
def test_the_api_server_is_asked(served: KubeClient, path: tuple[str, ...], value: Any) -> None:
    """Each of these was accepted by the module, and rejected after other objects had been written."""
    *_rules, hpa = gpu_autoscaler_manifests([{"target": {"name": "chat"}, "max_replicas": 3}])
    place = hpa
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert len(rejections(served, [hpa])) == 1


def test_the_name_of_a_rule_is_bounded(served: KubeClient) -> None:
    """The longest names that are accepted, and one letter more."""
    spec = {"namespace": "n" * 63, "target": {"name": "a"}, "metric_type": "Object", "max_replicas": 2}
    made = gpu_autoscaler_manifests([{**spec, "name": "a" * 181}])
    assert rejections(served, made) == []
    rule = next(manifest for manifest in made if "." in manifest["metadata"]["name"])
    rule["metadata"]["name"] += "a"
    assert len(rejections(served, [rule])) == 1
