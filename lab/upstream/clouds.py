"""Read which fields the tools of clouds know, for what the pages on clouds show of them.

`python -m lab.upstream.clouds eksctl VERSION FILE`, its assets/schema.json. The file of aws-load-balancer-controller is
its page on annotations. Of cluster-autoscaler it is the folder of its chart. They go to lab/upstream/clouds/.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from lab.charts.record import read
from lab.charts.values import schema
from lab.upstream import HERE
from lab.upstream.crds import KEPT, Schema

RECORDED = HERE / "clouds"
SOURCES = {
    "aws-load-balancer-controller": "kubernetes-sigs/<tool>, docs/guide/ingress/annotations.md, after tag v<version>",
    "eksctl": "eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/assets/schema.json, after tag v<version>",
    "cluster-autoscaler": "kubernetes/autoscaler, charts/<chart>/, tag cluster-autoscaler-chart-<version>",
}
_INNER = ("items", "additionalProperties")
_ALL = ("oneOf", "anyOf", "allOf")


def reduced(part: Any) -> Any:
    """A JSON schema without what only people read."""
    if not isinstance(part, dict):
        return part
    found: Schema = {name: part[name] for name in (*KEPT, "$ref") if name in part}
    if "properties" in part:
        found["properties"] = {name: reduced(inner) for name, inner in part["properties"].items()}
    found |= {name: reduced(part[name]) for name in _INNER if name in part}
    found |= {name: [reduced(inner) for inner in part[name]] for name in _ALL if name in part}
    return found


def of_eksctl(file: Path) -> Schema:
    """That of a ClusterConfig, with the definitions it refers to."""
    document = json.loads(file.read_text())
    return {"$ref": document["$ref"], "definitions": {k: reduced(v) for k, v in document["definitions"].items()}}


def of_chart(folder: Path) -> Schema:
    """A schema that knows the names of the chart's values, and no others. Flags of the program are any."""
    return schema(read(folder, folder) | {"extraArgs": "map"})


def of_annotations(file: Path) -> Schema:
    """A schema that knows the annotations of the page's table, and no others. Their values are strings."""
    names = re.findall(r"^\| *\[(alb\.ingress\.kubernetes\.io/[a-z0-9.-]+)\]", file.read_text(), re.MULTILINE)
    properties = {name: {"type": "string"} for name in sorted(names)}
    return {"type": "object", "properties": properties, "additionalProperties": False}


READ = {"aws-load-balancer-controller": of_annotations, "eksctl": of_eksctl, "cluster-autoscaler": of_chart}


def recorded(tool: str) -> tuple[str, Schema]:
    """Of which version, and the schema."""
    row = yaml.safe_load((RECORDED / f"{tool}.yml").read_text())
    return row["version"], row["schema"]


class _Whole(yaml.SafeDumper):
    """Writes what is there twice twice: an anchor tells a reader nothing."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def write(tool: str, version: str, original: Path) -> None:
    row: dict[str, Any] = {"version": version, "source": SOURCES[tool], "read": f"{datetime.now(UTC):%Y-%m-%d}"}
    row["schema"] = READ[tool](original)
    text = yaml.dump(row, Dumper=_Whole, sort_keys=False, width=150, default_flow_style=None)
    (RECORDED / f"{tool}.yml").write_text(f"---\n# Names and types, by python -m lab.upstream.clouds.\n{text}")


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
