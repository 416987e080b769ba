# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Plan of the proof that pods of all nodes reach each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..findings import errors
from ..survey.host import Host
from .checks import AFTER
from .decisions import PORT, Peer, Reach, peers

_RESULT: dict[str, Any] = {"type": "dict", "default": {}}
REACH: dict[str, Any] = {
    "cni": {"type": "str", "required": True},
    "wait_timeout": {"type": "int", "required": True},
    "created": _RESULT,
    "pods": _RESULT,
    "dns": _RESULT,
    "peers": {"type": "list", "elements": "dict"},
    "pod": {"type": "str", "default": ""},
    "asked": _RESULT,
    "failure": _RESULT,
}


def reach_plan(host: Host, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` are as REACH has them. An interrupted run may have left pods, so only those of this run count."""
    known = None if params["peers"] is None else [Peer(**peer) for peer in params["peers"]]
    reach = Reach(
        host,
        cni=params["cni"],
        wait_timeout=params["wait_timeout"],
        peers=known,
        has_pod=bool(params["pod"]),
        missed=(params["asked"].get("result") or {}).get("missed") or {},
        failure=_words(params["failure"]),
    )
    owner = _object(params["created"]).get("metadata", {}).get("uid")
    pods = [pod for pod in _items(params["pods"]) if owner in _owners(pod)]
    return {
        "port": PORT,
        "peers": [asdict(peer) for peer in peers(pods, _items(params["dns"]))],
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
