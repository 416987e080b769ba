# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan of the role nvidia_container_toolkit, from its options and what was read on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...hops import Hop
from ..findings import errors, findings, warnings
from ..survey.gpu_facts import GpuFacts
from ..survey.host import Host
from ..survey.program_output import Answer
from .checks import AFTER, BEFORE, NOW
from .decisions import RUNTIME, Toolkit, ToolkitOptions, ToolkitSurvey

OPTIONS: dict[str, Any] = {
    "state": {"type": "str", "required": True, "choices": ["present", "absent"]},
    "version": {"type": "str", "default": ""},
    "versions": {"type": "dict", "required": True},
    "runtimes": {"type": "list", "elements": "str", "required": True, "choices": ["containerd"]},
    "default_runtime": {"type": "bool", "required": True},
    "systemd_cgroup": {"type": "bool", "required": True},
    "verify_container": {"type": "bool", "required": True},
    "upgrade_ok": {"type": "bool", "default": False},
}
_RESULT = {"type": "dict", "default": {}}
SURVEY: dict[str, Any] = {
    "gpu_facts": _RESULT,
    "installed": _RESULT,
    "spec": _RESULT,
    "devices": _RESULT,
    "modes": _RESULT,
    "listed": _RESULT,
    "shown": _RESULT,
}
TOOLKIT: dict[str, Any] = {
    "options": {"type": "dict", "required": True, "options": OPTIONS},
    "survey": {"type": "dict", "required": True, "options": SURVEY},
}


def toolkit_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as TOOLKIT has them."""
    given, read = params["options"], params["survey"]
    toolkit = Toolkit(host, ToolkitOptions(**{**given, "runtimes": tuple(given["runtimes"])}), _survey(read))
    apt = toolkit.apt.describe()
    return {
        "refused": errors(BEFORE, toolkit),
        "broken": errors(AFTER, toolkit),
        "notices": warnings(AFTER, toolkit),
        "hop": str(Hop.RUNTIME),
        "findings": findings(host, BEFORE + NOW, toolkit),
        "packages": {"apt": apt, "sources": [apt] if toolkit.is_wanted else []},
        "drop_in": toolkit.drop_in,
        "runtime": RUNTIME,
        "steps": _steps(toolkit),
        "driver": toolkit.driver,
    }


def _steps(toolkit: Toolkit) -> dict[str, bool]:
    return {
        "install": toolkit.is_wanted,
        "upgrade": toolkit.is_wanted and toolkit.is_upgraded,
        "remove": toolkit.options.state == "absent",
        "offer_devices": toolkit.is_wanted and toolkit.facts.can_be_used,
        "read_modes": toolkit.reads_modes,
        "read_modes_again": toolkit.offered != toolkit.expected,
        "write_spec": toolkit.writes_spec,
        "run_container": toolkit.runs_container,
    }


def _survey(read: Mapping[str, Any]) -> ToolkitSurvey:
    return ToolkitSurvey(
        facts=GpuFacts.of(read["gpu_facts"]),
        installed=Answer.of(read["installed"]),
        has_spec=read["spec"].get("matched", 0) > 0,
        devices=Answer.of(read["devices"]),
        modes=Answer.of(read["modes"]),
        listed=Answer.of(read["listed"]),
        shown=read["shown"].get("result"),
    )
