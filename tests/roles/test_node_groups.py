"""Node groups of the page on clouds: Karpenter takes them, and plugin and exporter reach their nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from collection import ROOT
from jsonschema import Draft7Validator, Draft202012Validator
from planned import plan_of
from recorded_schemas import of_kind, of_tool
from role_values import RoleValues

Object = dict[str, Any]
PAGE = (ROOT / "docs" / "clusters" / "node-groups.md").read_text()
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
MANIFESTS = [manifest for block in BLOCKS for manifest in yaml.safe_load_all(block) if "kind" in manifest]
# Labels that the cloud sets, by what the page's commands say.
CLOUDS = {
    "gke": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    "aks": {"kubernetes.azure.com/accelerator": "nvidia"},
}


def groups() -> dict[str, tuple[dict[str, str], list[Object]]]:
    """Labels and taints of each group's nodes."""
    found: dict[str, tuple[dict[str, str], list[Object]]] = {}
    for manifest in MANIFESTS:
        if manifest["kind"] == "NodePool":
            template = manifest["spec"]["template"]
            single = {
                row["key"]: row["values"][0] for row in template["spec"]["requirements"] if len(row["values"]) == 1
            }
            found["karpenter"] = ({**template["metadata"]["labels"], **single}, template["spec"]["taints"])
        if manifest["kind"] == "ClusterConfig":
            found |= {row["name"]: (row["labels"], row["taints"]) for row in manifest["managedNodeGroups"]}
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    return found | {cloud: (labels, [taint]) for cloud, labels in CLOUDS.items()}


def reaches(values: Mapping[str, Any], labels: Mapping[str, str], taints: list[Object]) -> bool:
    """As the scheduler judges it: one term of the affinity fits, and each taint is tolerated."""
    affinity = values["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    fits = any(
        all(
            row["key"] in labels and (row["operator"] == "Exists" or labels[row["key"]] in row["values"])
            for row in term["matchExpressions"]
        )
        for term in affinity["nodeSelectorTerms"]
    )
    return fits and all(
        any(
            row["key"] == taint["key"] and row["operator"] == "Exists" and row.get("effect") in (None, taint["effect"])
            for row in values["tolerations"]
        )
        for taint in taints
    )


def test_karpenter_s_kinds_know_each_field() -> None:
    karpenter = [manifest for manifest in MANIFESTS if "karpenter" in manifest["apiVersion"]]
    assert {manifest["kind"] for manifest in karpenter} == {"NodePool", "EC2NodeClass"}
    for manifest in karpenter:
        schema = of_kind(manifest["apiVersion"], manifest["kind"])
        assert [error.message for error in Draft202012Validator(schema).iter_errors(manifest["spec"])] == []


def test_eksctl_knows_each_field() -> None:
    _version, schema = of_tool("eksctl")
    [config] = [manifest for manifest in MANIFESTS if manifest["kind"] == "ClusterConfig"]
    assert errors(schema, config) == []
    config["managedNodeGroups"][0]["maxsize"] = 8
    assert "'maxsize' was unexpected" in errors(schema, config)[0]


def test_cluster_autoscaler_s_chart_knows_each_value() -> None:
    version, schema = of_tool("cluster-autoscaler")
    [values] = [file for block in BLOCKS for file in yaml.safe_load_all(block) if "cloudProvider" in file]
    assert f"`cluster-autoscaler` {version}" in PAGE
    assert errors(schema, values) == []
    assert errors(schema, values | {"autoDiscover": {}}) != []


def test_the_load_balancer_s_controller_knows_each_annotation() -> None:
    _version, schema = of_tool("aws-load-balancer-controller")
    annotations = ingress()["metadata"]["annotations"]
    assert errors(schema, annotations) == []
    assert errors(schema, annotations | {"alb.ingress.kubernetes.io/target-typ": "ip"}) != []


def test_the_ingress_leads_to_the_sample() -> None:
    [path] = ingress()["spec"]["rules"][0]["http"]["paths"]
    given = {"inventory_id": "prod", "image": "x", "runtime_class": ""}
    plan = plan_of("gpu_workload", {"scripts": {}, "found": None}, service=True, **given)
    [service] = [made for made in plan["objects"] if made["kind"] == "Service"]
    [port] = service["spec"]["ports"]
    assert ingress()["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert path["backend"]["service"] == {"name": service["metadata"]["name"], "port": {"name": port["name"]}}


def ingress() -> Object:
    page = (ROOT / "docs" / "clusters" / "eks.md").read_text()
    blocks = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    [found] = [block for block in blocks if block.get("kind") == "Ingress"]
    return found


def errors(schema: Object, given: Object) -> list[str]:
    return [error.message for error in Draft7Validator(schema).iter_errors(given)]


@pytest.mark.parametrize("role", ["nvidia_device_plugin", "dcgm_exporter"])
def test_plugin_and_exporter_reach_the_nodes_of_each_group(role: str) -> None:
    told = {"dcgm_exporter_monitor_labels": {}} if role == "dcgm_exporter" else {}
    values = RoleValues(role, {}, told)[f"__{role}_values"]
    found = groups()
    assert found.keys() == {"karpenter", "gpu", *CLOUDS}
    assert {name: reaches(values, labels, taints) for name, (labels, taints) in found.items()} == dict.fromkeys(
        found, True
    )
    assert not reaches(values, {"pool": "gpu"}, [])
    assert not reaches(values, CLOUDS["gke"], [{"key": "team", "effect": "NoSchedule"}])
