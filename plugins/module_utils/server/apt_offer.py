# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks whether apt would find packages, before a repository is configured for it.

apt itself reads the repositories, with separate settings and lists in a temporary folder: the server's sources,
keys and lists do not change. The key is not used, so the result only decides whether to begin.
"""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha1
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

AT_MOST = 5  # reported versions of a package
_APT, _LISTS = Path("/etc/apt"), Path("/var/lib/apt/lists")
_NEEDRESTART = Path("/etc/needrestart/conf.d")
_ROW = "${Package} ${db:Status-Status} ${Version}\\n"
_FAILURES = ("E: ", "W: Failed to fetch")
# Hooks of others are for the server's own lists; some would start services.
_SETTINGS = """
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "1";
Dir::State::Lists "{folder}/lists/";
Dir::Cache "{folder}/cache/";
"""
_SOURCES = """
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
"""

# Its exit status is ignored: apt fails for one package or repository among many, but the other results are valid.
Run = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True)
class Repository:
    """Packages to install from one repository.

    name:       its name in the result.
    uri:        its address; empty for the repositories in the server's configuration.
    suite:      codename, or a path that ends with a slash for a flat repository.
    components: none for a flat repository.
    packages:   `name=version`, where `*` matches anything, or just a name.
    hosts:      hosts to which it redirects.
    """

    name: str
    uri: str
    suite: str
    components: str
    packages: tuple[str, ...]
    hosts: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """In the format of sources.list(5)."""
        return f"deb [trusted=yes] {self.uri} {self.suite} {self.components}\n"


@dataclass
class Offer:
    """Versions of each package, newest first, and apt's messages about repositories that it could not read."""

    run: Run
    versions: dict[str, list[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def has(self, package: str) -> bool:
        name, _equals, wanted = package.partition("=")
        return any(fnmatchcase(version, wanted or "*") for version in self.versions.get(name, []))

    def lacks(self, wanted: Iterable[tuple[Repository, str]]) -> list[tuple[Repository, str]]:
        return [(repository, package) for repository, package in wanted if not self.has(package)]

    def learn(self, names: Iterable[str], config: Path | None = None) -> None:
        """Run apt, with its own settings or with those of a file."""
        for row in self.run("apt-cache", *_option(config), "madison", *names)[1].splitlines():
            name, version, _source = (part.strip() for part in row.split("|"))
            known = self.versions.setdefault(name, [])
            if version not in known:
                known.append(version)

    def fetch(self, repositories: Sequence[Repository], names: Sequence[str], proxy: str = "") -> None:
        """Have apt read these repositories, or by default all configured ones, into temporary lists."""
        with tempfile.TemporaryDirectory(prefix="kubegpu-apt-") as folder:
            for part in ("lists/partial", "cache/archives/partial"):
                (Path(folder) / part).mkdir(parents=True)
            (Path(folder) / "sources.list").write_text("".join(repository.line for repository in repositories))
            config = Path(folder) / "apt.conf"
            config.touch(0o600)  # a proxy's address may have a password
            config.write_text(
                _SETTINGS.format(folder=folder)
                + (_SOURCES.format(folder=folder) if repositories else "")
                + "".join(_proxy(repository, proxy) for repository in repositories if proxy)
            )
            _status, output, errors = self.run("apt-get", *_option(config), "update")
            lines = (output + errors).splitlines()
            self.failures += [
                line[3:] for line in lines if line.startswith(_FAILURES) and line[3:] not in self.failures
            ]
            self.learn(names, config)


def look(run: Run, repositories: Sequence[Repository], proxy: str = "") -> dict[str, Any]:
    """Packages that are neither installed nor would be found, as documented in the module server_info."""
    installed = _installed(run, repositories)
    wanted = [
        (repository, package)
        for repository in repositories
        for package in repository.packages
        if not installed.has(package)
    ]
    offer = Offer(run)
    if wanted:
        offer.learn(_names(wanted))
    lacking = offer.lacks(wanted)
    if others := [repository for repository in dict(lacking) if repository.uri]:
        offer.fetch(others, _names(lacking), proxy)
        lacking = offer.lacks(lacking)
    # For the distribution's packages: the apt of an image may have no lists yet, or old ones.
    if any(not repository.uri or "=" not in package for repository, package in lacking):
        offer.fetch([], _names(lacking))
        lacking = offer.lacks(lacking)
    return {
        "missing": [
            {
                "repository": repository.name,
                "uri": repository.uri,
                "package": package,
                "offered": offer.versions.get(_name(package), [])[:AT_MOST],
            }
            for repository, package in lacking
        ],
        "failures": offer.failures,
        "installed": [f"{name}={version}" for name, versions in installed.versions.items() for version in versions],
        "files": [*_files()],
    }


def _files() -> Iterator[dict[str, Any]]:
    """In the format of ansible.builtin.find."""
    own = {*_APT.glob("kubegpu-*"), *_APT.glob("*/*kubegpu-*"), *_NEEDRESTART.glob("kubegpu-*")}
    for path in sorted(own):
        seen = path.stat()
        mode = f"{stat.S_IMODE(seen.st_mode):04o}"
        checksum = sha1(path.read_bytes()).hexdigest()  # the format of find
        yield {"path": str(path), "checksum": checksum, "mode": mode, "uid": seen.st_uid, "gid": seen.st_gid}
    for path in sorted(_LISTS.glob("*InRelease")):
        yield {"path": str(path), "checksum": ""}


def _name(package: str) -> str:
    return package.partition("=")[0]


def _names(wanted: Iterable[tuple[Repository, str]]) -> list[str]:
    return sorted({_name(package) for _repository, package in wanted})


def _installed(run: Run, repositories: Sequence[Repository]) -> Offer:
    names = sorted({_name(package) for repository in repositories for package in repository.packages})
    found = Offer(run)
    for row in run("dpkg-query", "--show", "--showformat", _ROW, *names)[1].splitlines() if names else []:
        name, status, *version = row.split()
        if status == "installed":
            found.versions.setdefault(name, []).extend(version)
    return found


def _proxy(repository: Repository, proxy: str) -> str:
    """A setting for each host, because apt checks them again after a redirect."""
    hosts = (urlsplit(repository.uri).hostname or "", *repository.hosts)
    return "".join(f'Acquire::{scheme}::Proxy::{host} "{proxy}";\n' for host in hosts for scheme in ("http", "https"))


def _option(config: Path | None) -> list[str]:
    return ["--config-file", str(config)] if config else []
