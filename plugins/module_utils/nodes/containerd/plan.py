# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plan of the role containerd, from its options and what was read on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...formats.plain import plain
from ...hops import Hop
from ..apt.sources import installed_before
from ..findings import errors, findings, warnings
from ..survey.files import Found, slurped
from ..survey.host import Host
from ..survey.program_output import Answer
from .checks import AFTER, BEFORE
from .decisions import Containerd, ContainerdOptions, ContainerdSurvey
from .drop_in import Paths


def containerd_plan(options: ContainerdOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, `paths` of files, and results of the tasks that have run."""
    host = Host.of(survey["host"])
    containerd = Containerd(host, options, paths_of(survey["paths"]), _survey(survey))
    apt = containerd.apt.describe()
    return {
        "refused": errors(BEFORE, containerd),
        "broken": errors(AFTER, containerd),
        "notices": warnings(AFTER, containerd),
        "hop": str(Hop.RUNTIME),
        # A node keeps its existing runtime.
        "findings": [] if host.clusters else findings(host, BEFORE, containerd),
        "packages": {"apt": apt, "sources": [apt] if containerd.is_wanted else []},
        "drop_in": containerd.drop_in,
        "files": plain(_files(containerd)),
        "proxy": {"bypass": [*containerd.bypass], "has_login": "@" in containerd.options.proxy},
        "steps": _steps(containerd),
    }


def paths_of(given: Mapping[str, Any]) -> Paths:
    return Paths(**{**given, "programs": tuple(given["programs"]), "data": tuple(given["data"])})


def _files(containerd: Containerd) -> dict[str, Any]:
    """mirrors: to write. mirrors_unwanted: to remove if this collection wrote them. data: images, containers.
    folders: removed if empty."""
    paths = containerd.paths
    return {
        "mirrors": [vars(file) for file in containerd.mirrors_to_write],
        "mirrors_unwanted": containerd.mirrors_unwanted,
        "configuration": (paths.config, paths.packaged),
        "folders": containerd.folders,
    }


def _steps(containerd: Containerd) -> dict[str, bool]:
    return {
        "install": containerd.is_wanted,
        "upgrade": containerd.is_wanted and containerd.is_upgraded,
        "remove": not containerd.is_wanted,
        "set_proxy": containerd.uses_proxy,
        "remove_proxy": containerd.has_proxy and not containerd.uses_proxy,
        "purge": containerd.purges,
        "remove_data": not containerd.leaves_data,
    }


def _survey(survey: Mapping[str, Any]) -> ContainerdSurvey:
    return ContainerdSurvey(
        runtimes=tuple(survey.get("runtimes", ())),
        packages=Answer.of(survey.get("packages")),
        found=Found.of(survey.get("found")),
        main=slurped(survey.get("main")),
        plugins=Answer.of(survey.get("plugins")),
        purge=Answer.of(survey.get("purge")),
        tasks=Found.of(survey.get("tasks")),
        is_ours=survey.get("pin", {}).get("exists", False),
        before=installed_before(survey.get("before")),
        programs=Found.of(survey.get("programs")),
        pretends=survey.get("check_mode", False),
    )
