"""Deployments and pods as a kubelet would leave them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from control_plane import eventually
from kubernetes import client
from metric_chain import have_namespace
from served_kinds import SERVED_S, is_served


class Workloads:
    def __init__(self, kube: client.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self._kube = kube
        self._core = client.CoreV1Api(kube)
        have_namespace(self._core, namespace)

    def deployment(
        self,
        name: str,
        *,
        selects: str = "",
        probe: bool = True,
        gpus: int = 1,
        replicas: int = 1,
        image: str = "service",
    ) -> None:
        """selects: label `app` of its pods, if it is not its name."""
        container: dict[str, Any] = {"name": "main", "image": image}
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        if probe:
            container["readinessProbe"] = {"httpGet": {"port": 8080}}
        template = {"metadata": {"labels": {"app": selects or name}}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": selects or name}}, "template": template}
        apps = client.AppsV1Api(self._kube)
        apps.create_namespaced_deployment(self.namespace, {"metadata": {"name": name}, "spec": spec})
        apps.patch_namespaced_deployment_status(name, self.namespace, {"status": {"replicas": replicas}})

    def ready_pod(self, name: str, *, app: str, start_s: int = 0) -> None:
        """start_s: seconds from its creation until it was ready."""
        pod = {
            "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"containers": [{"name": "main", "image": "service", "resources": {"requests": {"cpu": "1"}}}]},
        }
        self._core.create_namespaced_pod(self.namespace, pod)
        ready = {"type": "Ready", "status": "True"}
        if start_s:
            created = self._core.read_namespaced_pod(name, self.namespace).metadata.creation_timestamp
            ready["lastTransitionTime"] = (created + timedelta(seconds=start_s)).isoformat()
        # The HPA counts no CPU of a pod that has only started.
        began = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        status = {"phase": "Running", "startTime": began, "conditions": [ready]}
        self._core.patch_namespaced_pod_status(name, self.namespace, {"status": status})

    @contextmanager
    def kind(self, kind: str, api_version: str) -> Iterator[None]:
        """A kind that the cluster would not have by itself, with a scale subresource and nothing else of its own."""
        group, _, version = api_version.partition("/")
        if group == "apps":
            yield
            return
        definitions, name = client.ApiextensionsV1Api(self._kube), f"{kind.lower()}s.{group}"
        definitions.create_custom_resource_definition(definition(kind, group, version))
        eventually(lambda: is_served(self._kube, group, kind), f"{kind} is served", SERVED_S)
        try:
            yield
        finally:
            definitions.delete_custom_resource_definition(name)
            eventually(lambda: not is_served(self._kube, group, kind), f"{kind} is gone", SERVED_S)

    def scalable(self, kind: str, api_version: str, name: str, replicas: int = 1) -> None:
        """An object that can be scaled; its pods carry its name in the label app."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "service"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        if kind == "StatefulSet":
            body = {"metadata": {"name": name}, "spec": {**spec, "serviceName": name}}
            client.AppsV1Api(self._kube).create_namespaced_stateful_set(self.namespace, body)
            return
        self.custom(kind, api_version, {"metadata": {"name": name}, "spec": spec})
        group, _, version = api_version.partition("/")
        client.CustomObjectsApi(self._kube).patch_namespaced_custom_object_status(
            group, version, self.namespace, f"{kind.lower()}s", name,
            {"status": {"replicas": replicas, "selector": f"app={name}"}},
        )  # fmt: skip

    def custom(self, kind: str, api_version: str, body: dict[str, Any]) -> None:
        group, _, version = api_version.partition("/")
        client.CustomObjectsApi(self._kube).create_namespaced_custom_object(
            group, version, self.namespace, f"{kind.lower()}s", {"apiVersion": api_version, "kind": kind, **body}
        )

    def node(self, name: str, gpus: int) -> None:
        """One that is ready: the API server taints a new node until its kubelet says so."""
        self._core.create_node({"metadata": {"name": name}})
        self._core.patch_node(name, {"spec": {"taints": []}})
        self._core.patch_node_status(name, {"status": {"allocatable": {"nvidia.com/gpu": str(gpus)}}})

    def remove(self) -> None:
        """What other tests would see; the namespace itself is left to the end of the control plane."""
        client.AutoscalingV2Api(self._kube).delete_collection_namespaced_horizontal_pod_autoscaler(self.namespace)
        self._core.delete_collection_node()


def definition(kind: str, group: str, version: str) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}
