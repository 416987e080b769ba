# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..chain.health_report import health_report
from ..chain.state import Scope
from ..cluster.kube import KubeClient
from ..cluster.prometheus import PrometheusClient
from ..errors import HopError
from .capture import capture
from .outcome import Outcome

# The verdicts that fail the module, by its option fail_on.
FAILS_ON = {"error": {"broken"}, "warning": {"broken", "warning"}, "never": frozenset()}


def examine(
    kube: KubeClient,
    prometheus: PrometheusClient,
    *,
    scope: Scope,
    facts: Mapping[str, Mapping[str, Any]],
    history_s: int,
    grace: bool,
    fail_on: str,
) -> Outcome:
    """Read the chain and judge it. Changes nothing.

    grace: leave out conditions that are so young that they may pass by themselves.
    Raises: ApiError, HopError if nothing could be looked at.
    """
    started_s = time.monotonic()
    state = capture(kube, prometheus, scope=scope, facts=facts, history_s=history_s)
    report = health_report(state, grace=grace)
    report["duration_s"] = round(time.monotonic() - started_s, 3)
    outcome = Outcome(result=report)
    if report["verdict"] in FAILS_ON[fail_on]:
        outcome.errors += [
            HopError(
                finding["hop"],
                seen=f"{finding['object']}: {'; '.join(finding['seen'])}",
                fix=finding["fix"],
                cause=finding["cause"],
            )
            for finding in report["findings"]
            if fail_on == "warning" or finding["severity"] == "error"
        ]
    return outcome
