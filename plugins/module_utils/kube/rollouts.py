# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Argo Rollouts: while a new version is tested, the pods of a workload have two revisions. No checks here."""

from __future__ import annotations

from collections.abc import Iterable

from .objects import Manifest, labels_of

STABLE = "stable"
# The controller's label on each pod and on its ReplicaSet.
HASH = "rollouts-pod-template-hash"


def is_rollout(reference: Manifest) -> bool:
    """Whether an HPA's scaleTargetRef is a Rollout."""
    return reference.get("kind") == "Rollout" and (reference.get("apiVersion") or "").startswith("argoproj.io/")


def revisions(rollout: Manifest, pods: Iterable[Manifest]) -> dict[str, list[str]]:
    """Names of the pods of the stable and the new revision; empty if there is only one.

    The name of the new one is that of the strategy: canary, or preview for blueGreen.
    """
    status, strategy = rollout.get("status") or {}, (rollout.get("spec") or {}).get("strategy") or {}
    stable, new = status.get("stableRS"), status.get("currentPodHash")
    if not stable or not new or stable == new:
        return {}
    names = {stable: STABLE, new: "preview" if "blueGreen" in strategy else "canary"}
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    for pod in pods:
        if name := names.get(labels_of(pod).get(HASH, "")):
            found[name].append(pod["metadata"]["name"])
    return {name: sorted(found[name]) for name in found}
