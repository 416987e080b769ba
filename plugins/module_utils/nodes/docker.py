# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans the role docker: the release to install, and whether a container must see the GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from . import dpkg
from .answers import Answer
from .apt_sources import AptSet
from .containerd import docker_repository
from .gpu_facts import GpuFacts
from .host import Host
from .versions import is_newer

PACKAGES = ("docker-ce", "docker-ce-cli")


@dataclass(frozen=True)
class DockerOptions:
    state: str
    version: str
    versions: Mapping[str, Any]
    verify_container: bool


@dataclass(frozen=True)
class DockerSurvey:
    """What was read on the server so far. An answer is None until it was queried.

    packages:       dpkg's rows of docker-ce and of the distribution's packages: name, state, version.
    has_source:     whether the role containerd has configured the repository.
    shown:          GPUs that a container saw, and its output.
    runtimes:       runtimes that nvidia_container_toolkit configures.
    operator_roles: roles that the GPU operator replaces.
    """

    facts: GpuFacts
    packages: Answer | None = None
    has_source: bool = False
    shown: Mapping[str, Any] | None = None
    runtimes: tuple[str, ...] = ()
    operator_roles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Docker:
    """The decisions, as properties; nodes/checks/docker.py checks them."""

    host: Host
    options: DockerOptions
    survey: DockerSurvey
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_wanted(self) -> bool:
        return self.options.state == "present"

    @property
    def version(self) -> str:
        version: str = self.options.version or self.options.versions["packages"]["docker-ce"]
        return version

    @cached_property
    def packages(self) -> dict[str, str]:
        """Versions of installed packages."""
        return dpkg.versions(self.survey.packages)

    @property
    def installed(self) -> str:
        return self.packages.get("docker-ce", "")

    @property
    def others(self) -> tuple[str, ...]:
        """Packages of a distribution with the same programs."""
        return tuple(name for name in self.packages if name != "docker-ce")

    @property
    def goes_down(self) -> bool:
        return is_newer(self.installed, self.version)

    @property
    def apt(self) -> AptSet:
        """A repository has only one source, because apt rejects two with different keys."""
        source = docker_repository(self.host, self.options.versions, "docker-ce", PACKAGES, self.version)
        return replace(source, url="") if self.survey.has_source else source

    @property
    def runs_container(self) -> bool:
        """Whether a container of Docker gets the GPUs, and is started to check that."""
        survey = self.survey
        gets_runtime = "docker" in survey.runtimes and "nvidia_container_toolkit" not in survey.operator_roles
        return self.is_wanted and self.options.verify_container and survey.facts.can_be_used and gets_runtime
