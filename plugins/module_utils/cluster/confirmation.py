# Copyright: kubegpu.autoscale contributors
# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Removals of nodes, drivers and releases are confirmed with the name of the cluster."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .identity import usable_names

VARIABLE = "kubegpu_confirm"


@dataclass(frozen=True)
class Removal:
    """What a run would remove.

    what:       description; hosts: servers, by their names in the inventory.
    recorded:   cluster names recorded on the servers and in the cluster; uids: of their clusters.
    candidates: names for a cluster without a recorded one, the first one first.
    at:         address of its API server; empty if unknown.
    whole:      all servers of the cluster are included.
    """

    what: str
    hosts: Sequence[str]
    recorded: Sequence[str] = ()
    uids: Sequence[str] = ()
    candidates: Sequence[str] = ()
    at: str = ""
    whole: bool = False

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Removal:
        keys = ("hosts", "recorded", "uids", "candidates")
        texts = {key: [str(text) for text in request.get(key) or () if text] for key in keys}
        return cls(request["what"], **texts, at=request.get("at") or "", whole=bool(request.get("whole")))

    @property
    def cluster(self) -> str:
        return next(iter((*self.recorded, *usable_names(self.candidates))), "")

    def __str__(self) -> str:
        whole = ", all of the cluster and its data" if self.whole else ""
        address = f" at {self.at}" if self.at else ""
        return f"{self.what}{whole}: cluster {self.cluster}{address}, servers {', '.join(self.hosts) or '(none)'}"


def command(
    playbooks: Sequence[str], inventories: Sequence[str], limit: str, settings: Mapping[str, Any], cluster: str
) -> str:
    """The command that confirms the removal. It contains only the variables that request it: others may be secrets."""
    words = ["ansible-playbook"]
    words += [word for inventory in inventories for word in ("-i", inventory)]
    words += playbooks
    words += ["--limit", limit] if limit else []
    for name, value in (*settings.items(), (VARIABLE, cluster)):
        words += ["-e", f"{name}={value}"]
    return shlex.join(words)


def prompt(removal: Removal) -> str:
    return f"This would remove {removal}. Type the name of the cluster to continue"


def refusal(removal: Removal, given: str, confirming: str) -> str:
    """Why the removal is not allowed; empty if it is confirmed. `confirming` is the command that confirms it."""
    names, uids = sorted(set(removal.recorded)), sorted(set(removal.uids))
    if len(clusters := names if len(names) > 1 else uids) > 1:
        return (
            f"This would remove {removal.what} of several clusters: {', '.join(clusters)} "
            f"(servers {', '.join(removal.hosts)}). Nothing was changed. "
            "Next: use --limit to name the servers of one cluster."
        )
    if given == removal.cluster and given:
        return ""
    seen = f"{VARIABLE} is {given}, which is another cluster. " if given else ""
    return (
        f"{seen}This would remove {removal}. Nothing was changed. Next, if that is meant: `{confirming}`; "
        "to see what it would do, add --check."
    )
