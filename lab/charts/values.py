"""Which values the charts accept: those that upstream's charts of the pinned versions know, of lab/upstream/charts."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from lab.versions import CHECKOUT, versions

RECORDED = CHECKOUT / "lab" / "upstream" / "charts"
SCHEMAS: dict[str, dict[str, Any]] = {
    "bool": {"type": ["boolean", "null"]},
    "number": {"type": ["number", "string", "null"]},
    "string": {"type": ["string", "number", "null"]},
    "list": {"type": ["array", "null"]},
    "map": {"type": ["object", "null"]},
    "any": {},
}

# Names and types, by name.
Tree = dict[str, Any]


def pinned() -> dict[str, Any]:
    """Charts whose values are recorded: those of the lab's mirror, and those of operators, which the lab has not."""
    return {**versions()["charts"], **versions()["operators"]}


@cache
def recorded(name: str) -> Tree:
    """What was read of a chart, of the version that is pinned."""
    row = yaml.safe_load((RECORDED / f"{name}.yml").read_text())
    version = pinned()[name]["version"]
    if row["version"] != version:
        raise ValueError(
            f"{name} is pinned to {version}, and its values are recorded of {row['version']}. "
            "Next: PYTHONPATH=. python tools/record_charts.py FOLDER, with the originals of the pinned versions"
        )
    found: Tree = row["values"]
    return found


def schema(tree: Tree | str) -> dict[str, Any]:
    """A JSON schema that knows these names only."""
    if isinstance(tree, str):
        return SCHEMAS[tree]
    properties = {name: schema(inner) for name, inner in tree.items()}
    return {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
