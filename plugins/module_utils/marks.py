# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Labels by which an object of this collection is known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MANAGER = "kubegpu.autoscale"
MANAGED_BY = "app.kubernetes.io/managed-by"
# Which part of the collection an object belongs to.
PART_OF = "app.kubernetes.io/part-of"
# At Helm's record of a release that the collection made, and at each object of it: its value is the release's name.
RELEASE = "kubegpu.autoscale/release"
# The inventory that an object was made for. Several may share a cluster.
INVENTORY = "kubegpu.autoscale/inventory"
# On rules that serve one namespace alone: which one.
NAMESPACE = "kubegpu.autoscale/namespace"

# Of who names no inventory.
DEFAULT_INVENTORY = "default"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LONGEST = 63


def is_managed(manifest: Mapping[str, Any]) -> bool:
    """Whether this collection made the object, for whichever inventory."""
    return _labels(manifest).get(MANAGED_BY) == MANAGER


def is_of(manifest: Mapping[str, Any], inventory: str) -> bool:
    """Whether this collection made the object for this inventory."""
    return is_managed(manifest) and inventory_of(manifest) == inventory


def inventory_of(manifest: Mapping[str, Any]) -> str:
    """The id of the inventory that the object was made for; empty if it has none."""
    return str(_labels(manifest).get(INVENTORY) or "")


def namespace_of(manifest: Mapping[str, Any]) -> str:
    """The one namespace that a rule serves; empty if it serves all."""
    return str(_labels(manifest).get(NAMESPACE) or "")


def maker(manifest: Mapping[str, Any]) -> str:
    """The manager of the object, for an error."""
    if not is_managed(manifest):
        return "is not managed by this collection"
    inventory = inventory_of(manifest)
    return f"belongs to inventory {inventory}" if inventory else f"has no label {INVENTORY}"


def hand_over(kind: str, namespace: str, name: str, inventory: str) -> str:
    """The command that gives an object to an inventory."""
    place = f" -n {namespace}" if namespace else ""
    return f"kubectl{place} label --overwrite {kind.lower()} {name} {INVENTORY}={inventory}"


def labels(inventory: str) -> dict[str, str]:
    """Of each object that is made for an inventory."""
    return {MANAGED_BY: MANAGER, INVENTORY: inventory}


def marked(manifest: Mapping[str, Any], inventory: str, part_of: str | None = None) -> dict[str, Any]:
    """The object with the labels of its inventory, and of its part of the collection if it is of one."""
    metadata = manifest["metadata"]
    part = {PART_OF: part_of} if part_of else {}
    return {**manifest, "metadata": {**metadata, "labels": {**_labels(manifest), **labels(inventory), **part}}}


def is_inventory_id(text: str) -> bool:
    """Whether the text can be the value of a label."""
    return bool(_LABEL_VALUE.fullmatch(text))


def inventory_id(name: str) -> str:
    """The id that follows from a name: the name itself where it can be the value of a label."""
    text = re.sub("[^A-Za-z0-9._-]+", "-", name)[:_LONGEST].strip("._-")
    return text or DEFAULT_INVENTORY


def _labels(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    return manifest["metadata"].get("labels") or {}
