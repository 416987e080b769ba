# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..cluster.errors import ApiError
from ..cluster.kube import title_of
from ..errors import HopError
from ..kube.objects import Manifest
from ..secrets import redacted


@dataclass
class Outcome:
    """The outcome of a run, in the format that all modules return.

    errors: failures. With any error the module fails, but its result is complete.
    public: entries of the result that are built without secrets and shown as they are.
    """

    changed: bool = False
    result: dict[str, Any] = field(default_factory=dict)
    diff: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[HopError | ApiError] = field(default_factory=list)
    public: dict[str, Any] = field(default_factory=dict)

    def record(self, before: Manifest | None, after: Manifest | HopError | ApiError | None) -> str:
        """Record the result for one object. Returns created, changed, deleted, unchanged or failed."""
        if isinstance(after, (HopError, ApiError)):
            self.errors.append(after)
            return "failed"
        if not differs(before, after):
            return "unchanged"
        name = title_of(after or before or {})
        self.changed = True
        self.diff.append(
            {
                "before_header": name,
                "after_header": name,
                "before": _readable(before) or "",
                "after": _readable(after) or "",
            }
        )
        if before is None:
            return "created"
        return "deleted" if after is None else "changed"

    def shown_diff(self) -> list[dict[str, Any]]:
        """The diff without secrets. Computed once, because hiding takes a millisecond per object."""
        return [
            {**entry, **{side: _without_secrets(entry["before_header"], entry[side]) for side in ("before", "after")}}
            for entry in self.diff
        ]


def _without_secrets(title: str, manifest: Manifest | str) -> Manifest | str:
    """Which values are secret depends on the kind, which is the beginning of the title."""
    if isinstance(manifest, str):
        return manifest
    shown: dict[str, Any] = redacted({**manifest, "kind": title.partition(" ")[0]})
    del shown["kind"]
    return shown


def differs(before: Manifest | None, after: Manifest | None) -> bool:
    """Whether content, labels or annotations differ."""
    return _readable(before) != _readable(after)


def _readable(manifest: Manifest | None) -> Manifest | None:
    """Without fields that the API server manages."""
    if manifest is None:
        return None
    metadata = manifest["metadata"]
    return {
        "metadata": {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if metadata.get(key)},
        **{part: manifest[part] for part in manifest if part not in ("apiVersion", "kind", "metadata", "status")},
    }
