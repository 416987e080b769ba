# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Files of a server: existing ones from ansible.builtin.find, and wanted ones."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any


@dataclass(frozen=True)
class WantedFile:
    """A wanted file, which belongs to root. validate: command that checks its content; can be empty."""

    path: str
    content: str
    mode: str = "0644"
    validate: str = ""


@dataclass(frozen=True)
class Found:
    """Entries in the searched folders by path, from the module find."""

    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Mapping[str, Any] | None) -> Found:
        return cls({entry["path"]: entry for entry in (result or {}).get("files") or ()})

    def __contains__(self, path: str) -> bool:
        return path in self.entries

    def files(self) -> Iterator[str]:
        """Entries with a checksum, which folders and sockets lack."""
        return (path for path, entry in self.entries.items() if entry.get("checksum"))

    def checksum(self, path: str) -> str:
        return str(self.entries.get(path, {}).get("checksum") or "")

    def mode(self, path: str) -> str:
        return str(self.entries.get(path, {}).get("mode") or WantedFile.mode)

    def changed_at(self, path: str) -> float | None:
        """Unix seconds; None if the file was not found."""
        entry = self.entries.get(path)
        return float(entry["mtime"]) if entry else None

    def is_as_wanted(self, file: WantedFile) -> bool:
        seen = self.entries.get(file.path, {})
        checksum = sha1(file.content.encode()).hexdigest()  # the format of find
        state = (seen.get("checksum"), seen.get("mode"), seen.get("uid"), seen.get("gid"))
        return state == (checksum, file.mode, 0, 0)


def slurped(result: Mapping[str, Any] | None) -> str:
    """Content of a file from ansible.builtin.slurp; empty if it was not read."""
    return b64decode((result or {}).get("content") or "").decode(errors="replace")


def differing_files(wanted: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Wanted files (`path`, `content`, `mode`) that are missing or differ. found: entries of the module find."""
    seen = Found({entry["path"]: entry for entry in found})
    return [file for file in wanted if not seen.is_as_wanted(WantedFile(file["path"], file["content"], file["mode"]))]
