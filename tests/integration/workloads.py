"""Deployments and pods as a kubelet would leave them."""

from __future__ import annotations

from typing import Any

from kubernetes import client


class Workloads:
    def __init__(self, kube: client.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self._kube = kube
        self._core = client.CoreV1Api(kube)
        self._core.create_namespace({"metadata": {"name": namespace}})

    def deployment(self, name: str, *, selects: str = "", probe: bool = True, gpus: int = 1, replicas: int = 1) -> None:
        """selects: label `app` of its pods, if it is not its name."""
        container: dict[str, Any] = {"name": "main", "image": "service"}
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        if probe:
            container["readinessProbe"] = {"httpGet": {"port": 8080}}
        template = {"metadata": {"labels": {"app": selects or name}}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": selects or name}}, "template": template}
        apps = client.AppsV1Api(self._kube)
        apps.create_namespaced_deployment(self.namespace, {"metadata": {"name": name}, "spec": spec})
        apps.patch_namespaced_deployment_status(name, self.namespace, {"status": {"replicas": replicas}})

    def ready_pod(self, name: str, *, app: str) -> None:
        pod = {
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"containers": [{"name": "main", "image": "service"}]},
        }
        self._core.create_namespaced_pod(self.namespace, pod)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._core.patch_namespaced_pod_status(name, self.namespace, {"status": status})

    def node(self, name: str, gpus: int) -> None:
        """One that is ready: the API server taints a new node until its kubelet says so."""
        self._core.create_node({"metadata": {"name": name}})
        self._core.patch_node(name, {"spec": {"taints": []}})
        self._core.patch_node_status(name, {"status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}})

    def remove(self) -> None:
        """What other tests would see; the namespace itself is left to the end of the control plane."""
        client.AutoscalingV2Api(self._kube).delete_collection_namespaced_horizontal_pod_autoscaler(self.namespace)
        self._core.delete_collection_node()
