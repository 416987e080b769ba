# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.identity import NO_INVENTORY_NAMES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube import labels as marks


def inventory_id(source: str) -> str:
    """The ID of an inventory, as a valid label value: its folder, and its file unless that has a generic name."""
    path = Path(source).absolute()
    if path.is_dir() or path.stem in (*NO_INVENTORY_NAMES, path.parent.name):
        return marks.inventory_id((path if path.is_dir() else path.parent).name)
    return marks.inventory_id(f"{path.parent.name}-{path.stem}")


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"inventory_id": inventory_id}
