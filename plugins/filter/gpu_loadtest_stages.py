# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.shapes import as_dicts, stages_of


def gpu_loadtest_stages(
    shape: str,
    low: float,
    high: float,
    settle: int,
    fall: int,
    rise: int | None = None,
    hold: int | None = None,
) -> list[dict[str, Any]]:
    """The stages of a load test. Numbers may be text, as the command line gives them.

    Raises: AnsibleFilterError if the shape is unknown, or if the load is held for no time.
    """
    if hold is not None and str(hold).isdecimal() and int(hold) == 0:
        raise AnsibleFilterError("gpu_loadtest_hold is 0: nothing would be measured under load; give a second at least")
    try:
        stages = stages_of(
            shape,
            low=float(low),
            high=float(high),
            settle_s=int(settle),
            fall_s=int(fall),
            rise_s=None if rise is None else int(rise),
            hold_s=None if hold is None else int(hold),
        )
    except (KeyError, ValueError) as err:
        raise AnsibleFilterError(f"gpu_loadtest_stages: no such shape of load, or no number: {err}") from err
    return as_dicts(stages)


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_loadtest_stages": gpu_loadtest_stages}
