# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Face of the code that shows a doctor's report."""

from __future__ import annotations

from ._domain.report_html import html
from ._domain.report_junit import junit
from ._domain.report_text import text_lines
from ._domain.report_words import failure

__all__ = ["failure", "html", "junit", "text_lines"]
