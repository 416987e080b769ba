# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Checks servers of the inventory: whether they could be examined, and the findings of the roles' plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...diagnosis.check import ALL, SERVER, CheckResult, FindingType, FindingTypes, check
from ...errors import enumeration
from ...hops import SERVER_TITLES, Hop
from ..state.cluster import State
from ..state.nodes import is_up, lost_gpus
from ..state.servers import ExaminedServer, ServerFinding

_SERVER = FindingTypes(Hop.SERVER)

SERVER_UNREACHABLE = _SERVER.error(
    "SERVER_UNREACHABLE",
    cause="Ansible could not connect to the server, so its driver and its container runtime were not examined",
    fix="ansible {name} -m ping, with the same inventory; check that the server runs, its address and the SSH login",
)
SERVER_NOT_EXAMINED = _SERVER.error(
    "SERVER_NOT_EXAMINED",
    cause="a task that reads the server failed, so not all of it was examined",
    fix="follow the message, then run the doctor again with --limit {name},localhost",
)


@check("servers of the inventory can be examined", SERVER_UNREACHABLE, SERVER_NOT_EXAMINED)
def servers(state: State) -> Iterator[CheckResult]:
    for server in state.servers:
        words = {"name": server.name}
        if server.unreachable:
            yield _result(state, server, SERVER_UNREACHABLE, server.unreachable, words)
        elif server.failed:
            yield _result(state, server, SERVER_NOT_EXAMINED, server.failed, words)


def results_on_servers(state: State) -> Iterator[CheckResult]:
    """Findings of the roles' plans, by hop from left to right."""
    found = [(server, finding) for server in state.servers for finding in server.findings]
    for hop in SERVER_TITLES:
        for server, finding in found:
            if finding.hop == hop:
                yield _result(state, server, _type_of(finding), finding.seen)


def reported_hops(state: State) -> list[Hop]:
    """Hops of servers in a report: none without servers, and none that no role examined."""
    examined = {hop for server in state.servers for hop in (Hop.SERVER, *server.hops, *_hops_found(server))}
    return [hop for hop in SERVER_TITLES if hop in examined]


def unjudged(hop: Hop, state: State) -> tuple[str, str]:
    """Status and summary of a hop of servers without a finding."""
    examined = [server for server in state.servers if server.is_examined and hop in (Hop.SERVER, *server.hops)]
    summary = f"{len(examined)} of {len(state.servers)} servers examined: {enumeration([s.name for s in examined])}"
    if not examined:
        return "unknown", "no server could be examined completely"
    return ("ok" if len(examined) == len(state.servers) else "partial"), summary


def _hops_found(server: ExaminedServer) -> Sequence[Hop]:
    return [finding.hop for finding in server.findings]


def _type_of(finding: ServerFinding) -> FindingType:
    """The plan has filled in the texts."""
    return FindingType(
        finding.id,
        finding.hop,
        "error" if finding.severity == "error" else "warning",
        cause=_escaped(finding.cause),
        fix=_escaped(finding.fix),
        is_consequence=finding.is_consequence,
        explained_by=finding.explained_by,
    )


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _result(
    state: State, server: ExaminedServer, finding_type: FindingType, seen: str, words: dict[str, str] | None = None
) -> CheckResult:
    """If a server's node works, an error is only a warning."""
    if _works(state, server.node):
        finding_type = replace(finding_type, severity="warning")
    affected = state.affected_by_nodes([server.node])
    return CheckResult(
        finding_type,
        f"server {server.name}",
        seen,
        # If no node is known to have GPUs, a server does not represent all of them.
        affected=frozenset({SERVER + server.name} | (affected if state.gpu_nodes else affected - {ALL})),
        template_vars=words or {},
    )


def _works(state: State, name: str) -> bool:
    """Whether the node is ready and offers all its GPUs."""
    node = next((node for node in state.nodes if node["metadata"]["name"] == name), None)
    return node is not None and is_up(node) and name not in state.bare_nodes and not lost_gpus(node)
