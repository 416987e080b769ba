# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The state of a pod of the proof."""

from __future__ import annotations

import re

from ..kube.objects import Manifest, condition, statuses

_ENDED = ("Succeeded", "Failed")
# The scheduler's message for a full node.
_NO_ROOM = re.compile(r"Insufficient [\w./-]*\w|Too many pods")


def has_ended(pod: Manifest | None) -> bool:
    return pod is not None and (pod.get("status") or {}).get("phase", "Unknown") in _ENDED


def missing_room(pod: Manifest) -> str:
    """The resource that the scheduler finds too little of on the node; empty if none."""
    found = _NO_ROOM.search(str(condition(pod, "PodScheduled").get("message") or ""))
    return found[0] if found else ""


def is_displaced(pod: Manifest) -> bool:
    """Whether the pod was preempted or evicted; a pod that failed by itself has no such condition."""
    return condition(pod, "DisruptionTarget").get("status") == "True"


def message(pod: Manifest) -> str:
    """The container's termination message; without one, why the kubelet ended or rejected the pod."""
    ended = [(status.get("state") or {}).get("terminated") or {} for status in statuses(pod)]
    status = pod.get("status") or {}
    reported = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
    return next((str(end["message"]) for end in ended if end.get("message")), reported)
