# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans what the task files apt_*.yml do to a server for one set of packages: files, key, packages.

Called by plan.py for each role that installs packages. In: an `AptSet` of the role and the files of apt. Out: files to
write and to remove, the packages, and whether apt has to update its lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha1

from ..survey.files import Found, WantedFile
from ..survey.host import Host
from ..survey.program_output import Answer, lines_of
from .mirrors import hostname, mirrored
from .sources import AptSet

LISTS = "/var/lib/apt/lists"
PRIORITY = 1000


@dataclass(frozen=True)
class AptPaths:
    """Files of one set. before: names of packages that were installed before the pin; a removal keeps them."""

    key: str
    source: str
    pin: str
    before: str
    config: str
    needrestart: str


@dataclass(frozen=True)
class Source:
    """A repository in the server's apt configuration, as server_info returns it."""

    file: str
    uri: str
    suite: str
    components: tuple[str, ...] = ()


@dataclass(frozen=True)
class AptOptions:
    """Options that all roles share."""

    apt_mirror: str
    apt_mirror_key: str
    apt_proxy: str


@dataclass(frozen=True)
class AptSurvey:
    """What was read on the server so far.

    sources:  of all repositories.
    found:    files of the set, and apt's lists.
    packages: dpkg's rows `name=version state` of the set and of what it pins.
    is_ours:  whether the pin exists.
    before:   recorded names of packages that were installed before.
    pretends: whether this is check mode.
    """

    sources: tuple[Source, ...] = ()
    found: Found = field(default_factory=Found)
    packages: Answer | None = None
    is_ours: bool = False
    before: tuple[str, ...] = ()
    pretends: bool = False


@dataclass(frozen=True)
class AptRepository:
    """The decisions, as properties; nodes/apt/checks.py checks them."""

    host: Host
    options: AptOptions
    apt: AptSet
    paths: AptPaths
    survey: AptSurvey
    unavailable: Mapping[str, str] = field(default_factory=dict)

    # The repository.

    @property
    def uri(self) -> str:
        return mirrored(self.apt.url, self.options.apt_mirror)

    @property
    def is_flat(self) -> bool:
        return self.apt.suite.endswith("/")

    @property
    def release(self) -> str:
        """Address of the file that the key signs."""
        return f"{self.uri}/InRelease" if self.is_flat else f"{self.uri}/dists/{self.apt.suite}/InRelease"

    @property
    def index(self) -> str:
        """Its path in apt's lists, by the name from apt's URItoFileName."""
        name = re.sub("^https?://", "", self.release).replace("_", "%5f").replace("/", "_")
        return f"{LISTS}/{name}"

    @property
    def key_url(self) -> str:
        return self.release if self.options.apt_mirror else self.apt.key_url

    # Existing sources of the same repository: Docker's, cuda-keyring's, kubernetes.list of a guide. Two with different
    # keys stop apt, so a suitable existing one is used. The pins are still written.

    @cached_property
    def elsewhere(self) -> tuple[Source, ...]:
        if not self.apt.url:
            return ()
        wanted = (self.uri.rstrip("/"), self.apt.suite)
        return tuple(
            source
            for source in self.survey.sources
            if (source.uri, source.suite) == wanted and source.file != self.paths.source
        )

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(self.apt.components.split())

    @property
    def is_reused(self) -> bool:
        return any({*self.needs} <= {*source.components} for source in self.elsewhere)

    @property
    def read(self) -> tuple[str, ...]:
        """Files of sources that have the set's packages; empty for those of the distribution."""
        if self.is_reused:
            return tuple(dict.fromkeys(source.file for source in self.elsewhere))
        return (self.paths.source,) if self.apt.url else ()

    # Files.

    @property
    def files(self) -> tuple[WantedFile, ...]:
        """A file without content is not wanted."""
        mode = "0600" if "@" in self.options.apt_proxy else "0644"  # a password in the proxy's address
        return (
            WantedFile(self.paths.source, self.source),
            WantedFile(self.paths.pin, self.pin),
            WantedFile(self.paths.config, self.config, mode, "apt-config --config-file %s dump"),
            WantedFile(self.paths.needrestart, self.needrestart, validate="perl -c %s"),
        )

    @property
    def source(self) -> str:
        if not self.apt.url or self.is_reused:
            return ""
        mirror_key = self.options.apt_mirror_key.encode()
        key = sha1(mirror_key).hexdigest() if self.options.apt_mirror else self.apt.fingerprint
        lines = [
            f"# Written by kubegpu.autoscale. Key: {key}",
            "Types: deb",
            f"URIs: {self.uri}",
            f"Suites: {self.apt.suite}",
            *([] if self.is_flat else [f"Components: {self.apt.components}"]),
            f"Signed-By: {self.paths.key}",
        ]
        return _text(lines)

    @property
    def pin(self) -> str:
        head = "# Written by kubegpu.autoscale. The whole set moves together, and only with this file.\n"
        stanzas = (
            f"Package: {' '.join(pin.packages)}\nPin: version {pin.version}\nPin-Priority: {PRIORITY}\n"
            for pin in self.apt.pins
        )
        return head + "\n".join(stanzas)

    @property
    def config(self) -> str:
        lines = [*self._proxies(), *self._blacklist()]
        return _text(["// Written by kubegpu.autoscale.", *lines]) if lines else ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts of the repository and its redirects, because apt needs a proxy for each host."""
        return (hostname(self.uri), *self.apt.hosts) if self.apt.url else ()

    def _proxies(self) -> Iterator[str]:
        for host in self.hosts if self.options.apt_proxy else ():
            for scheme in ("http", "https"):
                yield f'Acquire::{scheme}::Proxy::{host} "{self.options.apt_proxy}";'

    def _blacklist(self) -> Iterator[str]:
        if self.apt.unattended:
            yield "// unattended-upgrades continues with everything else."
            yield "Unattended-Upgrade::Package-Blacklist {"
            yield from (f'    "{pattern}";' for pattern in self.apt.unattended)
            yield "};"

    @property
    def needrestart(self) -> str:
        """Since Ubuntu 24.04, needrestart restarts services by itself, also after unattended-upgrades."""
        head = (
            "# Written by kubegpu.autoscale. A restart would end or disturb programs of pods on GPUs.",
            "# ansible-playbook kubegpu.autoscale.maintain drains the node first.",
        )
        rows = (f"$nrconf{{override_rc}}->{{qr(^{re.escape(unit)}$)}} = 0;" for unit in self.apt.services)
        return _text([*head, *rows]) if self.apt.services else ""

    @property
    def differing(self) -> tuple[WantedFile, ...]:
        return tuple(file for file in self.files if file.content and not self.survey.found.is_as_wanted(file))

    @property
    def unwanted(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.files if not file.content and file.path in self.survey.found)

    @property
    def is_known(self) -> bool:
        """Whether key, source and index exist, and the source uses this key."""
        if not self.apt.url:
            return True
        found = self.survey.found
        checksum = sha1(self.source.encode()).hexdigest()
        is_configured = self.paths.key in found and found.checksum(self.paths.source) == checksum
        return self.index in found and (self.is_reused or is_configured)

    @property
    def changes(self) -> bool:
        return bool(self.differing or self.unwanted)

    @property
    def brings_key(self) -> bool:
        """Also before apt reads its lists again, because owners renew keys."""
        return bool(self.apt.url) and not self.is_reused and (not self.is_known or bool(self.differing))

    @property
    def alters(self) -> bool:
        """Whether anything is written, other than packages."""
        return self.changes or self.brings_key or bool(self.record)

    # Packages.

    @cached_property
    def installed(self) -> tuple[str, ...]:
        """As `name=version`."""
        rows = (line.split() for line in lines_of(self.survey.packages))
        return tuple(row[0] for row in rows if row[1:] == ["installed"])

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(asked for asked in self.apt.asked if not self._has(asked))

    @property
    def pretended(self) -> bool:
        """Whether this is check mode on a server without the packages: tasks that need them are skipped."""
        names = {package.partition("=")[0] for package in self.installed}
        return self.survey.pretends and not {asked.partition("=")[0] for asked in self.apt.asked} <= names

    def _has(self, asked: str) -> bool:
        pattern = re.escape(asked).replace(r"\*", ".*") + ("" if "=" in asked else "=.*")
        return any(re.fullmatch(pattern, package) for package in self.installed)

    @property
    def installs(self) -> bool:
        return bool(self.missing) and (self.is_known or not self.survey.pretends)

    @property
    def record(self) -> str:
        """Names of packages that were installed before the pin; empty without such packages, or if the pin exists."""
        if self.paths.pin in self.survey.found:
            return ""
        patterns = [name for pin in self.apt.pins for name in pin.packages]
        names = sorted({name for name in _names(self.installed) if any(fnmatchcase(name, glob) for glob in patterns)})
        head = "# Written by kubegpu.autoscale. Packages that were installed before, and are kept on removal."
        return _text([head, *names]) if names else ""

    # Removal: the pin is written before the first package, and removed after the last.

    @property
    def kept(self) -> tuple[str, ...]:
        before = self.survey.before if self.survey.is_ours else ()
        return tuple(name for name in self.apt.packages if name in before)

    @property
    def purged(self) -> tuple[str, ...]:
        return tuple(name for name in self.apt.packages if self.survey.is_ours and name not in self.kept)


def _names(packages: Iterable[str]) -> Iterator[str]:
    return (package.partition("=")[0] for package in packages)


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
