# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plans for Docker: for the role docker, and for the settings of nvidia_container_toolkit in daemon.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hops import Hop
from .answers import Answer
from .checks.docker import AFTER, BEFORE, DAEMON
from .docker import Docker, DockerOptions, DockerSurvey
from .docker_daemon import Daemon, DaemonOptions, DaemonSurvey
from .files import slurped
from .findings import findings
from .gpu_facts import GpuFacts
from .host import Host
from .sentences import errors

_RESULT = {"type": "dict", "default": {}}
_NAMES = {"type": "list", "elements": "str", "default": []}
OPTIONS: dict[str, Any] = {
    "state": {"type": "str", "required": True, "choices": ["present", "existing", "absent"]},
    "version": {"type": "str", "default": ""},
    "versions": {"type": "dict", "required": True},
    "verify_container": {"type": "bool", "required": True},
}
SURVEY: dict[str, Any] = {
    "gpu_facts": _RESULT,
    "packages": _RESULT,
    "source": _RESULT,
    "shown": _RESULT,
    "runtimes": _NAMES,
    "operator_roles": _NAMES,
}
DOCKER: dict[str, Any] = {
    "options": {"type": "dict", "required": True, "options": OPTIONS},
    "survey": {"type": "dict", "required": True, "options": SURVEY},
}
DAEMON_OPTIONS: dict[str, Any] = {
    "state": {"type": "str", "required": True, "choices": ["present", "absent"]},
    "default_runtime": {"type": "bool", "required": True},
    "path": {"type": "str", "required": True},
}
DAEMON_SURVEY: dict[str, Any] = {
    "file": _RESULT,
    "text": _RESULT,
    "has_docker": {"type": "bool", "default": False},
    "runs": {"type": "bool", "default": False},
}
DOCKER_DAEMON: dict[str, Any] = {
    "options": {"type": "dict", "required": True, "options": DAEMON_OPTIONS},
    "survey": {"type": "dict", "required": True, "options": DAEMON_SURVEY},
}


def docker_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as DOCKER has them."""
    read = params["survey"]
    survey = DockerSurvey(
        facts=GpuFacts.of(read["gpu_facts"]),
        packages=Answer.of(read["packages"]),
        has_source=read["source"].get("exists", False),
        shown=read["shown"].get("result"),
        runtimes=tuple(read["runtimes"]),
        operator_roles=tuple(read["operator_roles"]),
    )
    docker = Docker(host, DockerOptions(**params["options"]), survey)
    apt = docker.apt.describe()
    return {
        "refused": errors(BEFORE, docker),
        "broken": errors(AFTER, docker),
        "notices": [],
        "hop": str(Hop.RUNTIME),
        "findings": findings(host, BEFORE, docker),
        "packages": {"apt": apt, "sources": [apt] if docker.is_wanted else []},
        "files": {},
        "steps": {
            "install": docker.is_wanted,
            "remove": docker.options.state == "absent",
            "run_container": docker.runs_container,
        },
    }


def docker_daemon_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as DOCKER_DAEMON has them."""
    read = params["survey"]
    survey = DaemonSurvey(read["file"], slurped(read["text"]), read["has_docker"], read["runs"])
    daemon = Daemon(host, DaemonOptions(**params["options"]), survey)
    return {
        "refused": errors(DAEMON, daemon),
        "broken": [],
        "notices": [],
        "packages": {},
        "files": {"daemon": daemon.file, "forgetting": daemon.forgetting},
        "forgotten": daemon.forgotten,
        "steps": {
            "make_folder": daemon.writes and not daemon.is_there,
            "forget": daemon.forgets,
            "write": daemon.writes,
            "remove": daemon.removes,
        },
    }
