"""A page as html.parser reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "wbr"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    def all(self, tag: str = "", class_: str = "", **attributes: str) -> list[Node]:
        """Those below, in the page's order."""
        return [node for node in self._below() if node._fits(tag, class_, attributes)]

    def one(self, tag: str = "", class_: str = "", **attributes: str) -> Node:
        (only,) = self.all(tag, class_, **attributes)
        return only

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def classes(self) -> list[str]:
        return self.attributes.get("class", "").split()

    def _below(self) -> list[Node]:
        nodes = [child for child in self.children if isinstance(child, Node)]
        return [found for node in nodes for found in (node, *node._below())]

    def _fits(self, tag: str, class_: str, attributes: dict[str, str]) -> bool:
        same = all(self.attributes.get(name) == value for name, value in attributes.items())
        return same and tag in ("", self.tag) and (not class_ or class_ in self.classes)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Node("")]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(page: str) -> Node:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader.open) == 1, f"never closed: {[node.tag for node in reader.open[1:]]}"
    return reader.open[0]
