# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.doctor_texts import failure
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.html import html
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.junit import junit
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.text import text_lines
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.textfile import textfile

_FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "failure": failure,
    "html": html,
    "junit": junit,
    "textfile": textfile,
}


def gpu_doctor_report(
    report: Mapping[str, Any], format: str = "text", colour: bool = False, width: int = 80
) -> str | list[str]:
    """The report as lines of text, one line, a page or XML.

    Raises: AnsibleFilterError if the format is unknown, or if the input is not a report.
    """
    if format != "text" and format not in _FORMATS:
        raise AnsibleFilterError(f"gpu_doctor_report: {format} is not one of text, {', '.join(_FORMATS)}")
    try:
        return text_lines(report, colour=colour, width=width) if format == "text" else _FORMATS[format](report)
    except (KeyError, TypeError, AttributeError) as err:
        raise AnsibleFilterError(f"gpu_doctor_report: this is no report of gpu_doctor: {err!r}") from err


class FilterModule:
    """Filters of this file by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_doctor_report": gpu_doctor_report}
