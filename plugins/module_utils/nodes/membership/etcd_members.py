# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Members of etcd, and whether they keep their majority without some of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Member:
    """A member of etcd. Its name is that of its node; one that has never started has none.

    address: of its client URL; empty if it has never started.
    answers: its health endpoint returned something. is_healthy: it is part of the majority.
    """

    id: str
    name: str
    address: str
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
            address=_host(next(iter(entry.get("clientURLs") or ()), "")),
            is_learner=bool(entry.get("isLearner")),
            answers=answers.get(str(entry["ID"]), {}).get("status", -1) > 0,
            is_healthy=_is_healthy(answers.get(str(entry["ID"]), {}).get("content") or ""),
        )
        for entry in listed.get("members") or ()
    ]


def _host(url: str) -> str:
    """Without scheme, port and the brackets of IPv6."""
    return re.sub(r"^https?://|:[0-9]+/?$|[\[\]]", "", url)


def _is_healthy(content: str) -> bool:
    """By the text of /health: `{"health": "true"}`, which etcd writes as text/plain."""
    try:
        return str(json.loads(content)["health"]).lower() == "true"
    except (KeyError, TypeError, ValueError):
        return False


def majority_loss(members: Sequence[Member], leaving: Iterable[str]) -> str:
    """How etcd would lose its majority without these; empty if a majority of started ones remains each time."""
    names = set(leaving)
    voters = [member for member in members if not member.is_learner]
    going = sorted((member for member in voters if member.name in names), key=lambda member: member.is_healthy)
    if not going:
        return ""
    if not _has_majority(voters):
        return f"has lost its majority: {_counted(voters)}"
    remaining = list(voters)
    for member in going:
        remaining.remove(member)
        if remaining and not _has_majority(remaining):
            return f"would lose its majority without {member.name}: {_counted(remaining)}"
    if not remaining:
        return f"would lose its last members: {', '.join(member.name for member in going)}"
    return ""


def _has_majority(voters: Sequence[Member]) -> bool:
    return sum(member.is_healthy for member in voters) > len(voters) // 2


def _counted(voters: Sequence[Member]) -> str:
    silent = [member.name or "(never started)" for member in voters if not member.is_healthy]
    return f"{len(voters) - len(silent)} of {len(voters)} members are healthy, {', '.join(silent)} not"
