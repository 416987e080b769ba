"""Whether the API server serves a kind yet, or no more."""

from __future__ import annotations

from kubernetes import client
from kubernetes.client.exceptions import ApiException

SERVED_S = 120


def is_served(kube: client.ApiClient, group: str, kind: str) -> bool:
    """In any version. Discovery names a group before its first kind, and forgets it a moment after its last one."""
    groups = {served.name: served for served in client.ApisApi(kube).get_api_versions().groups}
    versions = [served.version for served in groups[group].versions] if group in groups else []
    return any(kind in _kinds(kube, group, version) for version in versions)


def _kinds(kube: client.ApiClient, group: str, version: str) -> set[str]:
    try:
        resources = client.CustomObjectsApi(kube).get_api_resources(group, version).resources
    except ApiException as err:
        if err.status != 404:
            raise
        return set()
    return {resource.kind for resource in resources}
