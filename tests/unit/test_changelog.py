"""The release notes name each module and each plugin under the version that added it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from collection import ROOT

RELEASES = yaml.safe_load((ROOT / "changelogs" / "changelog.yaml").read_text())["releases"]


def added(kind: str) -> dict[str, set[str]]:
    """The plugins of a kind by the version that their documentation names."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "plugins" / kind).iterdir():
        if version := version_added(path):
            found.setdefault(version, set()).add(path.stem)
    return found


def version_added(path: Path) -> str | None:
    """Of the plugin itself: options that came later are indented deeper, in a file beside the plugin too."""
    if path.suffix not in (".py", ".yml"):
        return None
    margin = "" if path.suffix == ".py" else "  "
    stated = re.search(rf"^{margin}version_added: [\"']?([\d.]+)", path.read_text(), re.MULTILINE)
    return stated[1] if stated else None


def listed(kind: str, release: str) -> set[str]:
    notes = RELEASES[release]
    entries = notes.get("modules", []) if kind == "modules" else notes.get("plugins", {}).get(kind, [])
    return {entry["name"] for entry in entries}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", ["callback", "filter", "lookup", "modules"])
def test_release_notes_name_what_the_release_added(kind: str, release: str) -> None:
    assert listed(kind, release) == added(kind).get(release, set())


def test_the_page_has_what_the_list_has() -> None:
    page = (ROOT / "CHANGELOG.md").read_text().replace("\\", "")
    for notes in RELEASES.values():
        for entry in notes["modules"] + [entry for kind in notes["plugins"].values() for entry in kind]:
            line = f"* kubegpu.autoscale.{entry['name']} - {entry['description']}"
            assert line.replace("\\", "") in page
