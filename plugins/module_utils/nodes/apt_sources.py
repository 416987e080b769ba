# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of one apt repository, with their pins, as the task files apt_*.yml of the role _common take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Pin:
    packages: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class AptSet:
    """One repository and the packages that are installed from it at one version.

    name:        part of the names of the files that configure it.
    url:         upstream's address; empty for the distribution's own repositories.
    suite:       codename, or a path that ends with a slash for a flat repository.
    hosts:       where upstream's address redirects apt to.
    components:  none of a flat repository.
    key_url, fingerprint: upstream's key.
    packages:    installed at `version`, which may be a pattern.
    extra:       installed besides, each by name alone or as `name=version`.
    pinned:      patterns of names that are held at that version; the packages themselves if it is empty.
    also_pinned: packages with versions of their own.
    unattended:  patterns of names that unattended-upgrades leaves alone.
    """

    name: str
    url: str
    suite: str
    key_url: str
    fingerprint: str
    packages: tuple[str, ...]
    version: str
    hosts: tuple[str, ...] = ()
    components: str = ""
    extra: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    also_pinned: tuple[Pin, ...] = ()
    unattended: tuple[str, ...] = ()

    def describe(self) -> dict[str, Any]:
        return plain({**asdict(self), "pinned": self.pinned or self.packages})


def plain(value: Any) -> Any:
    """The same with lists and dicts, as YAML has them."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    return value
