# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..chain.checks.registry import CHECKS
from ..chain.findings import report
from ..chain.state import Scope
from ..cluster.kube import KubeClient
from ..cluster.prometheus import PrometheusClient
from ..errors import HopError
from .capture import capture
from .outcome import Outcome

# What a verdict has to be for the module to fail, by its option fail_on.
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

    grace: leave out what is so young that it may pass by itself.
    Raises: ApiError, HopError if nothing could be looked at.
    """
    started = time.monotonic()
    state = capture(kube, prometheus, scope=scope, facts=facts, history_s=history_s)
    found = report(state, CHECKS, grace=grace)
    found["duration_s"] = round(time.monotonic() - started, 3)
    outcome = Outcome(result=found)
    if found["verdict"] in FAILS_ON[fail_on]:
        outcome.errors += [
            HopError(each["hop"], seen=f"{each['object']}: {'; '.join(each['seen'])}", fix=each["fix"])
            for each in found["findings"]
            if fail_on == "warning" or each["severity"] == "error"
        ]
    return outcome
