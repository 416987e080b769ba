# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Packages of one apt repository, with their pins, as roles pass them to the tasks apt_*.yml of the role _common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...formats.plain import plain
from ..survey.files import slurped


@dataclass(frozen=True)
class Pin:
    packages: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class AptSet:
    """One repository, and packages that are installed from it at one version.

    name:        part of the names of its files.
    url:         upstream's address; empty for the distribution's own repositories.
    suite:       codename, or a path that ends with a slash for a flat repository.
    hosts:       hosts to which upstream's address redirects.
    components:  none for a flat repository.
    key_url, fingerprint: upstream's key.
    packages:    installed at `version`, which may be a pattern.
    extra:       additional packages, each by name or as `name=version`.
    pinned:      patterns of names pinned to that version; by default the packages themselves.
    also_pinned: packages with separate versions.
    unattended:  patterns of packages that unattended-upgrades must not upgrade.
    services:    units that needrestart must not restart after an upgrade of a library.
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
    services: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> AptSet:
        """From the result of `describe`, or a role's data in that format. None stands for a default."""
        pins = tuple(Pin(tuple(pin["packages"]), str(pin["version"])) for pin in given.get("also_pinned") or ())
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
        return cls(**(values | {"version": str(given["version"]), "also_pinned": pins}))

    @property
    def asked(self) -> tuple[str, ...]:
        """Packages as `name=version`, or by name alone."""
        return (*(f"{name}={self.version}" for name in self.packages), *self.extra)

    @property
    def pins(self) -> tuple[Pin, ...]:
        return (Pin(self.pinned or self.packages, self.version), *self.also_pinned)

    def describe(self) -> dict[str, Any]:
        return plain({**asdict(self), "pinned": self.pinned or self.packages})


def installed_before(slurp: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Recorded names of packages that were installed before the pin, from ansible.builtin.slurp."""
    return tuple(line for line in slurped(slurp).splitlines() if not line.startswith("#"))
