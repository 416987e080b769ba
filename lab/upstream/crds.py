"""Read which fields upstream's kinds have: `python -m lab.upstream.crds KIND SOURCE FILE`, a CRD's own file.

SOURCE says where the file is from: repository, path and tag. What counts of a schema is what a manifest can be wrong
about: names, types, what is required, choices and patterns. It goes to lab/upstream/crds/KIND.yml.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from lab.upstream import HERE

RECORDED = HERE / "crds"
KEPT = ("type", "required", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
FREE = "x-kubernetes-preserve-unknown-fields"
EITHER = "x-kubernetes-int-or-string"

Schema = dict[str, Any]


def reduced(schema: Schema) -> Schema:
    """A JSON schema that refuses names that the CRD does not have."""
    if schema.get(EITHER):
        return {"type": ["integer", "string"]}
    found: Schema = {name: schema[name] for name in KEPT if name in schema}
    if "properties" in schema:
        found["properties"] = {name: reduced(inner) for name, inner in schema["properties"].items()}
        found["additionalProperties"] = bool(schema.get(FREE))
    elif isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = reduced(schema["additionalProperties"])
    if "items" in schema:
        found["items"] = reduced(schema["items"])
    return found


def read(crd: Schema) -> dict[str, Schema]:
    """Of each version that is served: the schema of its spec."""
    return {
        f"{crd['spec']['group']}/{version['name']}": reduced(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
        for version in crd["spec"]["versions"]
        if version["served"] and not version.get("deprecated")
    }


def recorded(api_version: str, kind: str) -> Schema:
    """The schema of a kind's spec."""
    found: Schema = yaml.safe_load((RECORDED / f"{kind}.yml").read_text())["versions"][api_version]
    return found


def write(kind: str, source: str, file: Path) -> None:
    [crd] = [
        document
        for document in yaml.safe_load_all(file.read_text())
        if document and document["spec"]["names"]["kind"] == kind
    ]
    row = {"source": source, "read": f"{datetime.now(UTC):%Y-%m-%d}", "versions": read(crd)}
    text = yaml.safe_dump(row, sort_keys=False, width=150, default_flow_style=None)
    head = "---\n# Names and types of the kind's spec, by python -m lab.upstream.crds.\n"
    (RECORDED / f"{kind}.yml").write_text(head + text)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
