# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plan of the proof that pods of all nodes reach each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..findings import errors
from ..survey.host import Host
from .checks import AFTER
from .decisions import PORT, Peer, Reach, peers


@dataclass(frozen=True)
class ReachOptions:
    cni: str
    wait_timeout: int


def reach_plan(options: ReachOptions, survey: Mapping[str, Any]) -> dict[str, Any]:
    """survey: the host, and results of the tasks that have run.

    An interrupted run may have left pods, so only those of this run count.
    """
    known = survey.get("peers")
    reach = Reach(
        Host.of(survey["host"]),
        cni=options.cni,
        wait_timeout=options.wait_timeout,
        peers=None if known is None else [Peer(**peer) for peer in known],
        has_pod=bool(survey.get("pod")),
        missed=(survey.get("asked", {}).get("result") or {}).get("missed") or {},
        failure=_words(survey.get("failure", {})),
    )
    owner = _object(survey.get("created", {})).get("metadata", {}).get("uid")
    pods = [pod for pod in _items(survey.get("pods", {})) if owner in _owners(pod)]
    return {
        "port": PORT,
        "peers": [asdict(peer) for peer in peers(pods, _items(survey.get("dns", {})))],
        "broken": errors(AFTER, reach),
    }


def _owners(pod: Mapping[str, Any]) -> list[str]:
    return [row["uid"] for row in pod["metadata"].get("ownerReferences") or ()]


def _items(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _object(result).get("items") or []


def _object(result: Mapping[str, Any]) -> dict[str, Any]:
    """What kubectl has printed as JSON; empty if it failed."""
    return dict(json.loads(result.get("stdout") or "{}"))


def _words(failed: Mapping[str, Any]) -> str:
    return str(failed.get("stderr") or failed.get("msg") or "no answer") if failed else ""
