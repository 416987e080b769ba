# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads the objects that identify the components of a cluster.

Called by actions/survey_cluster.py. In: a client. Out: `Objects` for components/detection.py.
"""

from __future__ import annotations

from typing import Any

from ..cluster.kube import APISERVICES, DEPLOYMENTS, RULES, RUNTIME_CLASSES, SECRETS, STATEFUL_SETS, KubeClient
from ..cluster.parallel import in_parallel
from ..components.detection import METRICS_APIS, Objects
from ..kube.labels import INVENTORY, RELEASE
from ..kube.objects import Manifest, name_of
from .reader import Listed, Reader
from .unread_parts import attempt

_LISTS = ("daemon_sets", "deployments", "stateful_sets", "services", "prometheuses", "namespaces", "nodes")


class ComponentReader(Reader):
    """The objects that identify components. Every error except a missing right is raised: it may hide a component."""

    deployments = Listed(DEPLOYMENTS)
    stateful_sets = Listed(STATEFUL_SETS)
    runtime_classes = Listed(RUNTIME_CLASSES)

    def __init__(self, kube: KubeClient, inventory: str) -> None:
        """inventory: owner of the managed objects."""
        super().__init__(kube, is_strict=True)
        self._inventory = inventory

    def objects(self) -> Objects:
        resources = {name: self.resource_of(name) for name in _LISTS}
        self.read_ahead(list(resources.values()))
        lists: dict[str, Any] = {
            # The objects of a list do not contain their kind.
            name: [{**manifest, "kind": resource.kind} for manifest in getattr(self, name)]
            for name, resource in resources.items()
        }
        if not self.is_known("namespaces"):
            lists["namespaces"] = None
        return Objects(**lists, api_services=self._api_services(), releases=self._releases(), inventory=self._inventory)

    @property
    def class_names(self) -> list[str] | None:
        """RuntimeClasses; None if they could not be read."""
        return sorted(map(name_of, self.runtime_classes)) if self.is_known("runtime_classes") else None

    @property
    def sees_releases(self) -> bool:
        return "releases" not in self.gaps.unavailable

    @property
    def serves_monitors(self) -> bool:
        """Whether ServiceMonitor is served; true if the user is not allowed to list the kinds."""
        kinds = attempt(lambda: self.kube.discover(RULES.api_version))
        return not isinstance(kinds, dict) or "ServiceMonitor" in kinds

    @property
    def unread(self) -> dict[str, str]:
        """Kinds that the user is not allowed to list, each with the missing right."""
        kinds = {name: self.resource_of(name).kind for name in _LISTS} | {"apis": APISERVICES.kind}
        return {kind: self.gaps.unavailable[part] for part, kind in kinds.items() if part in self.gaps.unavailable}

    def _api_services(self) -> dict[str, Manifest]:
        groups = list(METRICS_APIS)
        answers = in_parallel(lambda group: self.kube.get(APISERVICES, f"{METRICS_APIS[group]}.{group}"), groups)
        found = {group: self.gaps.note("apis", answer, None) for group, answer in zip(groups, answers, strict=True)}
        return {group: service for group, service in found.items() if service}

    def _releases(self) -> frozenset[tuple[str, str]]:
        """Releases of the inventory, because objects of an interrupted release have no label yet."""
        selector = f"owner=helm,{RELEASE},{INVENTORY}={self._inventory}"
        records = self.take("releases", lambda: self.kube.list_metadata(SECRETS, label_selector=selector))
        return frozenset((record["metadata"]["namespace"], record["metadata"]["labels"][RELEASE]) for record in records)
