"""A cluster of others: found as it is, named by its context, changed with the rights that docs/rights.yml grants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import ROOT
from control_plane import ControlPlane
from kubernetes import client
from metric_chain import MetricChain
from playbook import run_playbook
from workloads import Workloads

RIGHTS = yaml.safe_load((ROOT / "docs" / "rights.yml").read_text())
USER = "guest"
KINDS = (
    ("/api/v1", "namespaces"), ("/api/v1", "configmaps"), ("/api/v1", "services"), ("/apis/apps/v1", "deployments"),
    ("/apis/autoscaling/v2", "horizontalpodautoscalers"), ("/apis/monitoring.coreos.com/v1", "prometheusrules"),
    ("/apis/apiregistration.k8s.io/v1", "apiservices"), ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
)  # fmt: skip


@pytest.fixture
def kubeconfig(plane: tuple[ControlPlane, client.ApiClient], tmp_path: Path) -> Iterator[Path]:
    """Of a user with the documented rights, in a file whose current context is another cluster."""
    rbac, name = client.RbacAuthorizationV1Api(plane[1]), RIGHTS["metadata"]["name"]
    rbac.create_cluster_role(RIGHTS)
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    rbac.create_cluster_role_binding({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    config = json.loads(plane[0].kubeconfig_of(USER).read_text())
    config["clusters"].append({"name": "other", "cluster": {"server": "https://192.0.2.1:6443"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "admin"}})
    config["current-context"] = "other"
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    yield path
    rbac.delete_cluster_role_binding(name)
    rbac.delete_cluster_role(name)


def objects(plane: ControlPlane) -> dict[str, Any]:
    """All objects of the kinds, by title, but for what changes by itself."""
    found = {}
    for version, plural in KINDS:
        for each in plane.get(f"{version}/{plural}")["items"]:
            metadata = each["metadata"]
            found[f"{plural} {metadata.get('namespace', '')}/{metadata['name']}"] = {**each, "status": None}
    return found


def test_autoscaling_needs_the_documented_rights_and_changes_nothing_else(
    tmp_path: Path,
    kubeconfig: Path,
    plane: tuple[ControlPlane, client.ApiClient],
    chain: MetricChain,
    workloads: Workloads,
) -> None:
    namespace = workloads.namespace
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    workloads.ready_pod("chat-0", app="chat")
    chain.exporter.gpus(namespace, {"chat-0": 50})
    autoscaler = {"namespace": namespace, "target": {"name": "chat"}, "max_replicas": 4}
    variables = {"kubegpu_kubeconfig": str(kubeconfig), "gpu_autoscaling_autoscalers": [autoscaler]}
    before = objects(plane[0])

    refused = run_playbook(tmp_path, "kubegpu.autoscale.autoscaling", variables)
    assert refused.returncode == 2
    assert "has 2 contexts: other, test" in refused.stdout

    done = run_playbook(tmp_path, "kubegpu.autoscale.autoscaling", {**variables, "kubegpu_context": "test"})
    assert done.returncode == 0
    after = objects(plane[0])
    made = {f"horizontalpodautoscalers {namespace}/chat", "prometheusrules monitoring/kubegpu-gpu"}
    assert set(after) - set(before) == made
    assert {title: each for title, each in after.items() if title not in made} == before
