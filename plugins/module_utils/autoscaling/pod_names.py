# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Names of a workload's pods. The series of deleted pods have no other identification."""

from __future__ import annotations

from .promql import literal

# Random letters have no vowels. Source: kubernetes/apimachinery pkg/util/rand. The first part of a Deployment's has a
# letter for each digit of a number below 2^32: one of 400,000 has less than five. A Job that is called
# <Deployment>-v2 has pods of that form but for the length.
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_OF_DEPLOYMENTS = f"{_RANDOM}{{5,10}}-{_RANDOM}{{5}}"
_ENDS = {"Deployment": _OF_DEPLOYMENTS, "Rollout": _OF_DEPLOYMENTS, "ReplicaSet": f"{_RANDOM}{{5}}"}
# For a LeaderWorkerSet these are the leaders, which are all that an HPA sees.
_NUMBERED = "[0-9]+"
# Longer names of Deployments are truncated in pod names. Source: pkg/storage/names.
LONGEST_NAME = 46


def pod_names(kind: str, name: str) -> str:
    """Regular expression of the names of a workload's pods."""
    return f"{literal(name)}-{ends(kind)}"


def are_cut(kind: str, name: str) -> bool:
    """Whether pod names may be truncated, so that they lack a part of the workload's name."""
    return _ENDS.get(kind) == _OF_DEPLOYMENTS and len(name) > LONGEST_NAME


def ends(kind: str) -> str:
    """Regular expression of the suffix after the workload's name and a dash."""
    return _ENDS.get(kind, _NUMBERED)
