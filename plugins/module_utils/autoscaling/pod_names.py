# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the pods of a workload are called. The series of pods that are gone have nothing else."""

from __future__ import annotations

from .promql import literal

# Random letters have no vowels. Source: kubernetes/apimachinery pkg/util/rand. The first part of a Deployment's has a
# letter for each digit of a number below 2^32: one of 400,000 has less than five. A Job that is called
# <Deployment>-v2 has pods of that form but for the length.
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_OF_DEPLOYMENTS = f"{_RANDOM}{{5,10}}-{_RANDOM}{{5}}"
_ENDS = {"Deployment": _OF_DEPLOYMENTS, "Rollout": _OF_DEPLOYMENTS, "ReplicaSet": f"{_RANDOM}{{5}}"}
# Of a LeaderWorkerSet that is the leaders, which are all that an HPA sees.
_NUMBERED = "[0-9]+"
# Longer names of a Deployment are cut in its pods' names. Source: pkg/storage/names.
LONGEST_NAME = 46


def pod_names(kind: str, name: str) -> str:
    """Regular expression of what the pods of a workload are called."""
    return f"{literal(name)}-{ends(kind)}"


def are_cut(kind: str, name: str) -> bool:
    """Whether pods may have names that leave out a part of their workload's and of its revision's."""
    return _ENDS.get(kind) == _OF_DEPLOYMENTS and len(name) > LONGEST_NAME


def ends(kind: str) -> str:
    """Regular expression of what follows the workload's name and a dash."""
    return _ENDS.get(kind, _NUMBERED)
