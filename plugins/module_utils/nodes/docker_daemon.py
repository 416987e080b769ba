# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans the runtime nvidia in Docker's daemon.json, a file with other settings: to add it, and to remove it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..formats.docker import forgetting, with_runtime, without_runtime
from .host import Host
from .toolkit import RUNTIME

NAME = "nvidia"
VALIDATE = "dockerd --validate --config-file=%s"


@dataclass(frozen=True)
class DaemonOptions:
    state: str
    default_runtime: bool
    path: str


@dataclass(frozen=True)
class DaemonSurvey:
    """What was read on the server.

    file: `stat` of daemon.json; empty if it does not exist.
    text: its content.
    has_docker, runs: whether dockerd is installed and running.
    """

    file: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    has_docker: bool = False
    runs: bool = False


@dataclass(frozen=True)
class Daemon:
    """The decisions, as properties; nodes/checks/docker.py checks them."""

    host: Host
    options: DaemonOptions
    survey: DaemonSurvey
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _merged(self) -> tuple[str, str]:
        text, default = self.survey.text, self.options.default_runtime
        try:
            if self.options.state == "present":
                return with_runtime(text, NAME, RUNTIME, default), ""
            return without_runtime(text, NAME, RUNTIME), ""
        except (TypeError, ValueError) as err:
            return text, str(err)

    @property
    def content(self) -> str:
        """New content of the file; empty to remove it."""
        return self._merged[0]

    @property
    def fault(self) -> str:
        """Why the runtime cannot be merged."""
        return self._merged[1]

    @property
    def is_there(self) -> bool:
        return bool(self.survey.file.get("exists"))

    @property
    def writes(self) -> bool:
        return bool(self.content) and self.content != self.survey.text

    @property
    def removes(self) -> bool:
        """Whether the file had no other settings."""
        return not self.content and bool(self.survey.text)

    @property
    def file(self) -> dict[str, Any]:
        """Owner and mode are kept."""
        seen = self.survey.file
        return {
            "path": self.options.path,
            "content": self.content,
            "owner": str(seen.get("uid", "root")),
            "group": str(seen.get("gid", "root")),
            "mode": str(seen.get("mode", "0644")),
            "validate": VALIDATE if self.survey.has_docker else "",
        }

    # At a reload Docker keeps settings that its file does not contain, so a removed runtime is first set to empty.
    # Otherwise new containers would be started by a program that no longer exists.

    @cached_property
    def forgetting(self) -> str:
        return self.content if self.fault else forgetting(self.content, self.survey.text)

    @property
    def forgets(self) -> bool:
        return self.survey.runs and self.forgetting != self.content

    @property
    def forgotten(self) -> dict[str, Any]:
        """What Docker reports after reading it. default: name of its default runtime; empty for any."""
        says = json.loads(self.forgetting) if self.forgets else {}
        return {"default": says.get("default-runtime", ""), "runtime": NAME if says.get("runtimes") == {} else ""}
