"""Whether the API server serves a kind yet, or no more."""

from __future__ import annotations

from kubernetes import client
from kubernetes.client.exceptions import ApiException

SERVED_S = 120


def is_served(kube: client.ApiClient, group: str, kind: str) -> bool:
    """Discovery names a group before its first kind, and forgets it a moment after its last one."""
    groups = {served.name: served for served in client.ApisApi(kube).get_api_versions().groups}
    if group not in groups:
        return False
    try:
        version = groups[group].preferred_version.version
        kinds = client.CustomObjectsApi(kube).get_api_resources(group, version).resources
    except ApiException as err:
        if err.status != 404:
            raise
        return False
    return kind in {resource.kind for resource in kinds}
