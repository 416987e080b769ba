"""Schemas of other projects' kinds and files, as tools/record_schemas.py wrote them: other names are errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Schema = dict[str, Any]

RECORDED = Path(__file__).with_name("schemas")


def of_kind(api_version: str, kind: str) -> Schema:
    """The schema of a kind's spec."""
    found: Schema = _row(kind)["versions"][api_version]
    return found


def of_tool(tool: str) -> tuple[str, Schema]:
    """The version of a tool, and the schema of its file."""
    row = _row(tool)
    return row["version"], row["schema"]


def _row(name: str) -> Schema:
    row: Schema = yaml.safe_load((RECORDED / f"{name}.yml").read_text())
    return row
