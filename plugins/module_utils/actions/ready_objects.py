# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
"""Reads several kinds of objects at once, and waits until they are ready: module objects_info."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ..cluster.errors import ApiError
from ..cluster.kube import KubeClient, Resource, title_of
from ..errors import HopError
from ..hops import Hop
from ..kube.objects import Manifest
from .outcome import Outcome
from .wait import Deadline, wait_until

# An entry of the module's option `objects`.
Query = Mapping[str, Any]

_NOT_OBSERVED = "has changes that its controller has not observed yet"
_NEW = "was created, but its controller has not observed it yet"


def read_objects(
    connect: Callable[[], KubeClient], queries: Sequence[Query], wait_s: float, deadline: Deadline, outcome: Outcome
) -> None:
    """The objects of each query in the outcome, once all that are waited for are ready.

    connect: may fail while an API server restarts. wait_s: seconds until the deadline, for the error.
    Raises: HopError if objects are not ready in time. ApiError if nothing is waited for.
    """
    outcome.result = {"objects": [[] for _query in queries], "not_ready": []}
    found, waits = outcome.result["objects"], any(query["wait"] for query in queries)

    def reasons() -> list[str]:
        try:
            return _read(connect(), queries, found)
        except ApiError as err:
            if not waits:
                raise
            return [str(err)]

    outcome.result["not_ready"] = wait_until(reasons, lambda left: not left, deadline)
    if left := outcome.result["not_ready"]:
        raise HopError(
            Hop.API_SERVER,
            seen=f"not ready after {wait_s} s: {'; '.join(left)}",
            fix="kubectl describe the first object, and its pods",
        )


def _read(kube: KubeClient, queries: Sequence[Query], found: list[Sequence[Manifest]]) -> list[str]:
    """Reads into `found` objects that are missing or were not ready; returns why objects are not ready."""
    served = cache(kube.discover)
    reasons: list[str] = []
    for number, query in enumerate(queries):
        if found[number] and not not_ready(query, found[number]):
            continue
        resource = served(query["api_version"]).get(query["kind"])
        found[number] = _objects(kube, resource, query) if resource else []
        reasons += not_ready(query, found[number])
    return reasons


def _objects(kube: KubeClient, resource: Resource, query: Query) -> list[Manifest]:
    name, labels = query["name"], ",".join(query["label_selectors"])
    if name and not labels:  # the permission to get it is enough
        live = kube.get(resource, name, query["namespace"])
        return [live] if live is not None else []
    by_name = f"metadata.name={name}" if name else None
    found = kube.list(resource, namespace=query["namespace"], label_selector=labels or None, field_selector=by_name)
    named = {"apiVersion": resource.api_version, "kind": resource.kind}  # the API server omits these in lists
    return [{**named, **manifest} for manifest in found or ()]


def not_ready(query: Query, found: Sequence[Manifest]) -> list[str]:
    """One sentence for each object of `query` that is waited for and not ready."""
    if not query["wait"]:
        return []
    if not found:
        name = query["name"] or ",".join(query["label_selectors"])
        return [f"{title_of({'metadata': {**query, 'name': name}}, query['kind']).strip()} is missing"]
    reasons = ((manifest, why_not_ready(manifest)) for manifest in found)
    return [f"{title_of(manifest)} {why}" for manifest, why in reasons if why]


def why_not_ready(seen: Manifest) -> str:
    """Empty if the object is ready, else what is missing."""
    status = seen.get("status") or {}
    if status.get("observedGeneration", seen["metadata"].get("generation")) != seen["metadata"].get("generation"):
        return _NOT_OBSERVED
    return _READY.get(seen["kind"], _condition)(seen, status)


def _replicas(seen: Manifest, status: Manifest) -> str:
    wanted = seen["spec"].get("replicas", 1)
    if "observedGeneration" not in status:
        return _NEW
    if (updated := status.get("updatedReplicas", 0)) != wanted:
        return f"has {updated} of {wanted} replicas updated"
    if (available := status.get("availableReplicas", 0)) != wanted:
        return f"has {available} of {wanted} replicas available"
    return ""


def _pods_on_nodes(_wanted: Manifest, status: Manifest) -> str:
    wanted = status.get("desiredNumberScheduled", 0)
    if "observedGeneration" not in status:
        return _NEW
    if (updated := status.get("updatedNumberScheduled", 0)) != wanted:
        return f"has updated pods on {updated} of {wanted} nodes"
    if (ready := status.get("numberReady", 0)) != wanted:
        return f"has ready pods on {ready} of {wanted} nodes"
    return ""


def _success(_wanted: Manifest, status: Manifest) -> str:
    return "" if status.get("succeeded") else "has not succeeded"


def _condition(seen: Manifest, status: Manifest) -> str:
    conditions = {entry["type"]: entry for entry in status.get("conditions") or []}
    reported = conditions.get("Available") or conditions.get("Ready")
    if reported is None:
        return "has no Ready or Available condition"
    if reported["status"] != "True":
        return f"is not {reported['type']}: {reported.get('message') or reported.get('reason') or 'no reason given'}"
    generation = seen["metadata"].get("generation")
    return "" if reported.get("observedGeneration", generation) == generation else _NOT_OBSERVED


_READY: dict[str, Callable[[Manifest, Manifest], str]] = {
    "DaemonSet": _pods_on_nodes,
    "Deployment": _replicas,
    "Job": _success,
    "StatefulSet": _replicas,
}
