"""The doctor's report without a permission, with the errors of a real API server with RBAC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.health_report import health_report
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Scope
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.transport import connect
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.doctor_reader import DoctorReader
from control_plane import ControlPlane, eventually
from guests import HEARD_S, LOOK, LOOKER, allowed
from kubernetes import client
from metric_chain import MONITORING, PROOF_S, MetricChain
from workloads import Workloads

# By resource of the documented role: what the doctor has no permission to. Not here is what this chain gives no
# reason to read: the adapter's ConfigMap, workloads of other kinds, claims of devices, a
# second replica of Prometheus. What the scope's namespace is enough for is named as a right there.
MISSED = {
    "nodes": "list nodes of apiGroup '' at the cluster scope",
    "namespaces": "list namespaces of apiGroup '' at the cluster scope",
    "services": "list services of apiGroup '' at the cluster scope",
    "pods": "list pods of apiGroup '' in namespace {namespace}|list pods of apiGroup '' in namespace monitoring",
    "resourcequotas": "list resourcequotas of apiGroup '' in namespace {namespace}",
    "services/proxy": "get services/proxy of apiGroup '' in namespace monitoring",
    "daemonsets": "list daemonsets of apiGroup 'apps' at the cluster scope",
    "deployments": "list deployments of apiGroup 'apps' in namespace {namespace}",
    "horizontalpodautoscalers": "list horizontalpodautoscalers of apiGroup 'autoscaling' in namespace {namespace}",
    "prometheuses": "list prometheuses of apiGroup 'monitoring.coreos.com' at the cluster scope",
    "prometheusrules": "list prometheusrules of apiGroup 'monitoring.coreos.com' at the cluster scope",
    "servicemonitors": "list servicemonitors of apiGroup 'monitoring.coreos.com' at the cluster scope",
    "podmonitors": "list podmonitors of apiGroup 'monitoring.coreos.com' at the cluster scope",
    "scaledobjects": "list scaledobjects of apiGroup 'keda.sh' in namespace {namespace}",
    "validatingwebhookconfigurations": "list validatingwebhookconfigurations of apiGroup "
    "'admissionregistration.k8s.io' at the cluster scope",
    "deviceclasses": "list deviceclasses of apiGroup 'resource.k8s.io' at the cluster scope",
    "resourceslices": "list resourceslices of apiGroup 'resource.k8s.io' at the cluster scope",
    "events": "list events of apiGroup '' in namespace {namespace}",
    "leases": "get leases of apiGroup 'coordination.k8s.io' in namespace kube-system",
    "apiservices": "get apiservices of apiGroup 'apiregistration.k8s.io' at the cluster scope",
    "*": "get pods/gpu of apiGroup 'custom.metrics.k8s.io' in namespace {namespace}",
}


class Guest:
    """A user who has the rights of one ClusterRole and no others."""

    def __init__(self, plane: ControlPlane, kube: client.ApiClient) -> None:
        self._rbac = client.RbacAuthorizationV1Api(kube)
        self._kube = KubeClient(connect({"kubeconfig": str(plane.kubeconfig_of(LOOKER))}))

    def examine(self, namespace: str) -> dict[str, Any]:
        prometheus = PrometheusClient(
            self._kube.get_raw, namespace=MONITORING, service="kube-prometheus-stack-prometheus", port=9090
        )
        look = DoctorReader(self._kube, prometheus, scope=Scope(namespace, None), facts={"gpu1": {}}, history_s=0)
        return health_report(look.state(), grace=False)

    def may(self, rules: list[dict[str, Any]]) -> None:
        self._rbac.patch_cluster_role(LOOK["metadata"]["name"], {"rules": rules})


@pytest.fixture
def guest(plane: tuple[ControlPlane, client.ApiClient], monkeypatch: pytest.MonkeyPatch) -> Iterator[Guest]:
    # A kubeconfig that is loaded becomes the library's default, here for the tests that follow in this process.
    monkeypatch.setattr(client.Configuration, "_default", None)
    with allowed(plane[1], LOOKER, LOOK):
        yield Guest(*plane)


def without(resource: str) -> list[dict[str, Any]]:
    """The documented rules less one resource."""
    rules = deepcopy(LOOK["rules"])
    for rule in rules:
        rule["resources"] = [plural for plural in rule["resources"] if plural != resource]
    return [rule for rule in rules if rule["resources"]]


@pytest.fixture
def network_devices(plane: tuple[ControlPlane, client.ApiClient]) -> Iterator[None]:
    """Of another driver: classes of devices are read where there are devices."""
    resources = client.ResourceV1Api(plane[1])
    resources.create_resource_slice(
        {
            "metadata": {"name": "gpu1-nics"},
            "spec": {
                "driver": "nics.example",
                "nodeName": "gpu1",
                "pool": {"name": "gpu1", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "nic-0"}],
            },
        }
    )
    yield
    resources.delete_resource_slice("gpu1-nics")


def reasons(found: dict[str, Any]) -> set[str]:
    return {reason for unchecked in found["not_checked"] for reason in unchecked["reason"].split("; ")}


def test_the_documented_rights_suffice_and_each_is_missed(
    guest: Guest,
    chain: MetricChain,
    workloads: Workloads,
    network_devices: None,
    run: Callable[..., dict[str, Any]],
) -> None:
    namespace = workloads.namespace
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(namespace, {"chat-0": 50})
    spec = {"namespace": namespace, "target": {"name": "chat"}, "max_replicas": 4}
    assert not run(verify=True, wait_timeout=PROOF_S, autoscalers=[spec]).get("failed")

    def suffice() -> bool:
        whole = guest.examine(namespace)
        return not reasons(whole) and whole["autoscalers"][0]["verified"] is True

    eventually(suffice, "the documented rights suffice", HEARD_S)

    for resource, words in MISSED.items():
        guest.may(without(resource))
        expected = {f"no right to {right}" for right in words.format(namespace=namespace).split("|")}
        # The authorizer hears of the role a moment later.
        missed = eventually(lambda: reasons(guest.examine(namespace)), f"{resource} is missed", HEARD_S)
        assert (resource, missed) == (resource, expected)
        guest.may(LOOK["rules"])
        eventually(lambda: not reasons(guest.examine(namespace)), f"{resource} is there again", HEARD_S)
