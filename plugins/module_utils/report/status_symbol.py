# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The status symbol of a hop: a different shape for each status, so that it is readable without colors."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from .elements import element

# Outline and sign, in 24 by 24 units.
_SHAPES = {
    "ok": ("M12 2a10 10 0 1 1 0 20a10 10 0 1 1 0-20z", "M7 12.5l3.5 3.5l6.5-7.5"),
    "warning": ("M12 2.5L23 21.5H1z", "M12 9.5v5.5M12 18.2v.1"),
    "broken": ("M7.9 2h8.2L22 7.9v8.2L16.1 22H7.9L2 16.1V7.9z", "M8 8l8 8M16 8l-8 8"),
    "consequence": ("M12 2L22 12L12 22L2 12z", "M8 12h7.5M12.5 9l3 3l-3 3"),
    "partial": ("M12 2a10 10 0 1 1 0 20a10 10 0 1 1 0-20z", "M7 12h10"),
    "unknown": ("M3 3h18v18H3z", "M9.3 9.2a2.8 2.8 0 1 1 4.4 2.6q-1.7 1-1.7 2.4M12 17.4v.1"),
}
_SEVERITIES = {"error": "broken", "warning": "warning"}


def light(status: str, *, hidden: bool = False) -> Element:
    """hidden: from screen readers, if the word is beside it."""
    outline, sign = _SHAPES[_SEVERITIES.get(status, status)]
    paths = [element("path", d=outline, class_="shape"), element("path", d=sign, class_="sign")]
    status_class = f"light {_SEVERITIES.get(status, status)}"
    if hidden:
        return element("svg", paths, class_=status_class, viewBox="0 0 24 24", aria_hidden="true")
    return element("svg", element("title", status), paths, class_=status_class, viewBox="0 0 24 24", role="img")
