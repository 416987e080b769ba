# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..chain.checks.registry import CHECKS
from ..chain.health_report import health_report
from ..chain.state.cluster import Place, Scope, State
from ..chain.state.servers import ExaminedServer, NoCluster
from ..cluster.kube import KubeClient
from ..cluster.prometheus_client import PrometheusClient
from ..errors import HopError, enumeration
from ..hops import Hop
from ..reading.doctor_reader import DoctorReader
from .outcome import Outcome

# Verdicts that fail the module, by the option fail_on.
FAILS_ON = {
    "error": {"broken", "unknown"},
    "warning": {"broken", "unknown", "partial", "warning"},
    "never": frozenset(),
}
_NOWHERE = Place()


def examine(
    kube: KubeClient,
    prometheus: PrometheusClient,
    *,
    scope: Scope,
    facts: Mapping[str, Mapping[str, Any]],
    history_s: int,
    grace: bool,
    fail_on: str,
    place: Place = _NOWHERE,
    servers: Sequence[ExaminedServer] = (),
) -> Outcome:
    """Read and check the chain, without changing anything.

    grace: ignore conditions that are so young that they may be temporary.
    servers: examined servers of the inventory.
    Raises: ApiError, HopError if the cluster cannot be reached, or if the client has no login.
    """
    started_s = time.monotonic()
    reader = DoctorReader(kube, prometheus, scope=scope, facts=facts, history_s=history_s, place=place)
    report = health_report(replace(reader.state(), servers=servers), grace=grace)
    report["duration_s"] = round(time.monotonic() - started_s, 3)
    return _judged(report, fail_on)


def examine_servers(
    servers: Sequence[ExaminedServer],
    gap: NoCluster,
    *,
    scope: Scope,
    facts: Mapping[str, Mapping[str, Any]],
    fail_on: str,
    place: Place = _NOWHERE,
) -> Outcome:
    """Check only servers, because no cluster could be read."""
    needs = {need for check in CHECKS for need in check.needs}
    state = State(
        time.time(),
        scope=scope,
        facts=facts,
        servers=servers,
        no_cluster=gap,
        unavailable={need: "no cluster was read" for need in needs if need != "facts" or not facts},
        place=place,
    )
    return _judged(health_report(state), fail_on)


def _judged(report: dict[str, Any], fail_on: str) -> Outcome:
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
        if report["verdict"] in ("partial", "unknown"):
            outcome.errors.append(_unchecked(report))
    return outcome


def _unchecked(report: Mapping[str, Any]) -> HopError:
    """The error of a verdict with too many unknown hops."""
    hops = [hop for hop in report["hops"] if hop["id"] in report["unchecked_hops"]]
    seen = f"{enumeration([hop['title'] for hop in hops])} could not be checked: {hops[0]['summary']}"
    return HopError(Hop.ACCESS, seen, fix="see not_checked of the report; docs/doctor/rights.yml has all rights")
