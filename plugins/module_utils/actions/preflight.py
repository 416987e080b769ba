# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks before a change, on the state that the change would lead to."""

from __future__ import annotations

from collections.abc import Sequence

from ..chain.checks import device_plugin, hpa_metrics, labels, metrics_api, prometheus, workload, workload_pods
from ..chain.checks import preflight as before
from ..chain.checks import preflight_keda as before_keda
from ..chain.checks import preflight_zero as before_zero
from ..chain.state.cluster import State
from ..diagnosis.check import Check, CheckResult, checks_in
from ..diagnosis.findings import Finding, results_of
from ..errors import first_of_all
from ..hops import Hop

_CHECKS: tuple[Check[State], ...] = tuple(
    check
    for check in checks_in(
        *(before, before_keda, before_zero, device_plugin, workload_pods, workload),
        *(prometheus, labels, metrics_api, hpa_metrics),
    )
    if check.is_asked_before
)


def preflight(state: State, *, dry_run: bool) -> list[str]:
    """Returns the warnings. Raises: HopError with all failed checks.

    state: the state that the change would lead to.
    """
    results = [result for result in results_of(_CHECKS, state) if result.type.before]
    refusing = {"refuse"} if dry_run else {"refuse", "await"}
    findings = _together(results)
    if refusals := [finding for finding in findings if finding.type.before in refusing]:
        raise first_of_all([finding.error() for finding in refusals])
    return [str(finding) for finding in findings]


def _together(results: Sequence[CheckResult]) -> list[Finding]:
    """Equal results for several objects become one finding; from left to right."""
    findings: dict[tuple[str, str], Finding] = {}
    for result in results:
        findings.setdefault((result.type.id, result.seen), Finding([])).results.append(result)
    return sorted(findings.values(), key=lambda finding: list(Hop).index(finding.type.hop))
