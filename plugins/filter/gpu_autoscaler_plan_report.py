# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.autoscaler_plan import plan_lines, plan_page


def gpu_autoscaler_plan_report(result: Mapping[str, Any], format: str = "text", width: int = 100) -> str | list[str]:
    """The plans as lines of text, or as a page.

    Raises: AnsibleFilterError if the format is unknown, or if the input is not a result of gpu_autoscaler_plan.
    """
    if format not in ("text", "html"):
        raise AnsibleFilterError(f"gpu_autoscaler_plan_report: {format} is not one of text, html")
    try:
        return plan_lines(result, width) if format == "text" else plan_page(result)
    except (KeyError, TypeError, AttributeError) as err:
        raise AnsibleFilterError(
            f"gpu_autoscaler_plan_report: this is no result of gpu_autoscaler_plan: {err!r}"
        ) from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_autoscaler_plan_report": gpu_autoscaler_plan_report}
