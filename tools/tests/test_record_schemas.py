"""A recorded schema keeps what it had and what is named, and refuses names that the original does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import record_schemas
import recorded_schemas
import yaml

SPEC = {
    "type": "object",
    "description": "what only people read",
    "required": ["size", "name"],
    "properties": {
        "name": {"type": "string"},
        "size": {"x-kubernetes-int-or-string": True},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}}},
    },
}


@pytest.fixture
def crd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (record_schemas, recorded_schemas):
        monkeypatch.setattr(module, "RECORDED", tmp_path)
    version: dict[str, Any] = {
        "name": "v1",
        "served": True,
        "schema": {"openAPIV3Schema": {"properties": {"spec": SPEC}}},
    }
    spec = {
        "group": "x.y",
        "names": {"kind": "Thing"},
        "versions": [version, {**version, "name": "v0", "served": False}],
    }
    file = tmp_path / "crd.yaml"
    file.write_text(yaml.safe_dump({"spec": spec}))
    return file


def test_a_record_has_the_fields_that_are_named_and_keeps_them(crd: Path) -> None:
    record_schemas.write("Thing", "a/b", crd, ["size", "parts.a"])
    record_schemas.write("Thing", "a/b", crd, ["name"])

    assert recorded_schemas.of_kind("x.y/v1", "Thing") == {
        "type": "object",
        "required": ["size", "name"],
        "properties": {
            "name": {"type": "string"},
            "size": {"type": ["integer", "string"]},
            "parts": {
                "type": "array",
                "items": {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
            },
        },
        "additionalProperties": False,
    }


def test_what_a_record_lacks_is_not_required(crd: Path) -> None:
    record_schemas.write("Thing", "a/b", crd, ["name"])

    assert recorded_schemas.of_kind("x.y/v1", "Thing")["required"] == ["name"]
