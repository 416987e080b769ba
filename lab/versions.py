"""Reads the version file, the only place with versions."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parent.parent
VERSIONS = CHECKOUT / "roles" / "_common" / "defaults" / "main" / "versions.yml"


@cache
def versions() -> dict[str, Any]:
    """`kubegpu_pinned_versions` as a dict."""
    return yaml.safe_load(VERSIONS.read_text())["kubegpu_pinned_versions"]


@cache
def names() -> dict[str, str]:
    """Names in braces for recipes.

    `{kubernetes}`               the upstream part of a package's pin, without epoch and revision
    `{nvidia-driver/debian-13}`  that of a system's own
    `{coredns}`                  a program of the lab
    `{chart/dcgm-exporter}`      a chart
    `{network/flannel}`          the chart of a pod network
    `{image/python}`             an image that a role names
    """
    pinned = versions()
    return (
        {name: re.sub(r"^\d+:|-.*", "", pin) for name, pin in pinned["packages"].items()}
        | {
            f"{name}/{system.lower().replace(' ', '-')}": pin.partition("-")[0]
            for system, pins in pinned["packages_by_system"].items()
            for name, pin in pins.items()
        }
        | pinned["lab"]["programs"]
        | {f"chart/{name}": chart["version"] for name, chart in pinned["charts"].items()}
        | {f"network/{name}": chart["version"] for name, chart in pinned["networks"].items()}
        | {f"image/{name}": image for name, image in pinned["images"].items()}
    )


def fill(recipe: Any) -> Any:
    """The recipe with each `{name}` in its strings replaced. Raises KeyError for a name that the version file lacks."""
    match recipe:
        case str():
            return re.sub(r"\{([a-z0-9./-]+)\}", lambda found: names()[found[1]], recipe)
        case list():
            return [fill(value) for value in recipe]
        case dict():
            return {fill(key): fill(value) for key, value in recipe.items()}
    return recipe


def recipe(path: Path) -> Any:
    """A recipe file with its versions filled in."""
    return fill(yaml.safe_load(path.read_text()))
