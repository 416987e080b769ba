# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Creates the doctor's report, which docs/doctor/report.schema.json defines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from ..diagnosis.check import ALL, Check
from ..diagnosis.findings import Finding, first_causes, results_of
from ..formats.times import timestamp
from ..hops import CHAIN, ORDER, SERVER_TITLES, TITLES, Hop
from .checks import servers
from .checks.access import CLUSTER_MISSING, CLUSTER_UNREACHABLE, RIGHTS_MISSING
from .checks.registry import CHECKS, HOPS
from .state.autoscaler import AutoscalerState
from .state.cluster import State

SCHEMA = "kubegpu.autoscale/doctor/v1"
# Optional inputs: checks that need them are not missing.
_OPTIONAL = {"facts"}


def findings_of(state: State, *, grace: bool = True) -> list[Finding]:
    """Findings of all possible checks, errors first, then from left to right."""
    findings = first_causes(chain(servers.results_on_servers(state), results_of(CHECKS, state)), grace=grace)
    return sorted(findings, key=lambda finding: (finding.type.severity != "error", ORDER.index(finding.type.hop)))


def health_report(state: State, *, grace: bool = True, duration_s: float = 0) -> dict[str, Any]:
    findings = findings_of(state, grace=grace)
    of_servers = servers.reported_hops(state)
    walked = [*of_servers, *CHAIN]
    hops = {hop: _hop(hop, findings, state) for hop in (Hop.ACCESS, *walked)}
    proven = frozenset(hop for autoscaler in state.autoscalers for hop in autoscaler.proven_hops)
    unchecked = [
        hop
        for hop in walked
        if _is_partly_checked(hop, state) or (hops[hop]["status"] == "unknown" and hop not in proven)
    ]
    return {
        "schema": SCHEMA,
        "generated_at": timestamp(state.now_s),
        "duration_s": duration_s,
        "cluster": {
            "reached": state.no_cluster is None,
            "context": state.place.context,
            "server": state.place.server,
            "server_version": state.server_version,
            "nodes": len(state.nodes),
            "gpu_nodes": len(state.gpu_nodes),
        },
        "scope": {"namespace": state.scope.namespace, "name": state.scope.name},
        "servers": [{"name": server.name, "node": server.node, "status": server.status} for server in state.servers],
        "verdict": _verdict(findings, [hops[hop]["status"] for hop in walked], unchecked),
        "unchecked_hops": [str(hop) for hop in unchecked],
        "hops": list(hops.values()),
        "findings": [finding.describe(state.now_s) for finding in findings],
        "not_checked": [
            {
                "check": check.name,
                "hop": str(check.hop),
                "reason": "; ".join(dict.fromkeys(obstacles)),
                "finding": _finding_that_explains(check, state),
            }
            for check in CHECKS
            if (obstacles := check.obstacles(state))
        ],
        "autoscalers": [
            {**_autoscaler(autoscaler), "unproven": why} for autoscaler, why in _why_unproven(state, findings)
        ],
    }


def _why_unproven(state: State, findings: Sequence[Finding]) -> Iterator[tuple[AutoscalerState, str]]:
    """Each autoscaler with the cause that it is not proven; empty if it is, or is at zero as its HPA decided.

    The first error to its left counts, also one in its grace period, which is no finding yet.
    """
    unproven = [one for one in state.autoscalers if not one.is_proven and not one.is_meant_to_be_at_zero]
    young = findings_of(state, grace=False) if unproven else []
    causes = [finding for finding in (*findings, *young) if finding.type.severity == "error"]
    for autoscaler in state.autoscalers:
        affecting = {ALL, f"autoscaler {autoscaler}"}
        results = (result for finding in causes for result in finding.results if affecting & result.affected)
        first = next(results, None)
        why = first.cause if first else _unseen(autoscaler)
        yield autoscaler, why if any(autoscaler is one for one in unproven) else ""


def _unseen(autoscaler: AutoscalerState) -> str:
    if not autoscaler.ready_pods:
        return "it has no ready pod yet"
    return "its HPA has not shown a value yet" if autoscaler.metrics else "it has no metric of the chain"


def _verdict(findings: Sequence[Finding], statuses: Sequence[str], unchecked: Sequence[Hop]) -> str:
    """unchecked: also hops without objects that no proven autoscaler depends on."""
    severities = {finding.type.severity for finding in findings}
    if "error" in severities:
        return "broken"
    if set(statuses) == {"unknown"}:
        return "unknown"
    return "partial" if unchecked else "warning" if severities else "ok"


def _is_partly_checked(hop: Hop, state: State) -> bool:
    if hop in SERVER_TITLES:
        return not all(server.is_examined for server in state.servers)
    needs = {need for check in CHECKS if check.hop == hop for need in check.needs}
    return bool(needs & state.unavailable.keys() - _OPTIONAL)


def _finding_that_explains(check: Check[State], state: State) -> str | None:
    """ID of the finding that reports why a check could not run."""
    if state.no_cluster:
        return (CLUSTER_MISSING if state.no_cluster.is_missing else CLUSTER_UNREACHABLE).id
    return RIGHTS_MISSING.id if _lacks_only_rights(check, state) else None


def _lacks_only_rights(check: Check[State], state: State) -> bool:
    missing = (set(check.needs) & state.unavailable.keys()) - _OPTIONAL
    return bool(missing) and state.denied.keys() >= missing


def _hop(hop: Hop, findings: Sequence[Finding], state: State) -> dict[str, str]:
    of_hop = [finding for finding in findings if finding.type.hop == hop]
    errors = [finding for finding in of_hop if finding.type.severity == "error"]
    consequences = [result for finding in findings for result in finding.consequences if result.type.hop == hop]
    obstacles = [check.obstacles(state) for check in CHECKS if check.hop == hop]
    needs = dict.fromkeys(need for check in CHECKS if check.hop == hop for need in check.needs)
    reasons = [state.unavailable[need] for need in needs if need in state.unavailable and need not in _OPTIONAL]
    if errors:
        status, summary = "broken", _summary(errors)
    elif consequences:
        status, summary = "consequence", consequences[0].seen
    elif hop in SERVER_TITLES:
        status, summary = ("warning", _summary(of_hop)) if of_hop else servers.unjudged(hop, state)
    elif all(obstacles):
        status, summary = "unknown", obstacles[0][0]
    elif of_hop:
        status, summary = "warning", _summary(of_hop)
    elif nothing := HOPS[hop].nothing(state):
        status, summary = "unknown", ": ".join([nothing, *reasons[:1]])
    elif _is_partly_checked(hop, state):
        made = sum(not obstacle for obstacle in obstacles)
        status, summary = "partial", f"{made} of {len(obstacles)} checks ran: {reasons[0]}"
    else:
        status, summary = "ok", HOPS[hop].summary(state)
    return {"id": str(hop), "title": (TITLES | SERVER_TITLES)[hop], "status": status, "summary": summary}


def _summary(findings: Sequence[Finding]) -> str:
    first = findings[0].results[0]
    rest = sum(len(finding.results) for finding in findings) - 1
    return f"{first.object}: {first.seen}" + (f" and {rest} more" if rest else "")


def _autoscaler(autoscaler: AutoscalerState) -> dict[str, Any]:
    status, spec = autoscaler.hpa.get("status") or {}, autoscaler.hpa["spec"]
    metric = autoscaler.metrics[0] if autoscaler.metrics else None
    return {
        "namespace": autoscaler.key[0],
        "name": autoscaler.key[1],
        "target": {"kind": autoscaler.reference.get("kind", "Deployment"), "name": autoscaler.reference["name"]},
        "metric": metric.name if metric else "",
        "target_value": metric.target_value if metric else None,
        "unit": metric.unit if metric else "",
        "min_replicas": spec.get("minReplicas", 1),
        "max_replicas": spec["maxReplicas"],
        "replicas": status.get("currentReplicas") if autoscaler.replicas is None else autoscaler.replicas,
        "desired_replicas": status.get("desiredReplicas"),
        "verified": autoscaler.is_proven,
        "budget": autoscaler.budget,
        "history": autoscaler.history,
        **({"revisions": autoscaler.revisions} if autoscaler.revisions else {}),
    }
