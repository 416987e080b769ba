"""external.metrics.k8s.io under KEDA's name, for what asks who serves it alone. KEDA itself: keda.py.

Its values are served by the adapter of a MetricChain.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from control_plane import eventually
from keda import API, NAMESPACE, SCALED_OBJECTS, SERVICE, is_available
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from metric_chain import MONITORING, PROOF_S, have_namespace
from urllib3.exceptions import HTTPError


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
        client.ApiregistrationV1Api(kube).delete_api_service(API)
        client.DiscoveryV1Api(kube).delete_namespaced_endpoint_slice(SERVICE, NAMESPACE)
        client.CoreV1Api(kube).delete_namespaced_service(SERVICE, NAMESPACE)


def _collect(objects: client.CustomObjectsApi, stopped: threading.Event) -> None:
    group, version, plural = SCALED_OBJECTS
    while not stopped.wait(0.2):
        with suppress(ApiException, HTTPError):
            for found in objects.list_cluster_custom_object(*SCALED_OBJECTS)["items"]:
                metadata = found["metadata"]
                if "deletionTimestamp" in metadata and metadata.get("finalizers"):
                    body = {**found, "metadata": {**metadata, "finalizers": []}}
                    place = (group, version, metadata["namespace"], plural, metadata["name"])
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
            "metadata": {"name": API},
            "spec": {
                "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
                "versionPriority": 100, "insecureSkipTLSVerify": True, "service": reference,
            },
        }
    )  # fmt: skip
    eventually(lambda: is_available(kube), f"{API} is served", PROOF_S)
