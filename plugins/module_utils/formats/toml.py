# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Writes TOML, which Python's standard library only reads, and changes one line of an existing document."""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_IMPORTS = re.compile(r"^imports[ \t]*=[ \t]*\[", re.MULTILINE)
_MARK = "# kubegpu.autoscale"


def to_toml(table: Mapping[str, Any]) -> str:
    """A TOML document: plain values first, then a section for each table that has values.

    Raises: TypeError for values that TOML does not support, such as None.
    """
    return "\n".join(_section(table, ())) + "\n"


def from_toml(document: str) -> dict[str, Any]:
    """Parses a TOML document. Raises: ValueError with line and column."""
    return tomllib.loads(document)


def with_import(document: str, pattern: str) -> str:
    """The document with `pattern` first in its `imports`; all other characters stay.

    A relative import is relative to the folder two levels above the pattern's files, that of containerd's main file.
    Raises: ValueError if the document is not TOML, or if its `imports` cannot be extended.
    """
    settings = from_toml(document)
    imports = settings.get("imports", [])
    folder = posixpath.dirname(posixpath.dirname(pattern))
    if isinstance(imports, list) and pattern in (posixpath.join(folder, str(path)) for path in imports):
        return document
    changed = _extended(document, pattern) if "imports" in settings else _whole_line(pattern) + document
    if not isinstance(imports, list) or from_toml(changed) != settings | {"imports": [pattern, *imports]}:
        raise ValueError(f"imports = {imports!r} cannot be extended: write it as a list on top of the file")
    return changed


def without_import(document: str, pattern: str) -> str:
    """The document before `with_import`; a document with that import by another writer does not change."""
    line = _whole_line(pattern)
    return document.replace(line if line in document else _element(pattern), "", 1)


def _extended(document: str, pattern: str) -> str:
    return _IMPORTS.sub(lambda opening: opening[0] + _element(pattern), document, count=1)


def _whole_line(pattern: str) -> str:
    return f"imports = [{_string(pattern)}] {_MARK}\n"


def _element(pattern: str) -> str:
    """An array may have line breaks and comments between its values, so this one contains its mark."""
    return f"{_string(pattern)}, {_MARK}\n"


def _section(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    values = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if path and (values or not table):
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in values.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _section(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: Any) -> str:
    """Booleans and numbers are written as in JSON."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise TypeError(f"TOML has no value for {value!r}")


def _string(text: str) -> str:
    """As in JSON, which has no escape for characters above U+FFFF and allows DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
