# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which nodes and members of etcd may be removed. Etcd keeps its majority, and a node that works is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Member:
    """A member of etcd. Its name is that of its node; one that has never started has none.

    answers: its health endpoint returned something. is_healthy: it is part of the majority.
    """

    id: str
    name: str
    is_learner: bool
    answers: bool
    is_healthy: bool


def members_of(listed: Mapping[str, Any], health: Iterable[Mapping[str, Any]]) -> list[Member]:
    """By etcd's member list, and one result of ansible.builtin.uri for each member that was queried."""
    answers = {str(result["item"]["ID"]): result for result in health if result.get("item")}
    return [
        Member(
            id=str(entry["ID"]),
            name=entry.get("name", ""),
            is_learner=bool(entry.get("isLearner")),
            answers=answers.get(str(entry["ID"]), {}).get("status", -1) > 0,
            is_healthy=_is_healthy(answers.get(str(entry["ID"]), {}).get("content") or ""),
        )
        for entry in listed.get("members") or ()
    ]


def _is_healthy(content: str) -> bool:
    """By the text of /health: `{"health": "true"}`, which etcd writes as text/plain."""
    try:
        return str(json.loads(content)["health"]).lower() == "true"
    except (KeyError, TypeError, ValueError):
        return False


def majority_refusals(members: Sequence[Member], leaving: Iterable[str]) -> list[str]:
    """Why etcd cannot do without these members; empty if a majority of started ones remains after each removal."""
    names = set(leaving)
    voters = [member for member in members if not member.is_learner]
    going = sorted((member for member in voters if member.name in names), key=lambda member: member.is_healthy)
    if not going:
        return []
    if not _has_majority(voters):
        return [f"etcd has lost its majority: {_counted(voters)}. {_NEXT}"]
    remaining = list(voters)
    for member in going:
        remaining.remove(member)
        if remaining and not _has_majority(remaining):
            return [f"without {member.name} etcd would lose its majority: {_counted(remaining)}. {_NEXT}"]
    if not remaining:
        return [f"{', '.join(member.name for member in going)} would be the last of etcd's members. {_NEXT}"]
    return []


_NEXT = (
    "Nothing was changed in the cluster. "
    "Next: start the members that do not answer (`journalctl -u kubelet` on them), then run this again."
)


def _has_majority(voters: Sequence[Member]) -> bool:
    return sum(member.is_healthy for member in voters) > len(voters) // 2


def _counted(voters: Sequence[Member]) -> str:
    silent = [member.name or "(never started)" for member in voters if not member.is_healthy]
    return f"{len(voters) - len(silent)} of {len(voters)} members are healthy, {', '.join(silent)} not"


def departures(
    nodes: Sequence[Mapping[str, Any]],
    members: Sequence[Member],
    lost: Sequence[str],
    returned: Sequence[str],
    in_play: Mapping[str, str],
) -> dict[str, Any]:
    """What is removed for nodes that are gone: members of etcd, nodes; or why nothing may be removed.

    lost:     names that the user gives; returned: control planes that are bare again.
    in_play:  hosts of the run by the name of their node.
    """
    refused = [text for name in lost for text in _signs_of_life(name, nodes, members, in_play)]
    gone = {*lost, *returned}
    if not refused:
        refused = majority_refusals(members, gone)
    there = [node["metadata"]["name"] for node in nodes if node["metadata"]["name"] in gone]
    return {
        "refused": refused,
        "members": []
        if refused
        else [{"ID": member.id, "name": member.name} for member in members if member.name in gone],
        "nodes": [] if refused else sorted(there),
        "confirmed_by_name": sorted({*there, *(member.name for member in members)} & set(lost)),
    }


def _signs_of_life(
    name: str, nodes: Sequence[Mapping[str, Any]], members: Sequence[Member], in_play: Mapping[str, str]
) -> Iterable[str]:
    kept = f"Nothing was changed. Next: remove {name} from kubernetes_lost_nodes"
    if name in in_play:
        yield (
            f"kubernetes_lost_nodes has {name}, which is the node of {in_play[name]} in this run. {kept}; "
            "a server that comes back under its name is not lost."
        )
    elif any(node["metadata"]["name"] == name and _is_ready(node) for node in nodes):
        yield (
            f"kubernetes_lost_nodes has {name}, and that node is Ready. {kept}; to remove a node that works: "
            f"`ansible-playbook kubegpu.autoscale.cluster --limit {name} -e kubernetes_state=absent`."
        )
    elif any(member.name == name and member.answers for member in members):
        yield (
            f"kubernetes_lost_nodes has {name}, and its member of etcd answers. {kept}; "
            f"or turn that server off first, and check with `kubectl get node {name}`."
        )


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
