"""What Ansible makes of the commands of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import ROOT

FILES = sorted((ROOT / "roles").glob("*/tasks/*.yml"))


def tasks(entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        yield entry
        for part in ("block", "rescue", "always"):
            yield from tasks(entry.get(part, []))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "roles")))
def test_a_jsonpath_keeps_its_quotes(path: Path) -> None:
    """Ansible takes a command apart as a shell does: quotes within a word go, and kubectl does not read the rest."""
    commands = [task.get("ansible.builtin.command") for task in tasks(yaml.safe_load(path.read_text()) or [])]
    quoted = [text for text in commands if isinstance(text, str) and "jsonpath" in text and '"' in text]
    assert quoted == [], "give these as argv"
