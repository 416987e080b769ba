# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of a server: those that ansible.builtin.find returned, and the wanted ones."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any


@dataclass(frozen=True)
class WantedFile:
    """One file as it should be. It belongs to root. validate: command that checks its content; empty for none."""

    path: str
    content: str
    mode: str = "0644"
    validate: str = ""


@dataclass(frozen=True)
class Found:
    """Entries below the folders that were searched, by their paths, as the module find returns them."""

    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Found:
        return cls({entry["path"]: entry for entry in result.get("files") or ()})

    def __contains__(self, path: str) -> bool:
        return path in self.entries

    def files(self) -> Iterator[str]:
        """Those with a checksum: folders and sockets have none."""
        return (path for path, entry in self.entries.items() if entry.get("checksum"))

    def checksum(self, path: str) -> str:
        return str(self.entries.get(path, {}).get("checksum") or "")

    def mode(self, path: str) -> str:
        return str(self.entries.get(path, {}).get("mode") or WantedFile.mode)

    def changed_at(self, path: str) -> float | None:
        """Unix seconds; None for what was not found."""
        entry = self.entries.get(path)
        return float(entry["mtime"]) if entry else None

    def is_as_wanted(self, file: WantedFile) -> bool:
        seen = self.entries.get(file.path, {})
        checksum = sha1(file.content.encode()).hexdigest()  # as find returns it
        state = (seen.get("checksum"), seen.get("mode"), seen.get("uid"), seen.get("gid"))
        return state == (checksum, file.mode, 0, 0)


def slurped(result: Mapping[str, Any]) -> str:
    """Content of a file that ansible.builtin.slurp has read; empty if it did not."""
    return b64decode(result.get("content") or "").decode(errors="replace")
