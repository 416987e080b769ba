# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Requests that a pod of a model server rejected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rejections:
    """Requests of a model server's pod, per second in the last minutes."""

    rejected: float
    completed: float

    @property
    def share(self) -> float:
        """Part of the requests that reached the pod, 0 to 1."""
        requests = self.rejected + self.completed
        return self.rejected / requests if requests else 0.0
