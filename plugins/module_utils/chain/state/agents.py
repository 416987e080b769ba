# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Exporters and device plugins on GPU nodes, with their pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...kube.known_components import EXPORTER, plugin_container
from ...kube.label_selectors import labels_match
from ...kube.objects import Manifest, is_ready, labels_of, name_of
from ...kube.pods import phase
from ...kube.visible_devices import got_by_variable


@dataclass(frozen=True)
class Agents:
    """daemon_sets: all of the cluster. pods: those in the namespaces of its components."""

    daemon_sets: Sequence[Manifest] = ()
    pods: Sequence[Manifest] = ()

    @cached_property
    def exporters(self) -> list[Manifest]:
        """DaemonSets of dcgm-exporter, with any installer."""
        return [daemon_set for daemon_set in self.daemon_sets if EXPORTER.container(daemon_set)]

    @cached_property
    def plugins(self) -> list[Manifest]:
        """DaemonSets of NVIDIA's device plugin, of the operator or of a cloud, without GPU feature discovery."""
        return [daemon_set for daemon_set in self.daemon_sets if plugin_container(daemon_set)]

    @cached_property
    def _pods_by_daemon_set(self) -> dict[str, list[Manifest]]:
        by_namespace: dict[str, list[Manifest]] = {}
        for pod in self.pods:
            by_namespace.setdefault(pod["metadata"]["namespace"], []).append(pod)
        return {
            name_of(daemon_set): [
                pod
                for pod in by_namespace.get(daemon_set["metadata"]["namespace"], ())
                if labels_match(daemon_set["spec"]["selector"], labels_of(pod))
            ]
            for daemon_set in (*self.exporters, *self.plugins)
        }

    def pods_of(self, daemon_sets: Iterable[Manifest]) -> list[Manifest]:
        return [pod for daemon_set in daemon_sets for pod in self._pods_by_daemon_set[name_of(daemon_set)]]

    def by_node(self, daemon_sets: Iterable[Manifest]) -> dict[str, list[Manifest]]:
        found: dict[str, list[Manifest]] = {}
        for pod in self.pods_of(daemon_sets):
            found.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        return found

    @property
    def all_pods(self) -> list[Manifest]:
        return self.pods_of((*self.exporters, *self.plugins))

    @property
    def has_default_runtime(self) -> bool:
        """Whether NVIDIA's runtime is that of the nodes: a plugin gets GPUs by the variable without a RuntimeClass."""
        return any(
            got_by_variable(plugin) and not plugin["spec"]["template"]["spec"].get("runtimeClassName")
            for plugin in self.plugins
        )

    def nodes_with_variable(self) -> set[str]:
        """Nodes with a ready plugin that got its GPUs by the variable."""
        plugins = [plugin for plugin in self.plugins if got_by_variable(plugin)]
        return {pod["spec"].get("nodeName", "") for pod in self.pods_of(plugins) if is_ready(pod)}

    @cached_property
    def exporter_pods(self) -> list[Manifest]:
        return self.pods_of(self.exporters)

    @property
    def without_pods(self) -> list[Manifest]:
        """Exporters and device plugins whose controller has not created a pod yet."""
        return [
            daemon_set
            for daemon_set in (*self.exporters, *self.plugins)
            if (status := daemon_set.get("status") or {}).get("currentNumberScheduled", 0)
            < status.get("desiredNumberScheduled", 0)
        ]

    @property
    def waiting_exporters(self) -> list[Manifest]:
        """Their scheduled pods without containers."""
        return [pod for pod in self.exporter_pods if pod["spec"].get("nodeName") and phase(pod) == "Pending"]
