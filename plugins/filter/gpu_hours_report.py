# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.hours import hours_csv, hours_lines, hours_page

_FORMATS: dict[str, Callable[[Mapping[str, Any]], str | list[str]]] = {
    "text": hours_lines,
    "html": hours_page,
    "csv": hours_csv,
}


def gpu_hours_report(result: Mapping[str, Any], format: str = "text") -> str | list[str]:
    """The hours as lines of text, a page, or CSV.

    Raises: AnsibleFilterError if the format is unknown, or if the input is not a result of gpu_hours_info.
    """
    if format not in _FORMATS:
        raise AnsibleFilterError(f"gpu_hours_report: {format} is not one of {', '.join(_FORMATS)}")
    try:
        return _FORMATS[format](result)
    except (KeyError, TypeError, AttributeError, IndexError) as err:
        raise AnsibleFilterError(f"gpu_hours_report: this is no result of gpu_hours_info: {err!r}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_hours_report": gpu_hours_report}
