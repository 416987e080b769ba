# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.loadtest.verdict import judge
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.loadtest import (
    loadtest_headline,
    loadtest_junit,
    loadtest_lines,
    loadtest_page,
    stage_line,
)

_FORMATS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "text": loadtest_lines,
    "html": loadtest_page,
    "junit": loadtest_junit,
    "verdict": judge,
    "headline": loadtest_headline,
    "stage": stage_line,
}


def gpu_loadtest_report(run: Mapping[str, Any], format: str = "text") -> Any:
    """A load test in one of the formats.

    Raises: AnsibleFilterError if the format is unknown, or if the input is not a load test.
    """
    if format not in _FORMATS:
        raise AnsibleFilterError(f"gpu_loadtest_report: {format} is not one of {', '.join(_FORMATS)}")
    try:
        return _FORMATS[format](run)
    except (KeyError, TypeError, AttributeError, IndexError) as err:
        raise AnsibleFilterError(f"gpu_loadtest_report: this is no load test of gpu_loadtest: {err!r}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_loadtest_report": gpu_loadtest_report}
