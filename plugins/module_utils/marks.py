# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Labels by which an object of this collection is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MANAGER = "kubegpu.autoscale"
MANAGED_BY = "app.kubernetes.io/managed-by"
# Which part of the collection an object belongs to.
PART_OF = "app.kubernetes.io/part-of"
# At Helm's record of a release that the collection made, and at each object of it: its value is the release's name.
RELEASE = "kubegpu.autoscale/release"


def is_managed(manifest: Mapping[str, Any]) -> bool:
    """Whether this collection made the object."""
    return (manifest["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER


def marked(manifest: Mapping[str, Any], part_of: str | None = None) -> dict[str, Any]:
    """The object as one of ours, of this part of the collection if it is of one."""
    metadata = manifest["metadata"]
    part = {PART_OF: part_of} if part_of else {}
    labels = {**(metadata.get("labels") or {}), MANAGED_BY: MANAGER, **part}
    return {**manifest, "metadata": {**metadata, "labels": labels}}
