"""Measures sentences by the counting rule of Simplified Technical English (ASD-STE100).

A colon ends a sentence as a full stop does. Words in parentheses count separately. Code and a number are one word each.
Headings and code blocks are no sentences. A cell of a table is a text of its own, and a semicolon parts its items. It
also does in docstrings and comments, which are as terse.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

MOST_WORDS = 35

_BLOCK = re.compile(r"^```.*?^```|<!--.*?-->", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]+`|\b[A-Z]\([^)]*\)")  # in Markdown, and in the documentation of modules
_ITEM = re.compile(r"^\s*([-*]|\d+\.) ")
_ROW = re.compile(r"\S {2,}\S")
_END = re.compile(r"(?<=[.!?:])[*_\"']*\s+")
_PARENTHESES = re.compile(r"\s*\(([^()]*)\)")
_WORD = re.compile(r"\S*\w\S*")
_DOCUMENTED = {"DOCUMENTATION", "RETURN"}


def long_sentences(texts: Iterable[str]) -> list[str]:
    return [text for long in texts for text in _sentences(long) if len(_WORD.findall(text)) > MOST_WORDS]


def of_page(markdown: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables, each on one line."""
    lines: list[str] = []
    for line in [*_BLOCK.sub("", markdown).splitlines(), ""]:
        stripped = line.strip()
        begins = not stripped or stripped.startswith(("#", "|")) or bool(_ITEM.match(line))
        if begins and lines:
            yield " ".join(lines)
            lines = []
        if stripped.startswith("|"):
            yield from re.split(r"(?<!\\)\||;", stripped.strip("|"))
        elif stripped and not stripped.startswith("#"):
            lines.append(_ITEM.sub("", line).strip())


def of_python(source: str) -> Iterator[str]:
    """Docstrings, comments, and the descriptions in the documentation of modules."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield from _terse(ast.get_docstring(node) or "")
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and _name(node) in _DOCUMENTED:
            yield from descriptions(yaml.safe_load(node.value.value))
    yield from _terse("\n".join(_comments(source)))


def descriptions(documented: Any) -> Iterator[str]:
    """Of a module's documentation, an argument spec or a part of them."""
    if isinstance(documented, list):
        for part in documented:
            yield from descriptions(part)
    elif isinstance(documented, dict):
        for key, part in documented.items():
            if key in ("description", "short_description", "notes") and isinstance(part, str | list):
                yield from (text for text in ([part] if isinstance(part, str) else part) if isinstance(text, str))
            else:
                yield from descriptions(part)


def _terse(text: str) -> Iterator[str]:
    """By paragraph; rows of columns are a line each."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        is_table = len(lines) > 1 and sum(bool(_ROW.search(line)) for line in lines) > len(lines) / 2
        for part in lines if is_table else [" ".join(lines)]:
            yield from part.split(";")


def _comments(source: str) -> Iterator[str]:
    """Lines of comments, with an empty one where code is between."""
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from ["", ""][: (token.start[0] != last + 1) * 2]
            yield token.string.lstrip("# ")
            last = token.start[0]


def _name(node: ast.Assign) -> str:
    return next((target.id for target in node.targets if isinstance(target, ast.Name)), "")


def _sentences(text: str) -> Iterator[str]:
    text = _CODE.sub("CODE", _LINK.sub(r"\1", text))
    for inner in _PARENTHESES.findall(text):
        yield from _END.split(inner)
    yield from _END.split(_PARENTHESES.sub("", text))
