# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
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


def toolkit_plan(options: ToolkitOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, the fact gpu_facts, and results of the tasks that have run."""
    host = Host.of(survey["host"])
    toolkit = Toolkit(host, options, _survey(survey))
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


def _survey(survey: Mapping[str, Any]) -> ToolkitSurvey:
    return ToolkitSurvey(
        facts=GpuFacts.of(survey.get("gpu_facts", {})),
        installed=Answer.of(survey.get("installed")),
        has_spec=survey.get("spec", {}).get("matched", 0) > 0,
        devices=Answer.of(survey.get("devices")),
        modes=Answer.of(survey.get("modes")),
        listed=Answer.of(survey.get("listed")),
        shown=survey.get("shown", {}).get("result"),
        strategy=survey.get("strategy", ""),
    )
