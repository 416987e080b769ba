"""Which values the charts accept: those that upstream's charts of the pinned versions know (tools/record_charts.py).

The lab's charts accept those of them that they render or have a default for. Any other one is refused, so that no test
takes a value for rendered that the lab ignores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
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


def known_in_lab(chart: Path) -> set[tuple[str, ...]]:
    """Values that a chart of the lab renders, or has a default for, each by its names from the top."""
    known: set[tuple[str, ...]] = set()
    for file in chart.rglob("*"):
        below = file.relative_to(chart).parts
        inside = (below[1],) if below[0] == "charts" and len(below) > 2 else ()
        if file.name == "values.yaml":
            found = _leaves(yaml.safe_load(file.read_text()) or {})
        else:
            found = _read_by(file.read_text()) if file.parent.name == "templates" else iter(())
        known |= {(*inside, *path) for path in found}
    return known


def of_the_lab(name: str) -> Tree:
    """What the lab's chart knows of upstream's values."""
    known = known_in_lab(CHECKOUT / "lab" / "charts" / name)
    above = {path[:length] for path in known for length in range(len(path))}

    def kept(tree: Tree, path: tuple[str, ...]) -> Tree:
        found: Tree = {}
        for key, inner in tree.items():
            here = (*path, key)
            if key == "global":  # Helm hands it to each chart inside, even if it is empty
                found[key] = {}
            elif here in known and here not in above:
                found[key] = inner
            elif here in above:
                found[key] = kept(inner, here) if isinstance(inner, dict) else inner
        return found

    return kept(recorded(name), ())


def _leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(values, dict) or not values:
        yield path
        return
    for key, inner in values.items():
        yield from _leaves(inner, (*path, key))


_NAMED = re.compile(r"\.Values\.([\w.]*\w)")
_ALIAS = re.compile(r"\$(\w+) := \.Values\.([\w.]*\w)")


def _read_by(template: str) -> Iterator[tuple[str, ...]]:
    """Names that a template reads, by themselves or below a variable."""
    for match in _NAMED.finditer(template):
        yield tuple(match[1].split("."))
    for alias in _ALIAS.finditer(template):
        for name in re.findall(rf"\${alias[1]}\.([\w.]*\w)", template):
            yield (*alias[2].split("."), *name.split("."))
