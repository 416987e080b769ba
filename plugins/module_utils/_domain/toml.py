# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writes TOML, which Python's standard library only reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(table: Mapping[str, Any]) -> str:
    """A TOML document: plain values first, then a section for each table that has values of its own.

    Raises: TypeError on what TOML cannot say (None, for instance).
    """
    return "\n".join(_section(table, ())) + "\n"


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
    """Booleans and numbers look in TOML as they do in JSON."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise TypeError(f"TOML has no value for {value!r}")


def _string(text: str) -> str:
    """As in JSON, which knows no escape for characters above U+FFFF and lets DEL through."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
