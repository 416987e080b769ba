# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""The phase of a pod, and why a kubelet rejected it."""

from __future__ import annotations

import re

from .objects import Manifest

# The kubelet's reasons to reject a pod that was scheduled to its node: no devices are left for it, or any of them.
NO_DEVICES_LEFT = re.compile(r"UnexpectedAdmissionError|OutOf.+|TopologyAffinityError")
# Source: kubernetes pkg/kubelet/kubelet.go, rejectPod
_REJECTION = "Pod was rejected: "
_REJECTED = re.compile(rf"{NO_DEVICES_LEFT.pattern}|NodeAffinity")


def phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase", "Unknown"))


def has_ended(pod: Manifest) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def was_rejected(pod: Manifest) -> bool:
    """Whether the kubelet rejected the pod after it was scheduled to the node."""
    status = pod.get("status") or {}
    is_said = str(status.get("message")).startswith(_REJECTION) or _REJECTED.fullmatch(status.get("reason") or "")
    return phase(pod) == "Failed" and bool(is_said)
