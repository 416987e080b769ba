# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which components of the chain a cluster has, by whatever names, and which of them the collection made."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..autoscaling.manifests import Manifest
from ..chain.objects import containers_of, flag, labels_of, name_of, seconds
from ..chain.selectors import labels_match
from ..marks import RELEASE, is_managed

_OPERATOR = re.compile(r"(^|/)prometheus-operator([:@]|$)")
_PROMETHEUS = re.compile(r"(^|/)(prometheus|prometheus-rhel\d+)([:@]|$)")
_EXPORTER = re.compile(r"dcgm-exporter")
# The DCGM that exporters connect to, where they have none of their own.
_HOST_ENGINE = re.compile(r"(^|/)dcgm([:@]|$)")
_PLUGIN = re.compile(r"nvidia.*device-plugin|k8s-device-plugin|nvidia-gpu-device-plugin")
_DRA = re.compile(r"dra-driver.*gpu|dra-driver-nvidia|nvidia-dra-driver|k8s-dra-driver")
_NFD = re.compile(r"node-feature-discovery")
# The half of the DRA driver that gives out NVLink domains, and no GPU.
_NO_DRA = "compute-domains"
# The feature discovery that comes with the plugin has its image, and offers no GPU.
_NO_PLUGIN = re.compile(r"feature-discovery|mps-control|config-manager|mig-manager")

CUSTOM, EXTERNAL, RESOURCE = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"
METRICS_APIS = {CUSTOM: "v1beta1", EXTERNAL: "v1beta1", RESOURCE: "v1beta1"}


@dataclass(frozen=True)
class Objects:
    """What was read of a cluster; an empty list for what it does not have.

    releases: namespace and name of each Helm release that the collection made.
    """

    daemon_sets: Sequence[Manifest] = ()
    deployments: Sequence[Manifest] = ()
    stateful_sets: Sequence[Manifest] = ()
    services: Sequence[Manifest] = ()
    prometheuses: Sequence[Manifest] = ()
    api_services: Mapping[str, Manifest] = field(default_factory=dict)
    releases: Collection[tuple[str, str]] = ()


def find_components(objects: Objects) -> dict[str, Any]:
    """Each kind of component, with one entry for each that there is."""
    workloads = (*objects.deployments, *objects.stateful_sets, *objects.daemon_sets)
    drivers = objects.daemon_sets

    def entries(found: Iterable[Manifest]) -> list[dict[str, Any]]:
        return [_entry(workload, objects) for workload in found]

    def of_gpus(found: Iterable[Manifest]) -> list[dict[str, Any]]:
        return [{**_entry(driver, objects), "origin": _origin(driver, objects)} for driver in found]

    return {
        "prometheus": [*_operated(objects), *_plain(objects)],
        "prometheus_operator": entries(workload for workload in workloads if _runs(workload, _OPERATOR)),
        "exporter": of_gpus(driver for driver in drivers if _runs(driver, _EXPORTER)),
        "host_engine": of_gpus(driver for driver in drivers if _runs(driver, _HOST_ENGINE)),
        "device_plugin": of_gpus(driver for driver in drivers if _is_plugin(driver)),
        "dra_driver": of_gpus(driver for driver in drivers if _gives_by_dra(driver)),
        "node_feature_discovery": entries(workload for workload in workloads if _runs(workload, _NFD)),
        "metrics_apis": {group: _server(api, objects) for group, api in objects.api_services.items()},
    }


def is_owned(manifest: Manifest, releases: Collection[tuple[str, str]]) -> bool:
    """Whether the collection made it. Objects of a release get their mark a moment after it."""
    return RELEASE in labels_of(manifest) or is_managed(manifest) or _release(manifest) in releases


def _release(manifest: Manifest) -> tuple[str, str]:
    """Namespace and name of the Helm release that it belongs to; both empty if to none."""
    notes = manifest["metadata"].get("annotations") or {}
    return notes.get("meta.helm.sh/release-namespace", ""), notes.get("meta.helm.sh/release-name", "")


def _ownership(manifest: Manifest, objects: Objects) -> dict[str, Any]:
    return {"owned": is_owned(manifest, objects.releases), "release": "/".join(filter(None, _release(manifest)))}


def _entry(manifest: Manifest, objects: Objects) -> dict[str, Any]:
    return {"kind": manifest["kind"], "name": name_of(manifest), **_ownership(manifest, objects)}


def _images(workload: Manifest) -> Iterable[str]:
    return (str(container.get("image", "")) for container in containers_of(workload))


def _runs(workload: Manifest, image: re.Pattern[str]) -> bool:
    return any(image.search(name) for name in _images(workload))


def _is_plugin(daemon_set: Manifest) -> bool:
    return any(
        _PLUGIN.search(str(container.get("image", ""))) and not _NO_PLUGIN.search(container["name"])
        for container in containers_of(daemon_set)
        if not _NO_PLUGIN.search(str(container.get("image", "")))
    )


def _gives_by_dra(daemon_set: Manifest) -> bool:
    return any(
        _DRA.search(str(container.get("image", ""))) and container["name"] != _NO_DRA
        for container in containers_of(daemon_set)
    )


def _origin(daemon_set: Manifest, objects: Objects) -> str:
    """Who brought it: the collection, NVIDIA's GPU operator, GKE, a Helm release, or a manifest."""
    labels, namespace = labels_of(daemon_set), daemon_set["metadata"]["namespace"]
    of_gke = any("gke.gcr.io" in image or "gke-release" in image for image in _images(daemon_set))
    owners = [owner["kind"] for owner in daemon_set["metadata"].get("ownerReferences") or ()]
    if is_owned(daemon_set, objects.releases):
        return "kubegpu"
    if labels.get("app.kubernetes.io/managed-by") == "gpu-operator" or "ClusterPolicy" in owners:
        return "gpu-operator"
    if of_gke or namespace.startswith("gke-"):
        return "gke"
    return "helm" if labels.get("app.kubernetes.io/managed-by") == "Helm" else "manifest"


def _server(api: Manifest, objects: Objects) -> dict[str, Any]:
    """Of a metrics API. Without a service the API server serves it itself."""
    service = (api.get("spec") or {}).get("service") or {}
    name = f"{service['namespace']}/{service['name']}" if service else ""
    names = (name, labels_of(api).get("app.kubernetes.io/name", ""), labels_of(api).get("app", ""))
    is_adapter = any("prometheus-adapter" in name for name in names)
    return {"service": name, **_ownership(api, objects), "is_adapter": is_adapter}


def _operated(objects: Objects) -> Iterable[dict[str, Any]]:
    """Prometheus objects of the operator, each with the service that reaches it."""
    for prometheus in objects.prometheuses:
        spec, metadata = prometheus.get("spec") or {}, prometheus["metadata"]
        labels = {"app.kubernetes.io/name": "prometheus", "operator.prometheus.io/name": metadata["name"]}
        labels |= {"prometheus": metadata["name"], "app.kubernetes.io/instance": metadata["name"]}
        yield {
            **_entry(prometheus, objects),
            **_address(objects.services, metadata["namespace"], labels, {spec.get("portName") or "web", 9090}),
            "path_prefix": (spec.get("routePrefix") or "/").rstrip("/"),
            "rule_labels": dict((spec.get("ruleSelector") or {}).get("matchLabels") or {}),
            "monitor_labels": dict((spec.get("serviceMonitorSelector") or {}).get("matchLabels") or {}),
            "scrape_interval": seconds(spec.get("scrapeInterval")) or 30.0,
            "reads_rules": spec.get("ruleSelector") is not None,
        }


def _plain(objects: Objects) -> Iterable[dict[str, Any]]:
    """Workloads that run Prometheus and that no operator made."""
    for workload in (*objects.stateful_sets, *objects.deployments):
        container = next(
            (container for container in containers_of(workload) if _PROMETHEUS.search(str(container.get("image", "")))),
            None,
        )
        if container is None or "operator.prometheus.io/name" in labels_of(workload) or _is_operated(workload):
            continue
        labels = (workload["spec"].get("template") or {}).get("metadata", {}).get("labels") or {}
        ports = {9090, *(port.get(key) for port in container.get("ports") or () for key in ("name", "containerPort"))}
        prefix = flag(container, "--web.route-prefix", "--web.external-url").rstrip("/")
        yield {
            **_entry(workload, objects),
            **_address(objects.services, workload["metadata"]["namespace"], labels, ports),
            "path_prefix": re.sub(r"^https?://[^/]+", "", prefix),
            "rule_labels": {},
            "monitor_labels": {},
            "scrape_interval": None,
            "reads_rules": False,
        }


def _is_operated(workload: Manifest) -> bool:
    owners = workload["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] in ("Prometheus", "PrometheusAgent", "ThanosRuler") for owner in owners)


def _address(
    services: Iterable[Manifest], namespace: str, labels: Mapping[str, str], ports: set[Any]
) -> dict[str, Any]:
    """Service and port that reach pods of these labels; the one with a cluster address first. Empty without any."""
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
