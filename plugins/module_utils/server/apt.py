# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""apt's configured package sources, in both formats: sources.list(5).

apt rejects its whole configuration if a repository has two different Signed-By.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .files import Files

_FOLDER = "etc/apt/sources.list.d"
_LINE = re.compile(r"^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)(.*)$")
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}
_NO = frozenset({"no", "false", "without", "off", "disable", "0"})


@dataclass(frozen=True)
class AptSource:
    """One repository in apt's configuration.

    file:       file of its configuration.
    uri:        without a slash at the end.
    suite:      codename, or a path that ends with a slash for a flat repository.
    components: none for a flat repository.
    """

    file: str
    uri: str
    suite: str
    components: tuple[str, ...] = ()


def apt_sources(files: Files) -> Iterator[AptSource]:
    """Enabled repositories."""
    names = [f"{_FOLDER}/{name}" for name in files.names(_FOLDER)]
    for name in ["etc/apt/sources.list", *names]:
        if name.endswith(".list"):
            yield from _of_lines(name, files.text(name) or "")
        elif name.endswith(".sources"):
            yield from _of_stanzas(name, files.text(name) or "")


def _of_lines(name: str, text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        if found := _LINE.match(line.partition("#")[0].strip()):
            yield _source(name, found[2], found[3], found[4].split())


def _of_stanzas(name: str, text: str) -> Iterator[AptSource]:
    for stanza in re.split(r"\n\s*\n", text):
        lines = "\n".join(line for line in stanza.splitlines() if not line.startswith("#"))
        fields = {
            key.lower(): value.split()
            for key, value in re.findall(r"^([\w-]+):((?:.*\n[ \t])*.*)$", lines, re.MULTILINE)
        }
        if "deb" not in fields.get("types", []) or _NO & {word.lower() for word in fields.get("enabled", [])}:
            continue
        for uri in fields.get("uris", []):
            for suite in fields.get("suites", []):
                yield _source(name, uri, suite, fields.get("components", []))


def _source(name: str, uri: str, suite: str, components: list[str]) -> AptSource:
    machine = platform.machine()
    uri = uri.replace("$(ARCH)", _ARCHITECTURE.get(machine, machine))
    return AptSource(f"/{name}", uri.rstrip("/"), "/" if suite == "./" else suite, tuple(components))
