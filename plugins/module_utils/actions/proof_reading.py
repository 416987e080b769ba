# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reads what the proof depends on: nodes with GPUs, versions of components, and the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..autoscaling.manifests import Manifest
from ..chain.objects import containers_of, labels_of
from ..chain.selectors import labels_match
from ..chain.signs import EXPORTER, gives_gpus_by_dra, plugin_container
from ..cluster.errors import ApiError
from ..cluster.kube import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, NODES, PODS, PROMETHEUSES, KubeClient
from ..proof.nodes import GpuNode, Server, gpu_nodes
from ..proof.record import NAME, NAMESPACE, Record, record_of

_CHART = "helm.sh/chart"
_ADAPTER = "app.kubernetes.io/name=prometheus-adapter"
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True)
class Seen:
    """nodes:    nodes with GPUs. chain: versions of the components between GPU and HPA.
    record:   earlier proofs.
    machines: all nodes by machine ID.
    """

    nodes: Sequence[GpuNode]
    chain: Mapping[str, str]
    record: Record
    machines: frozenset[str]


class Reader:
    """Reads a cluster. Lists the pods of all namespaces only if something must be proven."""

    def __init__(self, kube: KubeClient, servers: Sequence[Server], selector: Mapping[str, str]) -> None:
        """selector: labels of the inventory's nodes; empty for all."""
        self._kube, self._servers, self._selector = kube, servers, selector

    def look(self, *, with_pods: bool) -> Seen:
        """Without the pods, every GPU would appear free."""
        kube = self._kube
        listed = kube.list(NODES) or ()
        nodes = [node for node in listed if labels_match({"matchLabels": self._selector}, labels_of(node))]
        daemon_sets = kube.list(DAEMON_SETS) or ()
        plugin, exporter = _version(daemon_sets, _gives_gpus), _version(daemon_sets, EXPORTER.container)
        pods = (kube.list(PODS, field_selector=_LIVE) or ()) if with_pods else ()
        config_map = kube.get(CONFIG_MAPS, NAME, NAMESPACE)
        chain = {
            "exporter": exporter,
            "adapter": _chart_or_image(next(iter(_readable(kube, DEPLOYMENTS, _ADAPTER)), None)),
            "prometheus": _chart_or_image(next(iter(_readable(kube, PROMETHEUSES)), None)),
            "kubernetes": str(kube.get_raw("/version", retry=True).get("gitVersion", "")),
        }
        return Seen(
            gpu_nodes(nodes, pods, self._servers, {"plugin": plugin} if plugin else {}),
            {name: version for name, version in chain.items() if version},
            record_of(config_map),
            frozenset((node.get("status") or {}).get("nodeInfo", {}).get("machineID", "") for node in listed),
        )


def _readable(kube: KubeClient, resource: Any, selector: str | None = None) -> Sequence[Manifest]:
    """Empty without the permission or the kind: then the version is unknown."""
    try:
        return kube.list(resource, label_selector=selector) or ()
    except ApiError as err:
        if err.status != 403:
            raise
        return ()


def _gives_gpus(daemon_set: Manifest) -> Mapping[str, Any] | None:
    if gives_gpus_by_dra(daemon_set):
        return next(iter(containers_of(daemon_set)), None)
    return plugin_container(daemon_set)


def _version(daemon_sets: Sequence[Manifest], container: Callable[[Manifest], Mapping[str, Any] | None]) -> str:
    """Versions of matching DaemonSets, by name: each node pool may have one."""
    found = sorted(
        labels_of(daemon_set).get(_CHART) or str(its.get("image", ""))
        for daemon_set in daemon_sets
        if (its := container(daemon_set))
    )
    return ", ".join(dict.fromkeys(found))


def _chart_or_image(manifest: Manifest | None) -> str:
    if manifest is None:
        return ""
    labels = labels_of(manifest)
    images = [str(container.get("image", "")) for container in containers_of(manifest)]
    image = next(iter(images), "") or str((manifest.get("spec") or {}).get("image") or "")
    return labels.get(_CHART) or labels.get("chart") or image
