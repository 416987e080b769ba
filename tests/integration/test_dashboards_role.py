"""Role gpu_dashboards, and Grafana's login of role prometheus_stack, as a user runs them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane
from kubernetes import client
from playbook import ACCESS, changed, local, run_playbook
from workloads import Workloads


@pytest.fixture
def play(tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient]) -> Callable[..., str]:
    def play(role: dict[str, Any], *flags: str, **options: Any) -> str:
        plays = local({"ansible.builtin.include_role": {**role, "name": f"kubegpu.autoscale.{role['name']}"}})
        done = run_playbook(tmp_path, plays, {"kubegpu_kubeconfig": str(plane[0].kubeconfig), **options}, *flags)
        assert done.returncode == 0
        return done.stdout

    return play


def dashboards(kube: client.ApiClient) -> dict[str, Any]:
    found = client.CoreV1Api(kube).list_config_map_for_all_namespaces(label_selector="grafana_dashboard=1").items
    return {config_map.metadata.name: config_map for config_map in found}


def test_dashboards_come_change_and_go(play: Callable[..., str], kube: client.ApiClient, workloads: Workloads) -> None:
    role = {"name": "gpu_dashboards"}
    options = {"gpu_dashboards_namespace": workloads.namespace}
    assert changed(play(role, "--check", **options)) == 1
    assert dashboards(kube) == {}
    assert changed(play(role, **options)) == 1
    found = dashboards(kube)
    assert sorted(found) == [f"kubegpu-dashboard-{name}" for name in ("chain", "fleet", "node", "workload")]
    assert json.loads(found["kubegpu-dashboard-node"].data["kubegpu-node.json"])["title"] == "GPUs / Node"
    assert changed(play(role, **options)) == 0

    client.CoreV1Api(kube).patch_namespaced_config_map(
        "kubegpu-dashboard-node", workloads.namespace, {"data": {"kubegpu-node.json": "{}"}}
    )
    assert changed(play(role, **options)) == 1
    assert dashboards(kube)["kubegpu-dashboard-node"].data == found["kubegpu-dashboard-node"].data

    assert changed(play(role, gpu_dashboards_state="absent", **options)) == 1
    assert dashboards(kube) == {}


def test_grafana_gets_a_login_of_its_own_once(
    play: Callable[..., str], kube: client.ApiClient, workloads: Workloads
) -> None:
    role = {"name": "prometheus_stack", "tasks_from": "grafana_login", "apply": ACCESS}
    options = {"prometheus_stack_namespace": workloads.namespace, "kubegpu_cluster_ready": True}

    def password() -> str:
        secret = client.CoreV1Api(kube).read_namespaced_secret("kubegpu-grafana-admin", workloads.namespace)
        assert base64.b64decode(secret.data["admin-user"]) == b"admin"
        return base64.b64decode(secret.data["admin-password"]).decode()

    assert changed(play(role, "--check", **options)) == 1
    said = play(role, "--diff", "-vvv", **options)
    assert changed(said) == 1
    made = password()
    assert len(made) == 32
    assert made not in said
    assert changed(play(role, **options)) == 0
    assert password() == made
