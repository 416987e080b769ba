# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Computes how long ago something happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...kube.objects import Manifest, condition, unix, youngest


@dataclass(frozen=True)
class Clock:
    """now_s: Unix seconds, by Prometheus' clock if it answers."""

    now_s: float

    def seconds_since(self, timestamp: str | None) -> float | None:
        """Seconds since a time in an object; None without one."""
        then = unix(timestamp)
        return None if then is None else self.now_s - then

    def age_s(self, manifest: Manifest) -> float | None:
        return self.seconds_since(manifest["metadata"].get("creationTimestamp"))

    def last_change_age_s(self, manifest: Manifest) -> float | None:
        """Seconds since the last change except of its status, by managedFields; without those its age."""
        return self._since_a_write(manifest, lambda entry: entry.get("subresource") != "status")

    def last_write_age_s(self, manifest: Manifest) -> float | None:
        """Seconds since the last write, including its status."""
        return self._since_a_write(manifest, lambda entry: True)

    def _since_a_write(self, manifest: Manifest, counts: Callable[[Manifest], bool]) -> float | None:
        entries = manifest["metadata"].get("managedFields") or ()
        written = [self.seconds_since(entry.get("time")) for entry in entries if counts(entry)]
        return youngest([*written, self.age_s(manifest)])

    def condition_age_s(self, manifest: Manifest, kind: str) -> float | None:
        """Seconds since the condition last changed; the object's age if it has no such condition.

        For a pod that is being deleted: seconds since the deletion was requested.
        """
        metadata = manifest["metadata"]
        ending = self.seconds_since(metadata.get("deletionTimestamp"))
        if ending is not None:
            return ending + (metadata.get("deletionGracePeriodSeconds") or 0)
        age = self.seconds_since(condition(manifest, kind).get("lastTransitionTime"))
        return self.age_s(manifest) if age is None else age

    def longest_ready_s(self, pods: Iterable[Manifest]) -> float | None:
        """Seconds since the pod became ready that has been ready longest."""
        ages = [self.condition_age_s(pod, "Ready") for pod in pods]
        return max((age for age in ages if age is not None), default=None)
