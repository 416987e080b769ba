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

_NAMES = {"type": "list", "elements": "str", "required": True}
_TEXT = {"type": "str", "required": True}
OPTIONS: dict[str, Any] = {
    "state": {"type": "str", "required": True, "choices": ["present", "absent"]},
    "version": {"type": "str", "default": ""},
    "versions": {"type": "dict", "required": True},
    "systemd_cgroup": {"type": "bool", "required": True},
    "sandbox_image": _TEXT,
    "mirrored_registries": _NAMES,
    "image_mirror": {"type": "str", "default": ""},
    "proxy": {"type": "str", "default": ""},
    "no_proxy": {"type": "list", "elements": "str", "default": []},
    "upgrade_ok": {"type": "bool", "default": False},
}
PATHS: dict[str, Any] = {
    "config": _TEXT,
    "drop_ins": _TEXT,
    "registries": _TEXT,
    "proxy": _TEXT,
    "socket": _TEXT,
    "pod_network": _TEXT,
    "programs": _NAMES,
    "data": _NAMES,
}
_RESULT = {"type": "dict", "default": {}}
SURVEY: dict[str, Any] = {
    "runtimes": {"type": "list", "elements": "str", "default": []},
    "packages": _RESULT,
    "found": _RESULT,
    "main": _RESULT,
    "plugins": _RESULT,
    "purge": _RESULT,
    "tasks": _RESULT,
    "pin": _RESULT,
    "before": _RESULT,
    "programs": _RESULT,
    "check_mode": {"type": "bool", "default": False},
}
CONTAINERD: dict[str, Any] = {
    "options": {"type": "dict", "required": True, "options": OPTIONS},
    "paths": {"type": "dict", "required": True, "options": PATHS},
    "survey": {"type": "dict", "required": True, "options": SURVEY},
}


def containerd_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as CONTAINERD has them."""
    given = params["options"]
    names = {name: tuple(given[name]) for name in ("mirrored_registries", "no_proxy")}
    containerd = Containerd(
        host, ContainerdOptions(**{**given, **names}), paths_of(params["paths"]), _survey(params["survey"])
    )
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


def _survey(read: Mapping[str, Any]) -> ContainerdSurvey:
    return ContainerdSurvey(
        runtimes=tuple(read["runtimes"]),
        packages=Answer.of(read["packages"]),
        found=Found.of(read["found"]),
        main=slurped(read["main"]),
        plugins=Answer.of(read["plugins"]),
        purge=Answer.of(read["purge"]),
        tasks=Found.of(read["tasks"]),
        is_ours=read["pin"].get("exists", False),
        before=installed_before(read["before"]),
        programs=Found.of(read["programs"]),
        pretends=read["check_mode"],
    )
