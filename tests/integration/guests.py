"""Users with the rights of one ClusterRole or Role, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from collection import ROOT
from control_plane import eventually
from kubernetes import client

GROUP = "rbac.authorization.k8s.io"
# What the collection ships: to apply, and to look.
APPLY = yaml.safe_load((ROOT / "docs" / "rights.yml").read_text())
LOOK = yaml.safe_load((ROOT / "docs" / "doctor" / "rights.yml").read_text())
# Users that the API server knows, without a right of their own.
GUEST, LOOKER = "guest", "looker"
HEARD_S = 60


def with_prometheus(role: dict[str, Any], service: str) -> dict[str, Any]:
    """The role for a Prometheus with another name, as its comments ask for it."""
    return json.loads(json.dumps(role).replace('"kube-prometheus-stack-prometheus:9090"', f'"{service}:9090"'))


@contextmanager
def allowed(kube: client.ApiClient, user: str, role: dict[str, Any]) -> Iterator[str]:
    """Grants a ClusterRole to a user, and takes it away again. Gives the user."""
    rbac, name = client.RbacAuthorizationV1Api(kube), role["metadata"]["name"]
    rbac.create_cluster_role(role)
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    subjects = [{"kind": "User", "name": user, "apiGroup": GROUP}]
    rbac.create_cluster_role_binding({"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})
    try:
        _authorizer_has_heard(kube, user, role)
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
        _authorizer_has_heard(kube, user, role, namespace)
        yield user
    finally:
        rbac.delete_namespaced_role_binding(name, namespace)
        rbac.delete_namespaced_role(name, namespace)


def _authorizer_has_heard(kube: client.ApiClient, user: str, role: dict[str, Any], namespace: str = "") -> None:
    """The authorizer follows roles and bindings by a watch: a user may do nothing yet where both are written."""

    def allows(rule: dict[str, Any]) -> bool:
        resource, _, subresource = rule["resources"][0].partition("/")
        attributes = {
            "verb": rule["verbs"][0],
            "group": rule["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
        }
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        return client.AuthorizationV1Api(kube).create_subject_access_review(review).status.allowed

    named = [rule for rule in role["rules"] if rule.get("resources") and not rule.get("resourceNames")]
    eventually(lambda: all(map(allows, named)), f"{user} has the rights of {role['metadata']['name']}", HEARD_S)
