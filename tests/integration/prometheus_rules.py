"""The kind PrometheusRule as a cluster with the operator has it, and its objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from control_plane import eventually
from kubernetes import client
from served_kinds import SERVED_S, is_served

CRD = yaml.safe_load(Path(__file__).with_name("prometheusrule-crd.yml").read_text())
GROUP, VERSION, PLURAL = "monitoring.coreos.com", "v1", "prometheusrules"


def serve_kind(kube: client.ApiClient) -> None:
    """Have the API server serve the kind, whether it does already or not."""
    if not _is_served(kube):
        client.ApiextensionsV1Api(kube).create_custom_resource_definition(CRD)
        eventually(lambda: _is_served(kube), "PrometheusRule is served", SERVED_S)


def remove_kind(kube: client.ApiClient) -> None:
    """Take the kind away with all of its objects."""
    client.ApiextensionsV1Api(kube).delete_custom_resource_definition(CRD["metadata"]["name"])
    eventually(lambda: not _is_served(kube), "PrometheusRule is gone", SERVED_S)


def rules(kube: client.ApiClient) -> list[dict[str, Any]]:
    """The objects in all namespaces."""
    return client.CustomObjectsApi(kube).list_cluster_custom_object(GROUP, VERSION, PLURAL)["items"]


def remove_rules(kube: client.ApiClient) -> None:
    """Take the objects away, if the kind is there."""
    for rule in rules(kube) if _is_served(kube) else []:
        place = rule["metadata"]
        client.CustomObjectsApi(kube).delete_namespaced_custom_object(
            GROUP, VERSION, place["namespace"], PLURAL, place["name"]
        )


def _is_served(kube: client.ApiClient) -> bool:
    return is_served(kube, GROUP, CRD["spec"]["names"]["kind"])
