# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Detects the components of the chain in a cluster, under any names, and which of them the collection manages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..kube.capacity import gpus_of
from ..kube.known_components import (
    EXPORTER,
    GPU_OPERATOR,
    HOST_ENGINE,
    NODE_FEATURE_DISCOVERY,
    OPERATOR,
    PROMETHEUS,
    gives_gpus_by_dra,
    plugin_container,
)
from ..kube.label_selectors import labels_match, labels_that_match, labels_that_match_both
from ..kube.labels import DEFAULT_INVENTORY, NAME_LABEL, RELEASE, inventory_of, is_managed
from ..kube.objects import Manifest, containers_of, flag, key_of, labels_of, name_of, owners, seconds
from ..kube.visible_devices import depends_on_variable, is_rolled_out

CUSTOM, EXTERNAL, RESOURCE = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"
METRICS_APIS = {CUSTOM: "v1beta1", EXTERNAL: "v1beta1", RESOURCE: "v1beta1"}


@dataclass(frozen=True)
class Objects:
    """Objects of a cluster; an empty list if it has none.

    namespaces: None if they could not be read.
    releases:   namespace and name of each Helm release created by the collection.
    """

    daemon_sets: Sequence[Manifest] = ()
    deployments: Sequence[Manifest] = ()
    stateful_sets: Sequence[Manifest] = ()
    services: Sequence[Manifest] = ()
    prometheuses: Sequence[Manifest] = ()
    nodes: Sequence[Manifest] = ()
    namespaces: Sequence[Manifest] | None = None
    api_services: Mapping[str, Manifest] = field(default_factory=dict)
    releases: Collection[tuple[str, str]] = ()
    inventory: str = DEFAULT_INVENTORY


def find_components(objects: Objects) -> dict[str, Any]:
    """Existing components by kind."""
    workloads = (*objects.deployments, *objects.stateful_sets, *objects.daemon_sets)
    drivers = objects.daemon_sets

    def entries(found: Iterable[Manifest]) -> list[dict[str, Any]]:
        return [_entry(workload, objects) for workload in found]

    def of_gpus(found: Iterable[Manifest]) -> list[dict[str, Any]]:
        return [
            {
                **_entry(driver, objects),
                "origin": _origin(driver, objects),
                "depends_on_variable": depends_on_variable(driver),
                "is_rolled_out": is_rolled_out(driver),
            }
            for driver in found
        ]

    return {
        "prometheus": [*_operated(objects), *_plain(objects)],
        "prometheus_operator": _operators(workloads, objects),
        "gpu_operator": entries(workload for workload in objects.deployments if GPU_OPERATOR.container(workload)),
        "exporter": of_gpus(driver for driver in drivers if EXPORTER.container(driver)),
        "host_engine": of_gpus(driver for driver in drivers if HOST_ENGINE.container(driver)),
        "device_plugin": of_gpus(driver for driver in drivers if plugin_container(driver)) or _of_nodes(objects),
        "dra_driver": of_gpus(driver for driver in drivers if gives_gpus_by_dra(driver)),
        "node_feature_discovery": entries(
            workload for workload in workloads if NODE_FEATURE_DISCOVERY.container(workload)
        ),
        "metrics_apis": {group: _server(api, objects) for group, api in objects.api_services.items()},
    }


def _of_nodes(objects: Objects) -> list[dict[str, Any]]:
    """Nodes that offer GPUs although no DaemonSet is a device plugin: it is a program of their image.

    Bottlerocket, EKS Auto Mode and AKS' managed GPU pools have one. One entry for all of them.
    """
    offering = sorted(name_of(node) for node in objects.nodes if any(gpus_of([node]).values()))
    return [
        {"kind": "device plugin on Node", "name": name, "owned": False, "release": "", "origin": "node"}
        for name in offering[:1]
    ]


def is_owned(manifest: Manifest, objects: Objects) -> bool:
    """Whether this inventory created it. Objects of a release get their labels a moment later."""
    marked = RELEASE in labels_of(manifest) or is_managed(manifest)
    return (marked and inventory_of(manifest) == objects.inventory) or _release(manifest) in objects.releases


def _release(manifest: Manifest) -> tuple[str, str]:
    """Namespace and name of its Helm release; both empty without one."""
    notes = manifest["metadata"].get("annotations") or {}
    return notes.get("meta.helm.sh/release-namespace", ""), notes.get("meta.helm.sh/release-name", "")


def _ownership(manifest: Manifest, objects: Objects) -> dict[str, Any]:
    return {"owned": is_owned(manifest, objects), "release": "/".join(filter(None, _release(manifest)))}


def _entry(manifest: Manifest, objects: Objects) -> dict[str, Any]:
    return {"kind": manifest["kind"], "name": name_of(manifest), **_ownership(manifest, objects)}


def _images(workload: Manifest) -> Iterable[str]:
    return (str(container.get("image", "")) for container in containers_of(workload))


def _operators(workloads: Iterable[Manifest], objects: Objects) -> list[dict[str, Any]]:
    """If no operator is visible, a Prometheus object with pods shows that one exists."""
    seen = [_entry(workload, objects) for workload in workloads if OPERATOR.container(workload)]
    made = {
        (workload["metadata"]["namespace"], name)
        for workload in objects.stateful_sets
        for kind, name in owners(workload)
        if kind == "Prometheus"
    }
    return seen or [_entry(prometheus, objects) for prometheus in objects.prometheuses if key_of(prometheus) in made]


def _origin(daemon_set: Manifest, objects: Objects) -> str:
    """What installed it: the collection, NVIDIA's GPU operator, GKE, a Helm release, or a manifest."""
    labels, namespace = labels_of(daemon_set), daemon_set["metadata"]["namespace"]
    of_gke = any("gke.gcr.io" in image or "gke-release" in image for image in _images(daemon_set))
    makers = {kind for kind, _name in owners(daemon_set)}
    if is_owned(daemon_set, objects):
        return "kubegpu"
    if labels.get("app.kubernetes.io/managed-by") == "gpu-operator" or "ClusterPolicy" in makers:
        return "gpu-operator"
    if of_gke or namespace.startswith("gke-"):
        return "gke"
    return "helm" if labels.get("app.kubernetes.io/managed-by") == "Helm" else "manifest"


def _server(api: Manifest, objects: Objects) -> dict[str, Any]:
    """The server of a metrics API. Without a service it is the API server."""
    service = (api.get("spec") or {}).get("service") or {}
    name = f"{service['namespace']}/{service['name']}" if service else ""
    names = (name, labels_of(api).get(NAME_LABEL, ""), labels_of(api).get("app", ""))
    is_adapter = any("prometheus-adapter" in name for name in names)
    return {"service": name, **_ownership(api, objects), "is_adapter": is_adapter}


def _operated(objects: Objects) -> Iterable[dict[str, Any]]:
    """Prometheus objects of the operator, each with its service."""
    for prometheus in objects.prometheuses:
        spec, metadata = prometheus.get("spec") or {}, prometheus["metadata"]
        labels = {NAME_LABEL: "prometheus", "operator.prometheus.io/name": metadata["name"]}
        labels |= {"prometheus": metadata["name"], "app.kubernetes.io/instance": metadata["name"]}
        yield {
            **_entry(prometheus, objects),
            **_address(objects.services, metadata["namespace"], labels, {spec.get("portName") or "web", 9090}),
            "scheme": "https" if (spec.get("web") or {}).get("tlsConfig") else "http",
            "path_prefix": (spec.get("routePrefix") or "/").rstrip("/"),
            # The PodMonitors of recorded metrics have the same labels.
            "rule_labels": labels_that_match_both(spec.get("ruleSelector") or {}, spec.get("podMonitorSelector") or {}),
            "rule_namespaces": _namespaces(prometheus, spec.get("ruleNamespaceSelector"), objects.namespaces),
            "monitor_labels": labels_that_match(spec.get("serviceMonitorSelector") or {}),
            "monitor_namespaces": _namespaces(
                prometheus, spec.get("serviceMonitorNamespaceSelector"), objects.namespaces
            ),
            "scrape_interval": seconds(spec.get("scrapeInterval")) or 30.0,
            "reads_rules": spec.get("ruleSelector") is not None,
        }


def _namespaces(
    prometheus: Manifest, selector: Mapping[str, Any] | None, namespaces: Iterable[Manifest] | None
) -> list[str] | None:
    """Namespaces that a Prometheus selects; None for all, or if unknown. Without a selector its own."""
    if selector is None:
        return [prometheus["metadata"]["namespace"]]
    if not selector or namespaces is None:
        return None
    return sorted(
        namespace["metadata"]["name"] for namespace in namespaces if labels_match(selector, labels_of(namespace))
    )


def _plain(objects: Objects) -> Iterable[dict[str, Any]]:
    """Workloads that run Prometheus and were not created by an operator."""
    for workload in (*objects.stateful_sets, *objects.deployments):
        container = PROMETHEUS.container(workload)
        if container is None or "operator.prometheus.io/name" in labels_of(workload) or _is_operated(workload):
            continue
        labels = (workload["spec"].get("template") or {}).get("metadata", {}).get("labels") or {}
        ports = {9090, *(port.get(key) for port in container.get("ports") or () for key in ("name", "containerPort"))}
        prefix = flag(container, "--web.route-prefix", "--web.external-url").rstrip("/")
        yield {
            **_entry(workload, objects),
            **_address(objects.services, workload["metadata"]["namespace"], labels, ports),
            "scheme": "http",
            "path_prefix": re.sub(r"^https?://[^/]+", "", prefix),
            "rule_labels": {},
            "rule_namespaces": None,
            "monitor_labels": {},
            "monitor_namespaces": None,
            "scrape_interval": None,
            "reads_rules": False,
        }


def _is_operated(workload: Manifest) -> bool:
    owners = workload["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] in ("Prometheus", "PrometheusAgent", "ThanosRuler") for owner in owners)


def _address(
    services: Iterable[Manifest], namespace: str, labels: Mapping[str, str], ports: set[Any]
) -> dict[str, Any]:
    """Service and port of the pods with these labels; one with a cluster address first. Empty without any."""
    found = [
        (service["spec"].get("clusterIP") == "None", service["metadata"]["name"], port["port"])
        for service in services
        if service["metadata"]["namespace"] == namespace
        and (selector := service["spec"].get("selector"))
        and labels_match({"matchLabels": selector}, labels)
        for port in service["spec"].get("ports") or ()
        if ports & {port.get("name"), port.get("targetPort"), port.get("port")}
    ]
    _headless, name, port = min(found, default=(False, "", 0))
    return {"namespace": namespace, "service": name, "port": port}
