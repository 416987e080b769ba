# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads files of a machine, below a root that may be a copy of it.

A missing file is normal. A file that cannot be read or interpreted gives None and a
warning.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,6})")


class Files:
    """Files below a root, with paths relative to it. Any problem with a file becomes a warning."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.warnings: list[str] = []

    def warn(self, name: str | PurePosixPath, seen: str) -> None:
        self.warnings.append(f"{self._root / name} {seen}, so it was left out")

    def read(self, name: str, *, at_most: int = -1) -> bytes | None:
        try:
            with (self._root / name).open("rb") as file:
                return file.read(at_most)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.warn(name, f"cannot be read ({error.strerror})")
            return None

    def text(self, name: str) -> str | None:
        content = self.read(name)
        return None if content is None else content.decode(errors="replace").strip("\0 \t\r\n")

    def number(self, name: str) -> int | None:
        """A hexadecimal number in sysfs' format, with or without 0x."""
        text = self.text(name)
        if text is None:
            return None
        if found := _HEX.fullmatch(text):
            return int(found.group(1), 16)
        self.warn(name, f"is not a hexadecimal number ({text[:20]!r})")
        return None

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self.warn(folder, f"cannot be listed ({error.strerror})")
            return []

    def below(self, folder: str, pattern: str) -> list[str]:
        """Names that `pattern` matches below `folder`; none if a folder may not be entered."""
        try:
            paths = sorted((self._root / folder).glob(pattern))
        except OSError as error:
            self.warn(folder, f"cannot be searched ({error.strerror})")
            return []
        return [str(path.relative_to(self._root)) for path in paths]

    def is_there(self, name: str | PurePosixPath) -> bool | None:
        try:
            (self._root / name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            self.warn(name, f"cannot be read ({error.strerror})")
            return None
        return True

    def link(self, name: str) -> PurePosixPath | None:
        """Target of a link, as a path below the root; None without a link."""
        try:
            target = PurePosixPath(os.readlink(self._root / name))
        except OSError:  # missing, or not a link
            return None
        return target.relative_to("/") if target.is_absolute() else PurePosixPath(name).parent / target

    def tail(self, name: str, size: int) -> bytes | None:
        try:
            with (self._root / name).open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - size, 0))
                return file.read()
        except OSError as error:
            self.warn(name, f"cannot be read ({error.strerror})")
            return None
