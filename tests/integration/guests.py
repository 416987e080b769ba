"""Users with the rights of one ClusterRole or Role, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from collection import ROOT
from kubernetes import client

GROUP = "rbac.authorization.k8s.io"
# What the collection ships: to apply, and to look.
APPLY = yaml.safe_load((ROOT / "docs" / "rights.yml").read_text())
LOOK = yaml.safe_load((ROOT / "docs" / "doctor" / "rights.yml").read_text())
# Users that the API server knows, without a right of their own.
GUEST, LOOKER = "guest", "looker"


@contextmanager
def allowed(kube: client.ApiClient, user: str, role: dict[str, Any]) -> Iterator[str]:
    """Grants a ClusterRole to a user, and takes it away again. Gives the user."""
    rbac, name = client.RbacAuthorizationV1Api(kube), role["metadata"]["name"]
    rbac.create_cluster_role(role)
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    subjects = [{"kind": "User", "name": user, "apiGroup": GROUP}]
    rbac.create_cluster_role_binding({"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})
    try:
        yield user
    finally:
        rbac.delete_cluster_role_binding(name)
        rbac.delete_cluster_role(name)


@contextmanager
def allowed_in(kube: client.ApiClient, namespace: str, user: str, role: dict[str, Any]) -> Iterator[str]:
    """Grants a Role in one namespace, whichever it names itself."""
    rbac, name = client.RbacAuthorizationV1Api(kube), role["metadata"]["name"]
    rbac.create_namespaced_role(namespace, {"metadata": {"name": name}, "rules": role["rules"]})
    reference = {"apiGroup": GROUP, "kind": "Role", "name": name}
    subjects = [{"kind": "User", "name": user, "apiGroup": GROUP}]
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
    rbac.create_namespaced_role_binding(namespace, binding)
    try:
        yield user
    finally:
        rbac.delete_namespaced_role_binding(name, namespace)
        rbac.delete_namespaced_role(name, namespace)
