# GNU General Public License v3.0+ (see LICENSE). Private to this collection: may change at any time.
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..cluster.errors import ApiError
from ..cluster.kube import NAMESPACES, KubeClient, Resource, group_path
from ..cluster.parallel import all_in_parallel
from ..errors import HopError
from ..hops import Hop
from ..kube.labels import is_of, marked
from ..kube.objects import Manifest
from .outcome import Outcome
from .wait import Deadline, wait_until

# Objects that the control plane itself creates in every namespace, or for objects in it.
BY_ITSELF = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
KINDS_BY_ITSELF = {"Endpoints", "EndpointSlice", "Event", "Lease"}


def make_namespace(kube: KubeClient, name: str, inventory: str) -> Outcome:
    """Create a namespace. An existing one is not changed."""
    if kube.get(NAMESPACES, name) is not None:
        return _outcome(name, "unchanged")
    kube.apply(NAMESPACES, marked({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, inventory))
    return _outcome(name, "created")


def remove_namespace(kube: KubeClient, name: str, inventory: str, deadline: Deadline) -> Outcome:
    """Remove a namespace of this inventory if it is empty, and wait until it is deleted.

    Raises: HopError if it is not deleted in time, ApiError.
    """
    live = kube.get(NAMESPACES, name)
    if live is None:
        return _outcome(name, "unchanged")
    if not is_of(live, inventory):
        return _outcome(name, "kept")
    if holds := _titles_in(kube, name):
        return _outcome(name, "kept", holds)
    kube.delete(NAMESPACES, live, partial(is_of, inventory=inventory))
    gone = kube.dry_run or wait_until(lambda: kube.get(NAMESPACES, name) is None, bool, deadline, poll_s=0.5)
    if not gone:
        fix = f"kubectl get namespace {name} --output=yaml, whose status shows what blocks the deletion"
        raise HopError(Hop.API_SERVER, seen=f"namespace {name} is still being deleted after the timeout", fix=fix)
    return _outcome(name, "deleted")


def _outcome(name: str, action: str, holds: Sequence[str] = ()) -> Outcome:
    result = {"name": name, "action": action, "holds": list(holds)}
    return Outcome(changed=action in ("created", "deleted"), result=result)


def _titles_in(kube: KubeClient, namespace: str) -> list[str]:
    """Objects that users created in a namespace. A kind that cannot be listed counts as existing."""

    def titles(resource: Resource) -> list[str]:
        try:
            found = kube.list(resource, namespace=namespace) or ()
        except ApiError as err:
            if err.status != 403:
                raise
            return [f"{resource.kind}, which may not be listed"]
        others = (manifest["metadata"]["name"] for manifest in found if _is_somebodys(resource, manifest))
        return [f"{resource.kind} {name}" for name in others]

    return sorted(title for answer in all_in_parallel(titles, _kinds_in_namespaces(kube)) for title in answer)


def _is_somebodys(resource: Resource, seen: Manifest) -> bool:
    """Objects with an owner, and those being deleted, do not count, because they are deleted automatically."""
    metadata = seen["metadata"]
    goes = metadata.get("ownerReferences") or metadata.get("deletionTimestamp")
    return not goes and (resource.kind, metadata["name"]) not in BY_ITSELF


def _kinds_in_namespaces(kube: KubeClient) -> list[Resource]:
    """Each kind once, in the preferred version of its group. Metrics are not objects."""
    groups = kube.get_raw("/apis", retry=True)["groups"]
    versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
    versions = [version for version in versions if "metrics.k8s.io" not in version]
    return [resource for version in versions for resource in _listed_in_namespaces(kube, version)]


def _listed_in_namespaces(kube: KubeClient, version: str) -> list[Resource]:
    try:
        served: list[dict[str, Any]] = kube.get_raw(group_path(version), retry=True)["resources"]
    except ApiError as err:
        if err.status == 503 or err.is_not_found:  # an aggregated API without a server holds nothing
            return []
        raise
    return [
        Resource(version, kind["kind"], kind["name"])
        for kind in served
        if kind["namespaced"] and "list" in kind["verbs"] and kind["kind"] not in KINDS_BY_ITSELF
    ]
