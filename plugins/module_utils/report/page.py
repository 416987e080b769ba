# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from xml.etree.ElementTree import Element, tostring

from .elements import element
from .style import STYLE


def page(title: str, *body: Element) -> str:
    """A self-contained HTML page. Equal elements result in equal pages."""
    whole = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("link", rel="icon", href="data:,"),  # otherwise browsers request one
            element("title", title),
            element("style", STYLE),
        ),
        element("body", body),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{tostring(whole, encoding='unicode', method='html')}\n"
