"""The operator's CRDs are those of its module, without what is written for readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import artifacts
from lab.artifacts import Artifact, Shell
from lab.charts import operator_crds

CRD = """
kind: CustomResourceDefinition
spec:
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        description: Rules.
        properties:
          description: {description: What it says., type: string}
          matchType: {type: string, enum: [=, '!=']}
          groups:
            items: {description: A group., anyOf: [{description: either, type: integer}]}
            additionalProperties: {description: of any name}
"""


def test_a_crd_has_no_descriptions_and_all_its_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "CACHE", tmp_path)

    def write(out: Path, _: Shell) -> None:
        (out / "crds").mkdir()
        (out / "crds" / "rules.yaml").write_text(CRD)

    programs = Artifact("programs", write)
    programs.make()
    crds = operator_crds(programs)
    crds.make()

    [version] = json.loads((crds.path / "rules.yaml").read_text())["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"] == {
        "properties": {
            "description": {"type": "string"},
            "matchType": {"type": "string", "enum": ["=", "!="]},
            "groups": {"items": {"anyOf": [{"type": "integer"}]}, "additionalProperties": {}},
        }
    }
