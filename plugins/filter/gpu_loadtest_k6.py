# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.shapes import from_dict, k6_options


def gpu_loadtest_k6(stages: list[Mapping[str, Any]], timeout: float, most_users: int) -> dict[str, Any]:
    """The scenario of k6 for some stages."""
    return k6_options([from_dict(stage) for stage in stages], timeout_s=float(timeout), most_users=int(most_users))


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_loadtest_k6": gpu_loadtest_k6}
