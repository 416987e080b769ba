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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "roles")))
def test_a_server_asks_itself_without_a_proxy(path: Path) -> None:
    """Of no_proxy=127.0.0.0/8 Python makes nothing, while kubeadm and kubectl need none for their own machine."""
    asks = [task.get("ansible.builtin.uri", {}) for task in tasks(yaml.safe_load(path.read_text()) or [])]
    itself = [ask for ask in asks if "//127.0.0.1:" in ask.get("url", "")]
    assert [ask["url"] for ask in itself if ask.get("use_proxy", True)] == []
