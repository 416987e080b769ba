# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plans how settings are added to containerd's configuration, and removed: with a drop-in that the main file imports.

Drop-in and main file must have the same version, or containerd loses settings of one of them. A main file without
settings is replaced. A configured file gets one marked import and no other change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...formats.mappings import merged
from ...formats.toml import from_toml, to_toml, with_import, without_import
from ...secrets import secrets_in
from ..survey.files import Found, WantedFile
from ..survey.host import Host
from ..survey.program_output import Answer, lines_of

# Supported versions of the configuration. The latest of containerd 1 is 2.
KNOWN = (2, 3, 4)
OLDEST_LATEST = 3
# Plugins of Kubernetes' interface, by version.
WORDS = {"2": "io.containerd.grpc.v1.cri", "3": "io.containerd.cri.v1."}
INTERFACE = frozenset({"cri", "io.containerd.grpc.v1.cri"})
# The packaged file has only comments and this line.
PACKAGED = {"disabled_plugins": ["cri"]}


@dataclass(frozen=True)
class Paths:
    """Paths of containerd.

    config:      its main configuration.
    drop_ins:    folder of files that the main configuration imports.
    registries:  folder of settings of registries.
    proxy:       part of its unit.
    socket:      created when it starts.
    pod_network: of the pod network, read when it starts.
    programs:    folders of its program.
    data:        folders of its images and containers.
    """

    config: str
    drop_ins: str
    registries: str
    proxy: str
    socket: str
    pod_network: str
    programs: tuple[str, ...]
    data: tuple[str, ...]

    @property
    def config_folder(self) -> str:
        return self.config.rpartition("/")[0]

    @property
    def packaged(self) -> str:
        """Path of the stored main configuration of the package."""
        return f"{self.config}.before-kubegpu"

    @property
    def imports(self) -> str:
        return f"{self.drop_ins}/*.toml"


@dataclass(frozen=True)
class MainFile:
    """The main configuration. Empty text if the file does not exist."""

    text: str
    paths: Paths

    @cached_property
    def _read(self) -> tuple[dict[str, Any], str]:
        try:
            return from_toml(self.text), ""
        except ValueError as err:
            return {}, str(err)

    @property
    def settings(self) -> Mapping[str, Any]:
        return self._read[0]

    @property
    def fault(self) -> str:
        """Why it cannot be read."""
        return self._read[1]

    @property
    def _own_words(self) -> dict[str, Any]:
        return {key: value for key, value in self.settings.items() if key != "version"}

    @property
    def is_unused(self) -> bool:
        """Whether it is the packaged file, which has no settings of users and does not work with Kubernetes."""
        return not self.fault and self._own_words in ({}, PACKAGED)

    @property
    def is_ours(self) -> bool:
        return self.text.startswith(self._header) and self._own_words == {"imports": [self.paths.imports]}

    @property
    def has_settings(self) -> bool:
        return not (self.is_unused or self.is_ours)

    @property
    def version(self) -> int:
        version = self.settings.get("version", 1)
        return version if isinstance(version, int) else 0

    @property
    def switches_interface_off(self) -> bool:
        disabled = self.settings.get("disabled_plugins", [])
        return not self.is_unused and isinstance(disabled, list) and bool(INTERFACE.intersection(map(str, disabled)))

    @property
    def _header(self) -> str:
        return f"# Written once by kubegpu.autoscale; settings are in the files below {self.paths.drop_ins}."

    def importing(self, version: int) -> str:
        """The text with the import. Raises: ValueError if the text cannot be extended."""
        if self.is_unused:
            return f'{self._header}\nversion = {version}\nimports = ["{self.paths.imports}"]\n'
        return with_import(self.text, self.paths.imports)

    @property
    def without_import(self) -> str:
        return without_import(self.text, self.paths.imports)


@dataclass(frozen=True)
class Wanted:
    """One drop-in. settings: for configuration version 2, and for 3. config: merged over them."""

    name: str
    state: str = "present"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DropInSurvey:
    """What was read on the server so far. None: it was not queried.

    latest: output of `containerd config default`, in the latest version that this containerd supports.
    later:  drop-ins of a later version than the main configuration.
    """

    found: Found = field(default_factory=Found)
    main: str = ""
    latest: Answer | None = None
    later: tuple[str, ...] = ()


@dataclass(frozen=True)
class DropIn:
    """The decisions, as properties; nodes/containerd/drop_in_checks.py checks them."""

    host: Host
    options: Wanted
    paths: Paths
    survey: DropInSurvey
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_wanted(self) -> bool:
        return self.options.state == "present"

    @cached_property
    def main(self) -> MainFile:
        return MainFile(self.survey.main, self.paths)

    @property
    def path(self) -> str:
        return f"{self.paths.drop_ins}/{self.options.name}"

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Other drop-ins."""
        pattern = re.compile(re.escape(self.paths.drop_ins) + r"/.*\.toml")
        return tuple(path for path in self.survey.found.files() if pattern.fullmatch(path) and path != self.path)

    # Its version.

    @property
    def asks_latest(self) -> bool:
        """A new main file gets the latest version; a file of version 2 may be due to containerd 1."""
        return self.is_wanted and not self.main.fault and (self.main.is_unused or self.main.version == KNOWN[0])

    @property
    def latest(self) -> int:
        """The latest version that this containerd supports; 0 if it did not answer."""
        found = (re.match(r"version = (\d+)", line) for line in lines_of(self.survey.latest))
        return next((int(match[1]) for match in found if match), 0)

    @property
    def version(self) -> int:
        """The version of the main file. A new one gets the latest that containerd and this collection support."""
        if not self.main.is_unused:
            return self.main.version
        return max((version for version in KNOWN if version <= self.latest), default=0)

    @property
    def later_versions(self) -> str:
        """Pattern of a line with a later version; empty without other drop-ins."""
        versions = "|".join(map(str, range(self.version + 1, 10)))
        return rf"version\s*=\s*({versions})\b" if self.is_wanted and self.version and self.neighbours else ""

    # Its content.

    @property
    def words(self) -> str:
        return "2" if self.version == KNOWN[0] else "3"

    @property
    def settings(self) -> dict[str, Any]:
        return merged(self.options.settings[self.words], self.options.config)

    @property
    def foreign_words(self) -> tuple[str, ...]:
        """Plugins in the settings that only another version supports."""
        [other] = (prefix for words, prefix in WORDS.items() if words != self.words)
        return tuple(name for name in self.settings.get("plugins") or {} if name.startswith(other))

    @cached_property
    def _content(self) -> tuple[str, str]:
        try:
            return "# Written by kubegpu.autoscale\n" + to_toml({"version": self.version} | self.settings), ""
        except (TypeError, AttributeError) as err:
            return "", str(err)

    @property
    def fault(self) -> str:
        """Why its settings cannot be written."""
        return self._content[1]

    @property
    def file(self) -> WantedFile:
        mode = "0600" if secrets_in(self.settings) else "0644"
        return WantedFile(self.path, self._content[0], mode, "containerd --config %s config dump")

    # The main file.

    @cached_property
    def _importing(self) -> tuple[str, str]:
        try:
            return self.main.importing(self.version), ""
        except (KeyError, TypeError, ValueError) as err:
            return "", str(err)

    @property
    def import_fault(self) -> str:
        """Why the main file cannot import drop-ins."""
        return self._importing[1]

    @property
    def main_file(self) -> WantedFile:
        return WantedFile(self.paths.config, self._importing[0], self.survey.found.mode(self.paths.config))

    @property
    def writes_main(self) -> bool:
        return self._importing[0] != self.main.text

    @property
    def has_secrets(self) -> bool:
        """Whether one of the files has a secret, such as the login to a registry."""
        return bool(secrets_in(self.main.settings)) or (self.is_wanted and bool(secrets_in(self.settings)))

    @property
    def keeps_packaged(self) -> bool:
        found = self.survey.found
        return self.main.is_unused and self.paths.config in found and self.paths.packaged not in found

    @property
    def writes(self) -> bool:
        return self.is_wanted and (self.writes_main or not self.survey.found.is_as_wanted(self.file))

    @property
    def restarts(self) -> bool:
        """Whether containerd started before a change of a file that it reads at startup: a run was interrupted.

        containerd notices written files of the pod network, but not renamed ones.
        """
        started = self.survey.found.changed_at(self.paths.socket)
        return started is not None and any(
            (self.survey.found.changed_at(path) or 0) > started
            for path in self.survey.found.files()
            if path == self.paths.config or path.startswith((f"{self.paths.drop_ins}/", self.paths.pod_network))
        )

    # Removal: without drop-ins, the original main file is restored.

    @property
    def is_last(self) -> bool:
        return not self.is_wanted and not self.neighbours

    @property
    def has_packaged(self) -> bool:
        return self.paths.packaged in self.survey.found

    @property
    def takes_import_out(self) -> bool:
        return self.is_last and self.main.has_settings and self.main.without_import != self.main.text

    @property
    def brings_packaged_back(self) -> bool:
        return self.is_last and self.main.is_ours and self.has_packaged

    @property
    def removed(self) -> tuple[str, ...]:
        """Files that only this collection writes."""
        if not self.is_last:
            return (self.path,)
        had_one = not self.main.is_ours or self.has_packaged
        return (self.path, self.paths.packaged, *(() if had_one else (self.paths.config,)))
