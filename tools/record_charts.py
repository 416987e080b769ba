"""Records the values of upstream's charts: `PYTHONPATH=. python tools/record_charts.py FOLDER`, one for each chart.

A name counts if the chart's values.yaml or a template contains it. The records are in lab/upstream/charts/.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from lab.charts.values import RECORDED, Tree, pinned
from lab.versions import CHECKOUT

# Locations of the original charts, and the format of their versions.
SOURCES = {
    "dcgm-exporter": "NVIDIA/dcgm-exporter, deployment/, tag <version of the image>-<version>",
    "gpu-operator": "NVIDIA/gpu-operator, deployments/<chart>/, tag <version>",
    "keda": "kedacore/charts, <chart>/, main of 2026-08-13, after 2.20.2; <version> itself was not read",
    "kube-prometheus-stack": "prometheus-community/helm-charts, charts/<chart>/, tag <chart>-<version>",
    "metrics-server": "kubernetes-sigs/metrics-server, charts/<chart>/, tag metrics-server-helm-chart-<version>",
    "nvidia-device-plugin": "NVIDIA/k8s-device-plugin, deployments/helm/<chart>/, tag v<version>",
    "prometheus-adapter": "prometheus-community/helm-charts, charts/<chart>/, tag <chart>-<version>",
}
# A leaf's type, by what stands there by default. A `map` is handed on as a whole: any name may stand in it.
TYPES: dict[type, str] = {bool: "bool", int: "number", float: "number", str: "string", list: "list", dict: "map"}
# A number or a share in percent, whatever stands there (IntOrString of the Kubernetes API).
INT_OR_STRING = ("maxSurge", "maxUnavailable", "minAvailable")
# What stands in a repository whose owner sets the version when the chart is packaged.
UNRELEASED = "v1.0.0-devel"
HERE = CHECKOUT / "lab" / "charts"
_ASKED = re.compile(r"\.Values((?:\.\w+)+)")
_HANDED_ON = re.compile(
    r"(?:toYaml|toJson|tpl) (?:\(toYaml )?\$?\.Values((?:\.\w+)+)"
    r"|\.Values((?:\.\w+)+) *\| *(?:toYaml|toJson)"
    r"|with \$?\.Values((?:\.\w+)+) *-?}}(?:(?!\{\{-? *end).)*?(?:toYaml|tpl \(toYaml) \.[ )}|]"
    r"|range [^}]*:= *\$?\.Values((?:\.\w+)+) *-?}}",
    re.DOTALL,
)


def read(chart: Path, ours: Path) -> Tree:
    """Names and types of a chart's values, those of the charts inside it included if ours has them inside, too."""
    defaults: dict[str, Any] = yaml.safe_load((chart / "values.yaml").read_text()) or {}
    templates = "\n".join(
        template.read_text() for template in sorted((chart / "templates").rglob("*")) if template.is_file()
    )
    asked = {tuple(match[1:].split(".")) for match in _ASKED.findall(templates)}
    whole = {tuple(next(filter(None, match))[1:].split(".")) for match in _HANDED_ON.findall(templates)}
    tree = _tree(defaults, asked, whole, ())
    for dependency in yaml.safe_load((chart / "Chart.yaml").read_text()).get("dependencies") or ():
        name = dependency.get("alias") or dependency["name"]
        inner = chart / "charts" / dependency["name"]
        has_it = (ours / "charts" / dependency["name"]).is_dir()
        tree[name] = _joined(tree.get(name), read(inner, ours)) if has_it else "map"
        for condition in dependency.get("condition", "").split(","):
            _add(tree, condition.split("."))
    tree.setdefault("global", "map")
    return tree


def _tree(
    defaults: dict[str, Any], asked: set[tuple[str, ...]], whole: set[tuple[str, ...]], path: tuple[str, ...]
) -> Tree:
    found: Tree = {}
    below = {
        value_path[len(path)] for value_path in asked if len(value_path) > len(path) and value_path[: len(path)] == path
    }
    for name in sorted({*map(str, defaults), *below}):
        default, inner = defaults.get(name), (*path, name)
        asked_inside = any(len(value_path) > len(inner) and value_path[: len(inner)] == inner for value_path in asked)
        if asked_inside and isinstance(default, dict | None) and not (default == {} and inner in whole):
            found[name] = _tree(default or {}, asked, whole, inner)
        elif isinstance(default, dict) and default and inner not in whole:
            found[name] = _tree(default, asked, whole, inner)
        else:
            is_open = default is None or name in INT_OR_STRING
            found[name] = "any" if is_open else TYPES.get(type(default), "any")
    return found


def _joined(ours: Tree | str | None, theirs: Tree) -> Tree:
    """What a chart's parent says of its values, and what it says itself."""
    if not isinstance(ours, dict):
        return theirs
    found = dict(theirs)
    for name, inner in ours.items():
        other = found.get(name)
        if isinstance(inner, dict) and other != "map":
            found[name] = _joined(inner, other if isinstance(other, dict) else {})
        elif other is None:
            found[name] = inner
    return dict(sorted(found.items()))


def _add(tree: Tree, path: list[str]) -> None:
    """A switch of a chart inside, where nothing but the dependency names it."""
    if path == [""] or tree.get(path[0]) == "map":
        return
    if len(path) == 1:
        tree.setdefault(path[0], "bool")
        return
    inner = tree.setdefault(path[0], {})
    if isinstance(inner, dict):
        _add(inner, path[1:])


def write(originals: Path) -> None:
    for name, chart in pinned().items():
        found = yaml.safe_load((originals / name / "Chart.yaml").read_text())["version"]
        found = chart["version"] if found == UNRELEASED else found
        if found != chart["version"]:
            raise SystemExit(f"{originals / name} is {found}, and {chart['version']} is pinned")
        row = {
            "version": found,
            "source": SOURCES[name],
            "read": f"{datetime.now(UTC):%Y-%m-%d}",
            "values": read(originals / name, HERE / name),
        }
        text = yaml.safe_dump(row, sort_keys=False, width=150, default_flow_style=None)
        (RECORDED / f"{name}.yml").write_text(
            f"---\n# Names and types of the chart's values, by tools/record_charts.py.\n{text}"
        )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
