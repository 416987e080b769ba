"""Records the fields of other projects' kinds and files in tests/schemas, to check manifests.

  python tools/record_schemas.py KIND SOURCE FILE [FIELD...]   FILE: a CRD; SOURCE: repository, path and tag
  python tools/record_schemas.py TOOL VERSION FILE [FIELD...]  TOOL: eksctl (its assets/schema.json),
      aws-load-balancer-controller (its page on annotations), cluster-autoscaler (the folder of its chart)

A record keeps the fields that it had, and those named as FIELD: `replicas`, `template.spec`, `ManagedNodeGroup.labels`.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]
from record_charts import read
from recorded_schemas import RECORDED, Schema

from lab.charts.values import schema

KEPT = ("type", "required", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
FREE = "x-kubernetes-preserve-unknown-fields"
EITHER = "x-kubernetes-int-or-string"
SOURCES = {
    "aws-load-balancer-controller": "kubernetes-sigs/<tool>, docs/guide/ingress/annotations.md, after tag v<version>",
    "eksctl": "eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/assets/schema.json, after tag v<version>",
    "cluster-autoscaler": "kubernetes/autoscaler, charts/<chart>/, tag cluster-autoscaler-chart-<version>",
}
_INNER = ("items", "additionalProperties")
_ALL = ("oneOf", "anyOf", "allOf")


def reduced(part: Any, closed: bool) -> Any:
    """A schema without descriptions. closed: as in a CRD, which drops unknown names."""
    if not isinstance(part, dict):
        return part
    if part.get(EITHER):
        return {"type": ["integer", "string"]}
    found: Schema = {name: part[name] for name in (*KEPT, "$ref") if name in part}
    if "properties" in part:
        found["properties"] = {name: reduced(inner, closed) for name, inner in part["properties"].items()}
        if closed:
            return found | {"additionalProperties": bool(part.get(FREE))}
    found |= {name: reduced(part[name], closed) for name in _INNER if name in part}
    return found if closed else found | {n: [reduced(i, closed) for i in part[n]] for n in _ALL if n in part}


def narrowed(found: Any, known: Any, fields: list[list[str]]) -> Any:
    """Of a schema the fields that another has, and those named by their path."""
    if not isinstance(found, dict):
        return found
    known = known if isinstance(known, dict) else {}
    kept = dict(found)
    for holder in {"properties", "definitions"} & found.keys():
        old, named = known.get(holder, {}), {path[0] for path in fields if path}
        kept[holder] = {
            name: narrowed(inner, old.get(name), [path[1:] for path in fields if path and path[0] == name])
            for name, inner in found[holder].items()
            if name in old or name in named
        }
    kept |= {name: narrowed(found[name], known.get(name), fields) for name in _INNER if name in found}
    if "required" in found and "properties" in kept:
        kept["required"] = [name for name in found["required"] if name in kept["properties"]]
    return kept


def of_crd(file: Path, kind: str) -> dict[str, Schema]:
    """Of each version that is served: the schema of the kind's spec."""
    documents = [document for document in yaml.safe_load_all(file.read_text()) if document]
    [spec] = [document["spec"] for document in documents if document["spec"]["names"]["kind"] == kind]
    return {
        f"{spec['group']}/{version['name']}": reduced(version["schema"]["openAPIV3Schema"]["properties"]["spec"], True)
        for version in spec["versions"]
        if version["served"] and not version.get("deprecated")
    }


def of_eksctl(file: Path) -> Schema:
    """That of a ClusterConfig, with the definitions it refers to."""
    document = json.loads(file.read_text())
    return {"$ref": document["$ref"], "definitions": {k: reduced(v, False) for k, v in document["definitions"].items()}}


def of_chart(folder: Path) -> Schema:
    """A schema that knows the names of the chart's values, and no others. Flags of the program are any."""
    return schema(read(folder, folder) | {"extraArgs": "map"})


def of_annotations(file: Path) -> Schema:
    """A schema that knows the annotations of the page's table, and no others. Their values are strings."""
    names = re.findall(r"^\| *\[(alb\.ingress\.kubernetes\.io/[a-z0-9.-]+)\]", file.read_text(), re.MULTILINE)
    properties = {name: {"type": "string"} for name in sorted(names)}
    return {"type": "object", "properties": properties, "additionalProperties": False}


READ = {"aws-load-balancer-controller": of_annotations, "eksctl": of_eksctl, "cluster-autoscaler": of_chart}


class _Whole(yaml.SafeDumper):
    """Writes what is there twice twice: an anchor tells a reader nothing."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def write(name: str, origin: str, original: Path, fields: list[str]) -> None:
    record = RECORDED / f"{name}.yml"
    old = yaml.safe_load(record.read_text()) if record.exists() else {}
    # An annotation has dots in its name.
    paths = [[field] if name.startswith("aws") else field.split(".") for field in fields]
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    row: Schema
    if name in READ:
        row = {"version": origin, "source": SOURCES[name], "read": today}
        row["schema"] = narrowed(READ[name](original), old.get("schema"), paths)
    else:
        known = old.get("versions", {})
        made = {version: narrowed(v, known.get(version), paths) for version, v in of_crd(original, name).items()}
        row = {"source": origin, "read": today, "versions": made}
    text = yaml.dump(row, Dumper=_Whole, sort_keys=False, width=150, default_flow_style=None)
    head = "---\n# What the collection or its pages set of it, by tools/record_schemas.py.\n"
    record.write_text(head + text)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
