# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The pods behind the Service of Prometheus, which answers with any of them. Each scrapes for itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ..cluster.errors import ApiError, QueryError
from ..cluster.kube import PODS, SERVICES, KubeClient
from ..cluster.prometheus_client import PrometheusClient
from ..kube.label_selectors import format_selector, labels_match
from ..kube.objects import Manifest, containers_of, is_ready, labels_of

Pod = TypeVar("Pod", bound=Manifest)


def read_replicas(kube: KubeClient, client: PrometheusClient) -> list[PrometheusClient]:
    """Like `replicas_of`; none if the Service or its pods may not be read, or Prometheus has an address."""
    namespace, name = client.service
    try:
        service = kube.get(SERVICES, name, namespace) if namespace else None
        if not service or not _selector(service):
            return []
        selector = format_selector({"matchLabels": _selector(service)})
        return replicas_of(client, service, kube.list(PODS, namespace=namespace, label_selector=selector) or ())
    except ApiError:
        return []


def fullest(client: PrometheusClient, replicas: Sequence[PrometheusClient], query: str) -> PrometheusClient:
    """The replica with the largest result of `query`, a number; the client itself without replicas."""

    def number(replica: PrometheusClient) -> float:
        try:
            return next((series.values[0] for series in replica.query(query)), 0.0)
        except (ApiError, QueryError):
            return -1.0

    return max((*replicas, client), key=number) if replicas else client


def replicas_of(client: PrometheusClient, service: Manifest, pods: Iterable[Manifest]) -> list[PrometheusClient]:
    """A client of each ready pod of the Service; none if there is only one."""
    ready = [pod for pod in pods_of_service(service, pods) if is_ready(pod)]
    clients = [client.replica(pod["metadata"]["name"], _pod_port(service, pod, client.port)) for pod in ready]
    return clients if len(clients) > 1 else []


def pods_of_service(service: Manifest, pods: Iterable[Pod]) -> list[Pod]:
    """The pods of a Service; none without a selector."""
    selector, namespace = _selector(service), service["metadata"]["namespace"]
    return [
        pod
        for pod in pods
        if selector
        and pod["metadata"]["namespace"] == namespace
        and labels_match({"matchLabels": selector}, labels_of(pod))
    ]


def _selector(service: Manifest) -> Manifest:
    return (service.get("spec") or {}).get("selector") or {}


def _pod_port(service: Manifest, pod: Manifest, port: int) -> int:
    """The container port of a Service's port."""
    entries: Sequence[Manifest] = service["spec"].get("ports") or ()
    target = next((entry.get("targetPort") for entry in entries if entry["port"] == port), None) or port
    named = {
        entry.get("name"): entry["containerPort"]
        for container in containers_of(pod)
        for entry in container.get("ports") or ()
    }
    return int(target) if str(target).isdecimal() else named.get(target, port)
