"""Compares the rows with the real repositories: `make pins-check`.

Exit status: 0 nothing has, 1 something has, 3 not run, since a repository did not answer. A change that was found
counts more than a silent repository. Both are printed.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from urllib.error import HTTPError
from urllib.request import urlopen

from lab import upstream
from lab.upstream import Key, Package, Repository
from plugins.module_utils.formats.openpgp import openpgp_fingerprints

TIMEOUT_S = 30
COMPARED = ("Depends", "Recommends", "Conflicts", "Provides", "Replaces", "Breaks")
CHANGED, NOT_RUN = 1, 3

Ask = Callable[[str], bytes]
Stanza = Mapping[str, str]


def main(ask: Ask, tell: Callable[[str], object] = print) -> int:
    """Compare every repository; returns the exit status."""
    changed, silent = False, []
    for repository in upstream.repositories().values():
        if not repository.path:
            continue
        try:
            stanzas = parse(index(ask, repository))
            keys = fingerprints(ask, upstream.keys()[repository.key], repository)
        except OSError as error:
            silent.append(f"{repository.name}: https://{repository.path}: {error}")
            continue
        said = [*compare(repository, stanzas), *compare_key(upstream.keys()[repository.key], keys)]
        changed = changed or bool(said)
        tell(f"{repository.name}: {'as the rows say' if not said else ''}".rstrip())
        for line in said:
            tell(f"  {line}")
    for line in silent:
        tell(f"NOT RUN for {line}. Next: run `make pins-check` on a machine that reaches it")
    return CHANGED if changed else NOT_RUN if silent else 0


def index(ask: Ask, repository: Repository) -> str:
    """The text of a repository's Packages. Raises OSError if it does not answer."""
    folder = f"{repository.path}/dists/{repository.suite}/{repository.component}/binary-amd64"
    url = f"https://{folder if repository.suite else repository.path}/Packages"
    try:
        return gzip.decompress(ask(f"{url}.gz")).decode()
    except HTTPError:
        return ask(url).decode()


def parse(text: str) -> list[dict[str, str]]:
    """The stanzas of a Packages file, as their fields."""
    stanzas = (dict(re.findall(r"^([\w-]+): *(.*)$", stanza, re.MULTILINE)) for stanza in text.split("\n\n"))
    return [stanza for stanza in stanzas if "Package" in stanza]


def compare(repository: Repository, stanzas: Iterable[Stanza]) -> list[str]:
    """Differences between a repository and the rows, in both directions."""
    rows: dict[str, dict[str, Package]] = defaultdict(dict)
    for package in upstream.packages():
        if package.repository == repository.name:
            rows[package.name][package.version] = package
    found: dict[str, dict[str, Stanza]] = defaultdict(dict)
    for stanza in stanzas:
        if stanza.get("Architecture") in ("amd64", "all"):
            found[stanza["Package"]][stanza["Version"]] = stanza
    return [line for name in sorted(rows) for line in _compare(name, rows[name], found.get(name, {}))]


def _compare(name: str, rows: Mapping[str, Package], found: Mapping[str, Stanza]) -> Iterable[str]:
    if not found:
        yield f"{name}: not there"
        return
    newer = [version for version in found if numbers(version) > max(map(numbers, rows))]
    if newer:
        yield f"{name}: newer than the rows: {', '.join(sorted(newer, key=numbers))}"
    gone = sorted(set(rows) - set(found), key=numbers)
    if gone:
        yield f"{name}: in the rows, and not there: {', '.join(gone)}"
    for version in sorted(set(rows) & set(found), key=numbers):
        for field in COMPARED:
            said, real = rows[version].fields.get(field, ""), found[version].get(field, "")
            if relation(said) != relation(real):
                yield f"{name} {version}: {field} is `{real}`, and its row says `{said}`"


def compare_key(key: Key, seen: list[str]) -> list[str]:
    return [] if key.fingerprint in seen else [f"{key.file}: its fingerprint is {', '.join(seen) or 'none'}"]


def fingerprints(ask: Ask, key: Key, repository: Repository) -> list[str]:
    """Fingerprints of the repository's key. Raises OSError if it does not answer."""
    return openpgp_fingerprints(ask(f"https://{key.url or f'{repository.path}/{key.file}'}").decode())


def relation(text: str) -> set[str]:
    return {re.sub(r"\s+", " ", part).strip() for part in text.split(",") if part.strip()}


def numbers(version: str) -> list[int]:
    """For comparing versions of one package."""
    return [int(number) for number in re.findall(r"\d+", version)]


def fetch(url: str) -> bytes:
    with urlopen(url, timeout=TIMEOUT_S) as answer:
        return answer.read()


if __name__ == "__main__":
    sys.exit(main(fetch))
