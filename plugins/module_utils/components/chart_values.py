# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Merges values of a chart: those of a role and those of an inventory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Values = Mapping[str, Any]


def merged_values(own: Values, given: Values | None, lists: Mapping[str, str]) -> dict[str, Any]:
    """The role's values, overridden by the given ones.

    lists: paths of lists to which entries are added, for example `rules.custom`, and how: a row of `ADDED`.

    Raises: ValueError if a value for one of them is not a list.
    """
    result = _combined(own, given or {})
    for path, how in lists.items():
        _set(result, path.split("."), ADDED[how](_list(own, path), _list(given or {}, path)))
    return result


def _combined(own: Values, given: Values) -> dict[str, Any]:
    """Mappings are merged, all other values are replaced."""
    return {
        **own,
        **{
            key: _combined(own[key], value) if _both_map(own.get(key), value) else value for key, value in given.items()
        },
    }


def _both_map(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def _list(values: Values, path: str) -> Sequence[Any]:
    found: Any = values
    for key in path.split("."):
        found = (found or {}).get(key)
    if found is not None and (isinstance(found, str) or not isinstance(found, Sequence)):
        raise ValueError(f"chart values: {path} is {found!r}, which is not a list. Next: give a list of its entries.")
    return found or []


def _set(values: dict[str, Any], path: Sequence[str], value: Sequence[Any]) -> None:
    *parents, last = path
    for key in parents:
        values[key] = dict(values.get(key) or {})
        values = values[key]
    values[last] = value


def _each(own: Sequence[Any], given: Sequence[Any]) -> list[Any]:
    """Each entry once, in order."""
    entries = [*own, *given]
    return [entry for number, entry in enumerate(entries) if entry not in entries[:number]]


def _variables(own: Sequence[Values], given: Sequence[Values]) -> list[Values]:
    """A given variable replaces the one with its name. Empty variables of the role are dropped."""
    names = [entry.get("name") for entry in given]
    return [*(entry for entry in own if entry.get("name") not in names and entry.get("value") != ""), *given]


def _flags(own: Sequence[str], given: Sequence[str]) -> list[str]:
    """A given flag replaces the one with its name; other flags are kept."""
    names = {_name(flag) for flag in given}
    return [*(flag for flag in own if _name(flag) not in names), *given]


def _name(flag: str) -> str:
    return flag.partition("=")[0]


ADDED: Mapping[str, Callable[[Sequence[Any], Sequence[Any]], list[Any]]] = {
    "each": _each,
    "env": _variables,
    "flags": _flags,
}
