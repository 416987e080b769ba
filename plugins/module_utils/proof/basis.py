# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""What a proof rests on: the only list. A proof counts only while each entry has the value that it had then."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from ..autoscaling.spec import ADAPTER, KEDA
from ..kube.known_components import EXPORTER, OPERATOR_TOOLKIT, gives_gpus_by_dra, plugin_container
from ..kube.labels import NAME_LABEL
from ..kube.objects import Manifest, containers_of, labels_of

Parts = TypeVar("Parts")
Container = Mapping[str, Any]

_CHART = "helm.sh/chart"
# Set by GPU feature discovery.
_DRIVER = "nvidia.com/cuda.driver-version.full"
_ADAPTER = ("prometheus-adapter",)
_KEDA = ("keda-operator", "keda-operator-metrics-apiserver")
_STATES = ("kube-state-metrics",)
# Values of NAME_LABEL of the Deployments to read.
DEPLOYMENTS = (*_ADAPTER, *_KEDA, *_STATES)
# Characters of a random ID or a digest: enough to differ, and 1,000 nodes fit into a ConfigMap.
_SHORT = 12


@dataclass(frozen=True)
class ClusterParts:
    """What all nodes and the chain share.

    deployments:   those of DEPLOYMENTS. rules: recording rules of the temporary workload.
    admission:     RuntimeClasses, and policies that may reject pods, with their bindings.
    claimable:     GPUs that pods can claim by dynamic resource allocation, by node.
    kubernetes:    release of the API server. prometheus: Service or address that is queried.
    runtime_class: of the pods. backend: metrics backend.
    """

    daemon_sets: Sequence[Manifest] = ()
    deployments: Sequence[Manifest] = ()
    prometheuses: Sequence[Manifest] = ()
    admission: Sequence[Manifest] = ()
    claimable: Mapping[str, int] = field(default_factory=dict)
    rules: Sequence[Manifest] = ()
    kubernetes: str = ""
    prometheus: str = ""
    runtime_class: str = ""
    backend: str = ADAPTER

    @cached_property
    def plugin(self) -> str:
        return _versions((its, found) for its in self.daemon_sets if (found := _gives_gpus(its)))

    @cached_property
    def toolkit(self) -> str:
        """The one that the GPU operator installs."""
        return _versions((its, found) for its in self.daemon_sets if (found := OPERATOR_TOOLKIT.container(its)))

    @property
    def exporter(self) -> str:
        return _versions((its, found) for its in self.daemon_sets if (found := EXPORTER.container(its)))

    def deployed(self, names: Sequence[str]) -> str:
        return _versions(
            (its, next(iter(containers_of(its)), {}))
            for its in self.deployments
            if labels_of(its).get(NAME_LABEL) in names
        )

    def served_by(self, backend: str, names: Sequence[str]) -> str:
        """Versions of a metrics backend's Deployments; empty for a backend that is not used."""
        return self.deployed(names) if backend == self.backend else ""


@dataclass(frozen=True)
class NodeParts:
    """node: the node. resources: of its GPUs. server: values that its server reports, by their name in NODE."""

    cluster: ClusterParts
    node: Manifest
    resources: Sequence[str] = ()
    server: Mapping[str, str] = field(default_factory=dict)

    def info(self, field: str) -> str:
        return str(((self.node.get("status") or {}).get("nodeInfo") or {}).get(field, ""))


# How each entry is read; empty if it is unknown.
NODE: Mapping[str, Callable[[NodeParts], str]] = {
    "admission": lambda of: digest(sorted(map(_content, of.cluster.admission), key=str)),
    "boot": lambda of: of.info("bootID")[:_SHORT],
    "driver": lambda of: of.server.get("driver") or labels_of(of.node).get(_DRIVER, ""),
    "gpus": lambda of: of.server.get("gpus", ""),
    "kernel": lambda of: of.info("kernelVersion"),
    "kubelet": lambda of: of.info("kubeletVersion"),
    "plugin": lambda of: of.cluster.plugin,
    "resource": lambda of: ", ".join(sorted(of.resources)),
    "runtime": lambda of: of.info("containerRuntimeVersion"),
    "runtime_class": lambda of: of.cluster.runtime_class,
    "toolkit": lambda of: of.server.get("toolkit") or of.cluster.toolkit,
    "toolkit_config": lambda of: of.server.get("toolkit_config", ""),
}
CHAIN: Mapping[str, Callable[[ClusterParts], str]] = {
    "adapter": lambda of: of.served_by(ADAPTER, _ADAPTER),
    "backend": lambda of: of.backend,
    "exporter": lambda of: of.exporter,
    "keda": lambda of: of.served_by(KEDA, _KEDA),
    "kubernetes": lambda of: of.kubernetes,
    "pod_states": lambda of: of.deployed(_STATES),
    "prometheus": lambda of: _versions((its, its.get("spec") or {}) for its in of.prometheuses),
    "prometheus_address": lambda of: of.prometheus,
    "rules": lambda of: digest([rule["spec"] for rule in of.rules]),
}


def known(entries: Mapping[str, Callable[[Parts], str]], parts: Parts) -> dict[str, str]:
    """The values of the entries, without those that are unknown."""
    return {name: value for name, read in entries.items() if (value := read(parts))}


def digest(content: Any) -> str:
    """Of any JSON; empty for an empty one."""
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_SHORT] if content else ""


def _gives_gpus(daemon_set: Manifest) -> Container | None:
    if gives_gpus_by_dra(daemon_set):
        return next(iter(containers_of(daemon_set)), None)
    return plugin_container(daemon_set)


def _versions(found: Iterable[tuple[Manifest, Container]]) -> str:
    """Charts or images, each with a digest of its settings; each node pool may have a separate object."""
    versions = {
        f"{labels.get(_CHART) or labels.get('chart') or container.get('image') or '-'} ({digest(_settings(manifest))})"
        for manifest, container in found
        for labels in [labels_of(manifest)]
    }
    return ", ".join(sorted(versions))


def _content(manifest: Manifest) -> Any:
    """All except its status and what changes in its metadata."""
    kept = {name: value for name, value in manifest.items() if name not in ("metadata", "status")}
    return {**kept, "name": manifest["metadata"]["name"]}


def _settings(manifest: Manifest) -> Any:
    """The pod template's spec, or else the whole spec."""
    spec = manifest.get("spec") or {}
    return (spec.get("template") or {}).get("spec") or spec
