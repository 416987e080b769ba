# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Finds what a server-side apply would change, without sending it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..kube.quantity import parse_quantity

# Fields that identify an object. All others are its content, for example the spec of an HPA.
_NOT_CONTENT = ("apiVersion", "kind", "metadata")


def is_up_to_date(live: Mapping[str, Any], desired: Mapping[str, Any], manager: str) -> bool:
    """Whether applying `desired` as `manager` would not change `live`.

    Additional fields in `live`, by the server's defaults or other managers, do not count. Fields that `manager` once
    applied and no longer wants do.
    """
    if not all(_holds(live.get(part), content) for part, content in desired.items() if part not in _NOT_CONTENT):
        return False
    for part in ("labels", "annotations"):
        wanted, there = desired["metadata"].get(part) or {}, live["metadata"].get(part) or {}
        if any(there.get(key) != value for key, value in wanted.items()):
            return False
    owners = desired["metadata"].get("ownerReferences")
    if owners and not _holds(live["metadata"].get("ownerReferences"), owners):
        return False
    return all(_wants(desired, fields) for fields in _applied(live, manager))


def dropped_fields(live: Any, desired: Any, path: str = "spec") -> list[str]:
    """Paths of desired fields that `live` lacks, because the cluster does not support them."""
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        return [
            field
            for key, value in desired.items()
            for field in ([f"{path}.{key}"] if key not in live else dropped_fields(live[key], value, f"{path}.{key}"))
        ]
    return []


def other_managers(live: Mapping[str, Any], manager: str) -> list[str]:
    """Other managers of the object's spec, by name."""
    entries = live["metadata"].get("managedFields") or ()
    found = {
        entry.get("manager", "an unknown manager")
        for entry in entries
        if "f:spec" in entry.get("fieldsV1", {}) and not entry.get("subresource")
    }
    return sorted(found - {manager})


def _applied(live: Mapping[str, Any], manager: str) -> list[Mapping[str, Any]]:
    """The fields that `manager` has applied, in the notation of managedFields (fieldsV1)."""
    return [
        entry["fieldsV1"]
        for entry in live["metadata"].get("managedFields") or ()
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and "fieldsV1" in entry
    ]


def _holds(live: Any, desired: Any) -> bool:
    """Whether `live` has the desired fields. Lists are compared as a whole, because their owners write them whole."""
    if live == desired:
        return True
    if isinstance(desired, Mapping):
        return isinstance(live, Mapping) and all(key in live and _holds(live[key], desired[key]) for key in desired)
    if isinstance(desired, list):
        return isinstance(live, list) and len(live) == len(desired) and all(map(_holds, live, desired))
    return isinstance(live, str) and isinstance(desired, str) and _same_quantity(live, desired)


def _same_quantity(one: str, other: str) -> bool:
    try:
        return parse_quantity(one) == parse_quantity(other)
    except ValueError:
        return False


def _wants(desired: Any, fields: Mapping[str, Any]) -> bool:
    """Whether all of `fields` are in `desired`.

    "f:" names a key of a map, "k:" an item of a list by its keys, "v:" a value of a set, "." the thing itself.
    """
    return all(_wants_one(desired, name, below) for name, below in fields.items() if name != ".")


def _wants_one(desired: Any, name: str, below: Mapping[str, Any]) -> bool:
    kind, _colon, text = name.partition(":")
    if kind == "f":
        return isinstance(desired, Mapping) and text in desired and _wants(desired[text], below)
    if not isinstance(desired, list):
        return False
    if kind == "v":
        return json.loads(text) in desired
    keys = json.loads(text)
    items = [item for item in desired if all(item.get(key) == value for key, value in keys.items())]
    return bool(items) and _wants(items[0], below)
