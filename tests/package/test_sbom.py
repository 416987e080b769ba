"""The SBOM of the collection is CycloneDX, complete and reproducible."""

from __future__ import annotations

import json

import sbom
import yaml
from collection import ROOT
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def test_it_is_what_the_schema_says() -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom.document()) is None


def test_it_is_the_same_each_time() -> None:
    assert sbom.document() == sbom.document()


def test_it_has_each_pin() -> None:
    pins = yaml.safe_load((ROOT / "roles" / "_common" / "defaults" / "main" / "versions.yml").read_text())
    pins = pins["kubegpu_pinned_versions"]
    there = {component["name"]: component["version"] for component in json.loads(sbom.document())["components"]}
    charts = {**pins["charts"], **pins["operators"], **pins["networks"]}
    assert {name: chart["version"] for name, chart in charts.items()}.items() <= there.items()
    assert {image.rpartition(":")[2] for image in pins["images"].values()} <= set(there.values())
    assert {*pins["packages"], *pins["archives"], "kubernetes", "ansible-core", "core"} <= set(there)
