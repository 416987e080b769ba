"""What is in a cluster, so that two looks at it can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# What changes by itself, or belongs to the API server.
PASSING = ("events", "leases", "endpoints", "endpointslices", "componentstatuses", "flowschemas", "ipaddresses")
# On what the API server makes of a CRD.
AUTOMATIC = "kube-aggregator.kubernetes.io/automanaged"
# Who makes objects of its own accord, and replaces them.
CONTROLLERS = ("CronJob", "DaemonSet", "Deployment", "Job", "Node", "ReplicaSet", "StatefulSet")


def objects_of(get: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Every object that a client created, by title. get: returns the JSON at a path of the API."""
    groups = get("/apis")["groups"]
    versions = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    found = {}
    for version in versions:
        if "metrics.k8s.io" in version:
            continue
        for kind in get(version)["resources"]:
            if "list" in kind["verbs"] and "/" not in kind["name"] and kind["name"] not in PASSING:
                for item in get(f"{version}/{kind['name']}")["items"]:
                    metadata = item["metadata"]
                    owners = [owner["kind"] for owner in metadata.get("ownerReferences", []) if owner.get("controller")]
                    if not set(owners) & set(CONTROLLERS) and AUTOMATIC not in metadata.get("labels", {}):
                        found[f"{kind['name']} {metadata.get('namespace', '')}/{metadata['name']}"] = item
    return found


def as_written(found: dict[str, Any]) -> dict[str, Any]:
    """The objects without what controllers of a running cluster write.

    The generation says of one with a status that nobody has written its spec, not even twice. One without is the same
    to the byte.
    """
    return {title: _as_written(item) for title, item in found.items()}


def _as_written(item: dict[str, Any]) -> dict[str, Any]:
    if "status" not in item and not item["metadata"].get("ownerReferences"):
        return item
    passing = ("managedFields", "resourceVersion")
    metadata = {name: value for name, value in item["metadata"].items() if name not in passing}
    return {**item, "status": None, "metadata": metadata}
