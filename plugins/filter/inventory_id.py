# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils import marks


def inventory_id(source: str) -> str:
    """The ID of an inventory: the name of its folder, as a valid label value."""
    path = Path(source).absolute()
    return marks.inventory_id((path if path.is_dir() else path.parent).name)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"inventory_id": inventory_id}
