# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""HTML and SVG as trees, so that every text and attribute is escaped when they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias
from xml.etree.ElementTree import Element

from .doctor_texts import clean

_BREAKS = re.compile(r"(?<=[/_:@=,])(?=\w)|(?<=\.)(?=[A-Za-z])|(?<=\w-)(?=\w)|(?<=[a-z])(?=[A-Z])")
Child: TypeAlias = "Element | str | None"


def element(tag: str, *children: Child | Iterable[Child], **attributes: object) -> Element:
    """An element with text and elements in it; None is left out, of attributes too.

    Attributes are written as Python can: `class_`, `aria_label`.
    """
    made = Element(
        tag,
        {name.rstrip("_").replace("_", "-"): clean(value) for name, value in attributes.items() if value is not None},
    )
    for child in children:
        if child is None or isinstance(child, str | Element):
            _add(made, child)
        else:
            for part in child:
                _add(made, part)
    return made


def breakable(text: str) -> list[Child]:
    """A text that can be wrapped after punctuation and between words, but not inside words."""
    first, *more = _BREAKS.split(clean(text))
    return [first, *(part for word in more for part in (element("wbr"), word))]


def figures_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, label: str = "") -> Element:
    """A table whose rows are lists on narrow screens: a name per row, then figures. label: for screen readers."""
    titles = [element("th", title, scope="col", class_="figures" if at else None) for at, title in enumerate(head)]
    body = [
        element(
            "tr",
            element("th", breakable(name), scope="row"),
            [
                element("td", figure, class_="figures", data_title=title)
                for title, figure in zip(head[1:], figures, strict=True)
            ],
        )
        for name, *figures in rows
    ]
    return element(
        "div",
        element("table", element("caption", caption), element("thead", element("tr", titles)), element("tbody", body)),
        class_="scroll list",
        role="region",
        aria_label=f"{label or head[0]}, table",
        tabindex="0",
    )


def _add(parent: Element, child: Child) -> None:
    if child is None:
        return
    if isinstance(child, Element):
        parent.append(child)
        return
    text = clean(child)
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text
