"""What Ansible makes of the commands of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from collection import ROOT
from task_walk import read


def tasks(entries: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for entry in entries:
        yield entry
        for part in ("block", "rescue", "always"):
            yield from tasks(entry.get(part, []))


def arguments(module: str) -> list[Any]:
    """Of all tasks of the roles that run this module."""
    files = sorted((ROOT / "roles").glob("*/tasks/*.yml"))
    return [task[module] for path in files for task in tasks(read(path)) if module in task]


def test_a_jsonpath_keeps_its_quotes() -> None:
    """Ansible takes a command apart as a shell does: quotes within a word go, and kubectl does not read the rest."""
    commands = arguments("ansible.builtin.command")
    assert len(commands) > 50
    quoted = [text for text in commands if isinstance(text, str) and "jsonpath" in text and '"' in text]
    assert quoted == [], "give these as argv"


def test_a_server_asks_itself_without_a_proxy() -> None:
    """Python ignores no_proxy=127.0.0.0/8, while kubeadm and kubectl need no proxy for their own machine."""
    asks = arguments("ansible.builtin.uri")
    assert asks
    itself = [ask for ask in asks if "//127.0.0.1:" in ask.get("url", "")]
    assert [ask["url"] for ask in itself if ask.get("use_proxy", True)] == []
