# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Packages of a server in dpkg-query's format: `${binary:Package} ${db:Status-Want} ${db:Status-Status} ${Version}`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..survey.program_output import Answer, lines_of

# dpkg-query adds it to libraries that can be installed for several.
_OWN_ARCHITECTURE = re.compile(":(amd64|arm64|all)$")
# Packages that dpkg could not configure count as installed: modules of another flavour that do not build fail each run.
_ON_DISK = frozenset({"installed", "half-installed", "half-configured", "unpacked"})


@dataclass(frozen=True)
class Package:
    """One package whose files are on the disk.

    name: as apt takes it, with the architecture if it is not the server's: `libnvidia-gl-580:i386`.
    want: `install`, `hold` or `deinstall`.
    """

    name: str
    want: str
    version: str

    @property
    def base(self) -> str:
        """The name without architecture."""
        return self.name.partition(":")[0]


def packages(rows: Iterable[str]) -> tuple[Package, ...]:
    found = (row.split() for row in rows)
    return tuple(
        Package(_OWN_ARCHITECTURE.sub("", name), want, version[0])
        for name, want, state, *version in found
        if state in _ON_DISK
    )


def names(found: Iterable[Package]) -> tuple[str, ...]:
    return tuple(package.name for package in found)


def version_pattern(version: str) -> str:
    """Regular expression of a version in apt's notation, where `*` stands for anything, with any epoch."""
    return "([0-9]+:)?" + re.escape(version).replace(r"\*", ".*")


def versions(answer: Answer | None) -> dict[str, str]:
    """Versions of installed packages by name, from `${Package} ${db:Status-Status} ${Version}`."""
    rows = [line.split() for line in lines_of(answer)]
    return {name: version[0] for name, state, *version in rows if state == "installed" and version}
