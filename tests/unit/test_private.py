"""docs/reference.md lists what users call. Everything else in plugins/ says that it is private."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import FilterModule
from collection import ROOT

PLUGINS = ROOT / "plugins"
MARK = "Private to this collection: may change at any time."
NOTE = "kubegpu.autoscale.private"  # the fragment by which ansible-doc shows it
WITH_PAGES = ("callback", "filter", "lookup", "modules")

_HEAD, _, _REFERENCE = (ROOT / "docs" / "reference.md").read_text().partition("\n## Modules and filters\n")
PUBLIC = {
    name for cell in re.findall(r"^\|([^|]*)\|", _REFERENCE, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
}
FILES = sorted(path for path in PLUGINS.rglob("*.py"))


def is_public(path: Path) -> bool:
    return path.parent.name in (*WITH_PAGES, "action") and path.stem in PUBLIC


def page(path: Path) -> str:
    """The documentation, which may lie in a file beside the plugin."""
    beside = path.with_suffix(".yml")
    return path.read_text() + (beside.read_text() if beside.exists() else "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_a_file_says_whether_it_is_private(path: Path) -> None:
    head = path.read_text().split("\nfrom __future__ import")[0]
    assert (MARK in head) is not is_public(path)
    if "DOCUMENTATION" in page(path) and path.parent.name in WITH_PAGES:
        assert (NOTE in page(path)) is not is_public(path)
        assert bool(re.search("^ *version_added: ", page(path), re.MULTILINE)) is is_public(path)


def test_each_public_plugin_exists() -> None:
    assert len(PUBLIC) > 10
    assert PUBLIC - {path.stem for path in FILES if path.parent.name in WITH_PAGES} == set()


def test_each_filter_of_the_roles_is_called() -> None:
    texts = "".join(path.read_text() for folder in ("roles", "playbooks") for path in (ROOT / folder).rglob("*.yml"))
    assert [name for name in FilterModule().filters() if f"kubegpu.autoscale.{name}" not in texts] == []
