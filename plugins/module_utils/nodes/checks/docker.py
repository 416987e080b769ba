# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks why a server cannot get Docker, and why containers of Docker get no GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from ...diagnosis.check import CheckResult, FindingType, check
from ...hops import Hop
from ..docker import Docker
from ..docker_daemon import Daemon
from .seen import seen_on

OTHER_DOCKER = FindingType(
    "DOCKER_OTHER_INSTALLED",
    Hop.RUNTIME,
    "error",
    "docker-ce would replace it, because both have the same programs",
    "set docker_state: existing to keep it, and nvidia_container_toolkit_runtimes: [containerd, docker] to give it "
    "GPUs",
    before="refuse",
)


@check("no Docker of the distribution is installed", OTHER_DOCKER)
def no_other_docker_is_installed(docker: Docker) -> Iterator[CheckResult]:
    if docker.is_wanted and docker.others:
        seen = f"has a Docker that is not managed by this collection ({', '.join(docker.others)})"
        yield seen_on(docker.host, OTHER_DOCKER, seen)


NEWER_INSTALLED = FindingType(
    "DOCKER_NEWER_INSTALLED",
    Hop.RUNTIME,
    "error",
    "the role installs an older release only if you ask for it",
    'set docker_version: "{installed}-*" to keep it, or docker_version: "{version}" to install the older release',
    before="refuse",
)


@check("no newer Docker is installed", NEWER_INSTALLED)
def docker_goes_down_on_demand(docker: Docker) -> Iterator[CheckResult]:
    if docker.is_wanted and docker.goes_down and not docker.options.version:
        seen = f"has docker-ce {docker.installed}, newer than {docker.version} of the version file"
        installed = docker.installed.partition("-")[0]
        yield seen_on(docker.host, NEWER_INSTALLED, seen, installed=installed, version=docker.version)


CONTAINER_WITHOUT_GPUS = FindingType(
    "DOCKER_CONTAINER_WITHOUT_GPUS",
    Hop.RUNTIME,
    "error",
    "Docker's runtime nvidia does not give a container all GPUs",
    "on the node: `docker info --format {{{{.Runtimes}}}}` has to list nvidia, which the role nvidia_container_toolkit "
    "adds; then `nvidia-ctk cdi list` and `journalctl -u docker`. docker_verify_container: false skips this check",
)


@check("a container of Docker sees the GPUs", CONTAINER_WITHOUT_GPUS)
def a_container_sees_the_gpus(docker: Docker) -> Iterator[CheckResult]:
    shown = docker.survey.shown
    if shown is None:
        return
    seen, gpus = len(shown["gpus"]), len(docker.survey.facts.gpus)
    if seen != gpus:
        words = f"gives too few: nvidia-smi in a container of Docker showed {seen} of {gpus} GPUs: {shown['output']}"
        yield seen_on(docker.host, CONTAINER_WITHOUT_GPUS, words)


SETTINGS_UNMERGEABLE = FindingType(
    "DOCKER_SETTINGS_UNMERGEABLE",
    Hop.RUNTIME,
    "error",
    "the runtime nvidia is merged into the existing settings, and nothing else in them is changed",
    "on the node: `python3 -m json.tool {path}` shows the settings, or where they are no JSON. Remove the default "
    "runtime there, or set nvidia_container_toolkit_default_runtime: false to keep it",
    before="refuse",
)


@check("Docker's settings can be merged", SETTINGS_UNMERGEABLE)
def settings_can_be_merged(daemon: Daemon) -> Iterator[CheckResult]:
    if daemon.fault:
        path = daemon.options.path
        seen = f"has {path}, into which the runtime nvidia cannot be merged: {daemon.fault}"
        yield seen_on(daemon.host, SETTINGS_UNMERGEABLE, seen, path=path)


BEFORE = (no_other_docker_is_installed, docker_goes_down_on_demand)
AFTER = (a_container_sees_the_gpus,)
DAEMON = (settings_can_be_merged,)
