"""A node that has the name of a server and is another machine is not touched: against a real API server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane
from kubernetes import client
from playbook import changed, run_playbook
from programs import program

MACHINE_ID = Path("/etc/machine-id")
OTHER = "0ther0ther0ther0ther0ther0ther00"
HAS_ID = MACHINE_ID.exists() and MACHINE_ID.read_text().strip()  # an image that was never booted has an empty one
pytestmark = pytest.mark.skipif(not HAS_ID, reason="this machine has no ID")
INVENTORY = "kube_node:\n  hosts: {gpu1: {ansible_connection: local, kubernetes_node_name: gpu1}}\n"


@pytest.fixture
def node(kube: client.ApiClient) -> Iterator[client.CoreV1Api]:
    """Node gpu1 of the cluster, with a pod that serves."""
    core = client.CoreV1Api(kube)
    labels = {"nvidia.com/mig.capable": "true", "nvidia.com/gpu.deploy.mig-manager": "true"}
    core.create_node({"metadata": {"name": "gpu1", "labels": labels}})
    pod = {"metadata": {"name": "prod-llm"}, "spec": {"nodeName": "gpu1", "containers": [{"name": "a", "image": "a"}]}}
    core.create_namespaced_pod("default", pod)
    yield core
    core.delete_namespaced_pod("prod-llm", "default", grace_period_seconds=0)
    core.delete_node("gpu1")


def report_machine(core: client.CoreV1Api, machine: str) -> None:
    """What its kubelet would report."""
    others = (
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
    )
    info = {**dict.fromkeys((*others, "operatingSystem", "osImage", "systemUUID"), ""), "machineID": machine}
    core.patch_node_status("gpu1", {"status": {"nodeInfo": info}})


FACTS = {"ansible.builtin.set_fact": {"hostname": "gpu1", "cacheable": True}}


def include(role: str, part: str = "main") -> dict[str, Any]:
    return {"ansible.builtin.include_role": {"name": f"kubegpu.autoscale.{role}", "tasks_from": part}}


def on_server(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"hosts": "kube_node", "gather_facts": False, "tasks": [FACTS, *tasks]}


PARTITION = [
    on_server(include("_common", "who")),
    {"hosts": "localhost", "gather_facts": False, "tasks": [include("gpu_mig")]},
]
CHANGES = {
    "a driver's drain": [on_server(include("maintain", "out_of_service"))],
    "a driver's return": [on_server(include("maintain", "return"))],
    "a drain of Kubernetes": [on_server(include("kubernetes", "drain"))],
    "partitions": PARTITION,
}


def run(folder: Path, plane: ControlPlane, plays: list[dict[str, Any]]) -> tuple[int, str]:
    (folder / "hosts.yml").write_text(INVENTORY)
    known = {"kubegpu_kubeconfig": str(plane.kubeconfig), "_common_server": {"result": {"clusters": ["a"]}}}
    known |= {"gpu_mig_state": "present", "gpu_mig_profile": "all-1g.10gb", "kubegpu_cluster_timeout": 5}
    known |= {"nvidia_driver_drain_timeout": 5, "kubernetes_drain_timeout": 5, "ansible_become": False}
    done = run_playbook(folder, plays, known, inventory="hosts.yml")
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("change", CHANGES)
def test_a_node_that_is_another_machine_is_not_touched(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], node: client.CoreV1Api, change: str
) -> None:
    """No cordon, no annotation, no pod less: its version is what it was."""
    report_machine(node, OTHER)
    before = node.read_node("gpu1").metadata.resource_version
    code, said = run(tmp_path, plane[0], CHANGES[change])

    assert code == 2
    assert node.read_node("gpu1").metadata.resource_version == before
    assert node.read_namespaced_pod("prod-llm", "default").metadata.deletion_timestamp is None
    uid = node.read_namespace("kube-system").metadata.uid
    assert f"gpu1 is machine {MACHINE_ID.read_text().strip()}, not a member of a cluster." in said
    assert f"(UID {uid}, CA unknown), whose node gpu1 is machine {OTHER}" in said
    assert "Nothing was changed in the cluster" in said


def test_the_server_s_own_node_is_drained(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], node: client.CoreV1Api
) -> None:
    """The pod has no controller, and so stops the drain after the cordon."""
    report_machine(node, MACHINE_ID.read_text().strip())
    _code, said = run(tmp_path, plane[0], CHANGES["a driver's drain"])

    assert node.read_node("gpu1").spec.unschedulable is True
    assert "gpu1 could not be drained" in said


def test_a_cluster_and_its_servers_are_recorded_once(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], node: client.CoreV1Api
) -> None:
    """By kubectl on a control plane, as the role does it before it writes a kubeconfig or removes a node."""
    report_machine(node, MACHINE_ID.read_text().strip())
    known = {
        "__kubernetes_admin_conf": str(plane[0].kubeconfig),
        "__kubernetes_cache": str(tmp_path / "cache"),
        "__kubernetes_identity_at": "gpu1",
        "__kubernetes_plan": {"is_complete": True},
        "kubegpu_cluster_name": "prod",
        "kubernetes_wait_timeout": 5,
    }
    plays = [on_server(include("kubernetes", "identity"))]
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    path = f"{program('kubectl').parent}{os.pathsep}{os.environ['PATH']}"
    run_identity = partial(run_playbook, tmp_path, plays, inventory="hosts.yml", PATH=path)
    try:
        first, second = run_identity(known), run_identity(known)
        record = node.read_namespaced_config_map("kubegpu-cluster", "kube-system").data
        other = run_identity({**known, "kubegpu_cluster_name": "staging"})
    finally:
        node.delete_namespaced_config_map("kubegpu-cluster", "kube-system")

    assert (first.returncode, changed(first.stdout)) == (0, 1)
    assert (second.returncode, changed(second.stdout)) == (0, 0)
    assert record == {"name": "prod", "uid": node.read_namespace("kube-system").metadata.uid}
    assert "kubegpu_cluster_name is staging. Nothing was changed in the cluster" in " ".join(other.stdout.split())
