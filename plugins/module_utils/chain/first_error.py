# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The error of a module whose autoscaler is not proven: the first broken hop."""

from __future__ import annotations

from collections.abc import Sequence

from ..diagnosis.check import ALL
from ..diagnosis.findings import Finding
from ..errors import HopError
from ..hops import REPORTED, Hop
from .state.autoscaler import AutoscalerState


def first_error(autoscaler: AutoscalerState | None, findings: Sequence[Finding]) -> HopError:
    """Why an autoscaler is not proven: its leftmost error. None: its HPA is gone.

    Without a ready pod nothing of the chain is visible, so the workload comes first.
    """
    if autoscaler is None:
        return HopError(Hop.HPA, "its HPA is gone", "run gpu_autoscaler to create it again")
    names = {ALL, f"autoscaler {autoscaler}", *(f"node {node}" for node in autoscaler.nodes)}
    first = Hop.NODE if autoscaler.ready_pods else Hop.WORKLOAD
    for finding in sorted(findings, key=lambda found: (found.type.hop != first, REPORTED.index(found.type.hop))):
        results = [result for result in finding.results if result.affected & names]
        if results and finding.type.severity == "error":
            return Finding(results).error()
    return HopError(Hop.HPA, "all hops work now, but only after wait_timeout", "raise wait_timeout")
