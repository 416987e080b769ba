"""A removal does not change objects of others, against a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.node_labels import LABEL
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import GPU_PRESENT
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import labels as labels_of
from control_plane import ControlPlane
from kubernetes import client
from playbook import ACCESS, local, run_playbook

OURS = labels_of("prod")


class Cluster:
    def __init__(self, folder: Path, plane: ControlPlane, kube: client.ApiClient) -> None:
        self._folder, self._kubeconfig = folder, plane.kubeconfig
        self.core, self.node = client.CoreV1Api(kube), client.NodeV1Api(kube)

    def include(self, role: str, tasks: str, **variables: Any) -> str:
        included = {"name": f"kubegpu.autoscale.{role}", "tasks_from": tasks, "apply": ACCESS}
        play = local({"ansible.builtin.include_role": included})
        known = {
            "kubegpu_kubeconfig": str(self._kubeconfig),
            "kubegpu_cluster_ready": True,
            "kubegpu_inventory_id": "prod",
            # Not the user's, where another test brings helm and removes it.
            "kubegpu_helm_folder": str(self._folder / "helm"),
        }
        done = run_playbook(self._folder, play, {**known, **variables})
        assert done.returncode == 0
        return done.stdout

    def namespace(self, name: str, labels: dict[str, str]) -> str:
        self.core.create_namespace({"metadata": {"name": name, "labels": labels}})
        return name

    def remove_namespace(self, name: str) -> None:
        task = {"namespace": name, "state": "absent", "kubeconfig": str(self._kubeconfig), "inventory_id": "prod"}
        assert run_playbook(self._folder, local({"kubegpu.autoscale.objects": task}), {}).returncode == 0

    def has_namespace(self, name: str) -> bool:
        found = self.core.list_namespace(field_selector=f"metadata.name={name}").items
        return [namespace for namespace in found if namespace.metadata.deletion_timestamp is None] != []


@pytest.fixture
def cluster(tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient]) -> Cluster:
    return Cluster(tmp_path, *plane)


def test_an_empty_namespace_goes_if_it_is_ours(cluster: Cluster) -> None:
    cluster.remove_namespace(cluster.namespace("made-by-us", OURS))
    for name, labels in (("made-by-others", {}), ("made-by-staging", labels_of("staging"))):
        cluster.remove_namespace(cluster.namespace(name, labels))
        assert cluster.has_namespace(name)
    assert not cluster.has_namespace("made-by-us")


def test_a_namespace_of_ours_stays_as_long_as_others_have_something_in_it(cluster: Cluster) -> None:
    name = cluster.namespace("used-by-others", OURS)
    rules = client.RbacAuthorizationV1Api(cluster.core.api_client)
    rules.create_namespaced_role(name, {"metadata": {"name": "readers"}, "rules": []})
    cluster.remove_namespace(name)
    assert cluster.has_namespace(name)


@pytest.mark.parametrize("labels", [OURS, {}, labels_of("staging")], ids=["ours", "somebody's", "another inventory's"])
def test_a_runtime_class_goes_if_it_is_ours(cluster: Cluster, labels: dict[str, str]) -> None:
    cluster.node.create_runtime_class({"metadata": {"name": "gpus", "labels": labels}, "handler": "nvidia"})
    cluster.include("nvidia_device_plugin", "absent", nvidia_device_plugin_runtime_class="gpus")
    left = cluster.node.list_runtime_class(field_selector="metadata.name=gpus").items
    assert bool(left) is (labels != OURS)
    if left:
        cluster.node.delete_runtime_class("gpus")


def test_a_runtime_class_of_ours_stays_as_long_as_pods_of_others_need_it(cluster: Cluster) -> None:
    """An exporter, the device plugin that takes the place of ours, a workload: no pod would be made any more."""
    apps = client.AppsV1Api(cluster.core.api_client)
    pod = {"runtimeClassName": "gpus", "containers": [{"name": "main", "image": "exporter"}]}
    spec = {"selector": {"matchLabels": {"app": "exporter"}}}
    spec["template"] = {"metadata": {"labels": {"app": "exporter"}}, "spec": pod}
    cluster.node.create_runtime_class({"metadata": {"name": "gpus", "labels": OURS}, "handler": "nvidia"})
    apps.create_namespaced_daemon_set("default", {"metadata": {"name": "exporter"}, "spec": spec})

    said = cluster.include("nvidia_device_plugin", "absent", nvidia_device_plugin_runtime_class="gpus")
    assert cluster.node.list_runtime_class(field_selector="metadata.name=gpus").items != []
    assert "WARNING: RuntimeClass gpus is kept: it is used by DaemonSet default/exporter." in " ".join(said.split())
    apps.delete_namespaced_daemon_set("exporter", "default")

    apps.create_namespaced_deployment("default", {"metadata": {"name": "chat"}, "spec": {**spec, "replicas": 0}})
    cluster.core.create_namespaced_pod("default", {"metadata": {"name": "notebook"}, "spec": pod})
    said = cluster.include("nvidia_device_plugin", "absent", nvidia_device_plugin_runtime_class="gpus")
    assert cluster.node.list_runtime_class(field_selector="metadata.name=gpus").items != []
    assert "it is used by Deployment default/chat, Pod default/notebook." in " ".join(said.split())
    apps.delete_namespaced_deployment("chat", "default")
    cluster.core.delete_namespaced_pod("notebook", "default", grace_period_seconds=0)
    cluster.include("nvidia_device_plugin", "absent", nvidia_device_plugin_runtime_class="gpus")
    assert cluster.node.list_runtime_class(field_selector="metadata.name=gpus").items == []


def test_the_label_of_a_gpu_stays_where_a_daemon_set_of_another_inventory_selects_it(cluster: Cluster) -> None:
    """After a removal as well as after a change of the pool, which leaves the DaemonSets of `prod` out."""
    apps = client.AppsV1Api(cluster.core.api_client)
    for name, labels in (("theirs", labels_of("staging")), ("ours", OURS)):
        pod = {"nodeSelector": {LABEL: "true"}, "containers": [{"name": "main", "image": "exporter"}]}
        spec = {"selector": {"matchLabels": {"app": name}}}
        spec["template"] = {"metadata": {"labels": {"app": name}}, "spec": pod}
        apps.create_namespaced_daemon_set("default", {"metadata": {"name": name, "labels": labels}, "spec": spec})
    metadata = {"name": "gpu1", "labels": {LABEL: "true"}, "annotations": {GPU_PRESENT: "prod"}}
    cluster.core.create_node({"metadata": metadata})

    def left(state: str, **variables: Any) -> tuple[bool, str]:
        said = cluster.include("gpu_node_labels", "main", gpu_node_labels_state=state, **variables)
        return LABEL in (cluster.core.read_node("gpu1").metadata.labels or {}), " ".join(said.split())

    pool = {"kubegpu_gpu_node_selector": {"pool": "inference"}}
    has_label, said = left("present", **pool)
    assert has_label
    assert f"WARNING: GPU -> node: {LABEL} is kept on gpu1, because DaemonSets select" in said
    assert "by it: default/theirs." in said
    has_label, said = left("absent")
    assert has_label
    assert "by it: default/ours, default/theirs." in said

    apps.delete_namespaced_daemon_set("theirs", "default")
    assert left("present", **pool)[0] is False
    apps.delete_namespaced_daemon_set("ours", "default")
    cluster.core.delete_node("gpu1")
