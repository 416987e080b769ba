# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.target_search import (
    judge_search,
    users_to_confirm,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.target import (
    target_headline,
    target_lines,
    target_page,
)

_FORMATS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "text": target_lines,
    "html": target_page,
    "verdict": judge_search,
    "headline": target_headline,
    "users": users_to_confirm,
}


def gpu_target_report(run: Mapping[str, Any], format: str = "text") -> Any:
    """A search for a target value in one of the formats.

    Raises: AnsibleFilterError for an unknown format, and for what is no such search.
    """
    if format not in _FORMATS:
        raise AnsibleFilterError(f"gpu_target_report: {format} is not one of {', '.join(_FORMATS)}")
    try:
        return _FORMATS[format](run)
    except (KeyError, TypeError, AttributeError, IndexError) as err:
        raise AnsibleFilterError(f"gpu_target_report: this is no search of gpu_loadtest: {err!r}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_target_report": gpu_target_report}
