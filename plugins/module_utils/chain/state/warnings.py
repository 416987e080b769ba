# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Warnings about waiting or failing objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...kube.objects import Manifest, last_seen

_SCALED_OBJECT = "ScaledObject"


@dataclass(frozen=True)
class Warnings:
    events: Sequence[Manifest] = ()

    @cached_property
    def _by_object(self) -> dict[str, dict[str, list[Manifest]]]:
        """Warnings by namespace and name of the object, oldest first."""
        events: dict[str, dict[str, list[Manifest]]] = {}
        for event in sorted(self.events, key=last_seen):
            about = event.get("involvedObject") or {}
            if about.get("kind") == _SCALED_OBJECT:
                continue
            of_namespace = events.setdefault(about.get("namespace", ""), {})
            of_namespace.setdefault(about.get("name", ""), []).append(event)
        return events

    def about(self, manifest: Manifest) -> list[Manifest]:
        """Warnings about an object, oldest first."""
        metadata = manifest["metadata"]
        return self._by_object.get(metadata["namespace"], {}).get(metadata["name"], [])

    def about_scaled_object(self, scaled_object: Manifest) -> list[Manifest]:
        """KEDA's warnings about a ScaledObject, which may have the name of its target, oldest first."""
        place = _SCALED_OBJECT, scaled_object["metadata"]["namespace"], scaled_object["metadata"]["name"]
        found = [
            event
            for event in self.events
            if tuple(map((event.get("involvedObject") or {}).get, ("kind", "namespace", "name"))) == place
        ]
        return sorted(found, key=last_seen)

    def about_replica_sets(self, deployment: Manifest) -> list[Manifest]:
        """Warnings about the ReplicaSets of a Deployment, which are named after it with a hash."""
        metadata = deployment["metadata"]
        replica_set = re.compile(rf"{re.escape(metadata['name'])}-[a-z0-9]{{6,10}}")
        by_name = self._by_object.get(metadata["namespace"], {})
        events = [event for name, events in by_name.items() if replica_set.fullmatch(name) for event in events]
        return [event for event in events if event["involvedObject"].get("kind") == "ReplicaSet"]
