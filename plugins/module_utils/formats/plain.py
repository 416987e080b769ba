# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Converts values of templates into plain ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """The value with mappings and lists of Python, in which all templates are resolved."""
    if isinstance(value, Mapping):
        return {name: plain(value[name]) for name in value}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
