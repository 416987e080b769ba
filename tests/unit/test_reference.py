"""docs/reference.md has all roles and playbooks, and README.md begins with the two commands."""

from __future__ import annotations

import re

import pytest
from collection import ROOT

REFERENCE = (ROOT / "docs" / "reference.md").read_text()
ROLES = [path.name for path in (ROOT / "roles").iterdir() if not path.name.startswith("_")]
PLAYBOOKS = [path.stem for path in (ROOT / "playbooks").glob("*.yml")]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_listed(role: str) -> None:
    assert f"[{role}](../roles/{role}/README.md)" in REFERENCE


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_playbook_is_listed(name: str) -> None:
    assert re.search(rf"^\|[^|]*`{name}`", REFERENCE, re.MULTILINE)


def test_two_commands_do_all() -> None:
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"^make [a-z-]+", readme, re.MULTILINE) == ["make demo", "make test"]
    assert len(readme.splitlines()) <= 160  # three screens, the first of which shows what the commands print
