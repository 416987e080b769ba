"""What upstream really publishes, as dated rows: repositories, keys, packages with their fields, the units they bring.

The lab's mirror is made from these rows, and tests compare with them what the roles ask for. `make pins-check`
asks the real repositories.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
# What each row says of itself, beside what it is about.
ABOUT = {"source", "date", "mark"}


@dataclass(frozen=True)
class Repository:
    """One of apt's. `path` is host and folder, empty for a distribution's own; one without a suite is flat."""

    name: str
    path: str = ""
    suite: str = ""
    component: str = ""
    key: str = ""


@dataclass(frozen=True)
class Key:
    """What a repository is signed with. `file` is its name beside the repository, `url` where it is if not there."""

    file: str
    fingerprint: str
    url: str = ""


@dataclass(frozen=True)
class Package:
    """One version of a package in one repository.

    fields: of its control file, `Depends` for instance.
    units:  systemd units by name: `enabled` (and started) when it is installed, `disabled`, or `static`.
    files:  paths of its programs.
    component: of a distribution's archive; empty where no row says so.
    architectures: those that it is built for.
    i386:   fields that differ in the build for i386.
    mark:   `seen` if its source and that of its release say so, `inferred` if it follows from what was seen.
    """

    name: str
    version: str
    repository: str
    source: str
    date: str
    mark: str
    fields: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    component: str = ""
    architectures: tuple[str, ...] = ("amd64",)
    i386: Mapping[str, str] = field(default_factory=dict)

    @property
    def upstream(self) -> str:
        """The version without epoch and revision."""
        return upstream_of(self.version)

    @property
    def depends(self) -> list[list[str]]:
        """Names that it depends on: one of each list has to be there."""
        return names_in(self.fields.get("Depends", ""))

    @cached_property
    def provides(self) -> list[str]:
        return [name for names in names_in(self.fields.get("Provides", "")) for name in names]


def upstream_of(version: str) -> str:
    return version.partition(":")[2].partition("-")[0] if ":" in version else version.partition("-")[0]


def names_in(relation: str) -> list[list[str]]:
    """`a (>= 1), b | c` as [[a], [b, c]]."""
    groups = [group for group in relation.split(",") if group.strip()]
    return [[alternative.split()[0].partition("(")[0] for alternative in group.split("|")] for group in groups]


@cache
def repositories() -> dict[str, Repository]:
    rows = _read("repositories")["repositories"]
    return {name: Repository(name, **{part: row[part] for part in row.keys() - ABOUT}) for name, row in rows.items()}


@cache
def keys() -> dict[str, Key]:
    rows = _read("repositories")["keys"]
    return {name: Key(row["file"], row["fingerprint"], row.get("url", "")) for name, row in rows.items()}


@cache
def systems() -> dict[str, list[str]]:
    """Names of the repositories that a system's servers can install from."""
    return _read("repositories")["systems"]


@cache
def packages() -> tuple[Package, ...]:
    """Every version of every package."""
    files = sorted(HERE.glob("*.yml"))
    return tuple(package for file in files if file.stem != "repositories" for package in _packages(_read(file.stem)))


def _packages(rows: Mapping[str, Any]) -> Iterator[Package]:
    for row in rows["packages"]:
        own = {name: [(version, "seen") for version in versions] for name, versions in row.get("versions", {}).items()}
        listed = own or {name: _listed(rows["releases"][name]) for name in row["repositories"]}
        for repository, versions in listed.items():
            for version, mark in versions:
                if own or _within(version, row.get("from", "0"), row.get("until", "9999")):
                    yield from _versions_of(row, repository, version, mark)


def _versions_of(row: Mapping[str, Any], repository: str, version: str, mark: str) -> Iterator[Package]:
    """mark: that of the release. A row with suffixes is one package of each: `{suffix}`, `{kind}` without `-open`."""
    branch = version.partition(".")[0]
    told = {"version": version, "upstream": upstream_of(version), "branch": branch}
    told["series"] = f"-{branch}" if _within(version, "0", "580.999") else ""  # of NVIDIA's names on Ubuntu
    for suffix in row.get("suffixes", [""]):
        told |= {"suffix": suffix, "kind": suffix.removesuffix("-open")}
        fields, i386 = (_filled(row.get(part, {}), told) for part in ("fields", "i386"))
        for name in row["names"]:
            yield Package(
                name=name.format(**told),
                version=version,
                repository=repository,
                source=row["source"],
                date=str(row["date"]),
                mark=row["mark"] if mark == "seen" else mark,
                fields=fields,
                units=row.get("units", {}),
                files=tuple(row.get("files", ())),
                component=row.get("component", ""),
                architectures=tuple(row.get("architectures", ("amd64",))),
                i386=i386,
            )


def _filled(fields: Mapping[str, str], words: Mapping[str, str]) -> dict[str, str]:
    return {name: text.format(**words) for name, text in fields.items()}


def _listed(releases: list[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Each version with its row's mark."""
    return [(version, row["mark"]) for row in releases for version in row["versions"]]


def _within(version: str, first: str, last: str) -> bool:
    return _numbers(first) <= _numbers(upstream_of(version)) <= _numbers(last)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(version))]


def _read(name: str) -> Any:
    return yaml.safe_load((HERE / f"{name}.yml").read_text())
