# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Adds and removes one runtime in Docker's daemon.json, a shared file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_INDENT = re.compile(r"\n([ \t]+)\"")


def with_runtime(document: str, name: str, path: str, default: bool = False) -> str:
    """The document with the runtime `name` at `path`; with `default` also as the default runtime.

    An existing runtime of that name is kept. Raises: ValueError if the document is not an object with
    settings in JSON, or `default` would replace another choice.
    """
    settings = _read(document)
    chosen = settings.get("default-runtime", name)
    if default and chosen != name:
        raise ValueError(f"its default-runtime is {chosen}, which this collection did not set")
    runtimes = settings.get("runtimes", {})
    wanted = settings | {"runtimes": runtimes | {name: runtimes.get(name, _runtime(path))}}
    if default:
        wanted["default-runtime"] = name
    elif _is_ours(settings, name, path):
        wanted = _without_default(wanted, name)
    return _written(document, settings, wanted)


def without_runtime(document: str, name: str, path: str) -> str:
    """The document without the runtime `name` of with_runtime; empty if nothing else is in it.

    Raises: ValueError if the document is not an object with settings in JSON.
    """
    settings = _read(document)
    if not _is_ours(settings, name, path):
        return document
    wanted = _without_default(settings, name)
    wanted["runtimes"] = {key: value for key, value in settings["runtimes"].items() if key != name}
    if not wanted["runtimes"]:
        del wanted["runtimes"]
    return _written(document, settings, wanted) if wanted else ""


def forgetting(document: str, before: str, stock: str = "runc") -> str:
    """The document, with explicit defaults for keys that only `before` has.

    At a reload Docker keeps settings that its file does not contain. `stock` is its built-in runtime.
    """
    was, wanted = _read(before), _read(document)
    gone = {
        key: value for key, value in {"default-runtime": stock, "runtimes": {}}.items() if key in was.keys() - wanted
    }
    return _written(document, wanted, wanted | gone)


def _read(document: str) -> dict[str, Any]:
    settings = json.loads(document) if document.strip() else {}
    if not isinstance(settings, dict) or not isinstance(settings.get("runtimes", {}), dict):
        raise ValueError("it is not an object with settings")
    return settings


def _without_default(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if (key, value) != ("default-runtime", name)}


def _is_ours(settings: Mapping[str, Any], name: str, path: str) -> bool:
    """NVIDIA's snippets have the same path, with other keys or just the name of the program."""
    return bool(settings.get("runtimes", {}).get(name) == _runtime(path))


def _runtime(path: str) -> dict[str, Any]:
    return {"path": path, "args": []}


def _written(document: str, settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """With the document's order and indentation; the document itself if it is up to date."""
    if settings == wanted:
        return document
    indent = _INDENT.search(document)
    return json.dumps(wanted, indent=indent[1] if indent else 4, ensure_ascii=False) + "\n"
