"""What the module needs of KEDA, played: its kind, its HPAs and finalizers, and its name at external.metrics.k8s.io.

The values are served by the adapter of a DecisionChain.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from control_plane import eventually
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from metric_chain import MONITORING, PROOF_S, have_namespace
from served_kinds import SERVED_S, is_served
from test_keda import DecisionChain, as_keda_makes_it
from urllib3.exceptions import HTTPError
from workloads import definition

NAMESPACE, SERVICE = "keda", "keda-operator-metrics-apiserver"
GROUP, VERSION, PLURAL = "keda.sh", "v1alpha1", "scaledobjects"
FINALIZER = "finalizer.keda.sh"
API_SERVICE = "v1beta1.external.metrics.k8s.io"


class Operator:
    """It makes or adopts the HPA of each ScaledObject, and lets a ScaledObject go that is deleted."""

    def __init__(self, kube: client.ApiClient) -> None:
        self._objects, self._hpas = client.CustomObjectsApi(kube), client.AutoscalingV2Api(kube)
        self._made: dict[str, Any] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._stopped.wait(0.2):
            with suppress(ApiException, HTTPError):
                for found in self._objects.list_cluster_custom_object(GROUP, VERSION, PLURAL)["items"]:
                    with suppress(ApiException):  # changed meanwhile: the next look sees it anew
                        self._reconcile(found)

    def _reconcile(self, found: dict[str, Any]) -> None:
        metadata = found["metadata"]
        finalizers = metadata.get("finalizers") or []
        if "deletionTimestamp" in metadata:
            if FINALIZER in finalizers:
                self._finalize(found, [name for name in finalizers if name != FINALIZER])
            return
        if FINALIZER not in finalizers:
            self._finalize(found, [*finalizers, FINALIZER])
            return
        wanted = found["spec"], metadata["labels"], metadata["annotations"]
        if self._made.get(metadata["uid"]) != wanted:
            self._write_hpa(found)
            self._made[metadata["uid"]] = wanted

    def _finalize(self, found: dict[str, Any], finalizers: list[str]) -> None:
        metadata = found["metadata"]
        body = {**found, "metadata": {**metadata, "finalizers": finalizers}}
        self._objects.replace_namespaced_custom_object(
            GROUP, VERSION, metadata["namespace"], PLURAL, metadata["name"], body
        )

    def _write_hpa(self, found: dict[str, Any]) -> None:
        """A full update, as KEDA sends it."""
        metadata, hpa = found["metadata"], as_keda_makes_it(found)
        namespace, name = metadata["namespace"], hpa["metadata"]["name"]
        owner = {
            "apiVersion": f"{GROUP}/{VERSION}", "kind": "ScaledObject", "name": metadata["name"],
            "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        hpa["metadata"] = {
            **{part: metadata[part] for part in ("namespace", "labels", "annotations")},
            "name": name,
            "ownerReferences": [owner],
        }
        try:
            live = self._hpas.read_namespaced_horizontal_pod_autoscaler(name, namespace).metadata
        except ApiException as err:
            if err.status != 404:
                raise
            self._hpas.create_namespaced_horizontal_pod_autoscaler(namespace, hpa)
            return
        hpa["metadata"] |= {"resourceVersion": live.resource_version, "uid": live.uid}
        self._hpas.replace_namespaced_horizontal_pod_autoscaler(name, namespace, hpa, field_manager="keda")


@contextmanager
def installed(kube: client.ApiClient, chain: DecisionChain) -> Iterator[None]:
    """KEDA beside prometheus-adapter, with external.metrics.k8s.io."""
    client.ApiextensionsV1Api(kube).create_custom_resource_definition(definition("ScaledObject", GROUP, VERSION))
    eventually(lambda: is_served(kube, GROUP, "ScaledObject"), "ScaledObject is served", SERVED_S)
    _publish(kube)
    operator = Operator(kube)
    operator.start()
    try:
        yield
    finally:
        operator.stop()


@contextmanager
def published(kube: client.ApiClient) -> Iterator[None]:
    """external.metrics.k8s.io is KEDA's by name, on a cluster that others use afterwards.

    No operator makes HPAs. What the garbage collector holds as an orphan's owner is let go.
    """
    _publish(kube)
    stopped = threading.Event()
    collector = threading.Thread(target=_collect, args=(client.CustomObjectsApi(kube), stopped), daemon=True)
    collector.start()
    try:
        yield
    finally:
        stopped.set()
        collector.join()
        client.ApiregistrationV1Api(kube).delete_api_service(API_SERVICE)
        client.DiscoveryV1Api(kube).delete_namespaced_endpoint_slice(SERVICE, NAMESPACE)
        client.CoreV1Api(kube).delete_namespaced_service(SERVICE, NAMESPACE)


def _collect(objects: client.CustomObjectsApi, stopped: threading.Event) -> None:
    while not stopped.wait(0.2):
        with suppress(ApiException, HTTPError):
            for found in objects.list_cluster_custom_object(GROUP, VERSION, PLURAL)["items"]:
                metadata = found["metadata"]
                if "deletionTimestamp" in metadata and metadata.get("finalizers"):
                    body = {**found, "metadata": {**metadata, "finalizers": []}}
                    place = (GROUP, VERSION, metadata["namespace"], PLURAL, metadata["name"])
                    with suppress(ApiException):
                        objects.replace_namespaced_custom_object(*place, body)


def _publish(kube: client.ApiClient) -> None:
    """By the endpoint of the adapter."""
    core, slices = client.CoreV1Api(kube), client.DiscoveryV1Api(kube)
    have_namespace(core, NAMESPACE)
    adapter = slices.read_namespaced_endpoint_slice("adapter", MONITORING)
    port = adapter.ports[0].port
    service = {"metadata": {"name": SERVICE}, "spec": {"ports": [{"port": 443, "targetPort": port}]}}
    core.create_namespaced_service(NAMESPACE, service)
    slices.create_namespaced_endpoint_slice(
        NAMESPACE,
        {
            "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": adapter.endpoints[0].addresses, "conditions": {"ready": True}}],
            "ports": [{"port": port, "protocol": "TCP"}],
        },
    )
    services = client.ApiregistrationV1Api(kube)
    reference = {"name": SERVICE, "namespace": NAMESPACE}
    services.create_api_service(
        {
            "metadata": {"name": API_SERVICE},
            "spec": {
                "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
                "versionPriority": 100, "insecureSkipTLSVerify": True, "service": reference,
            },
        }
    )  # fmt: skip

    def is_available() -> bool:
        status = services.read_api_service(API_SERVICE).status
        return any((row.type, row.status) == ("Available", "True") for row in (status and status.conditions) or ())

    eventually(is_available, "external.metrics.k8s.io is served", PROOF_S)
