"""The proof that pods of all nodes reach each other: DaemonSet and connections are real, kubelets are not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from control_plane import ControlPlane, running
from kubernetes import client
from playbook import changed, run_playbook
from pod_networks import PodNetworks, gone
from programs import FOLDER

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="takes root and ip")

RANGES = {"cp1": "10.251.1", "gpu1": "10.251.2"}
ROLE = {"name": "kubegpu.autoscale.kubernetes", "tasks_from": "reach"}
PLAY = [
    {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "max_fail_percentage": "{{ most | default(0) }}",
        "tasks": [
            {"ansible.builtin.set_fact": {"hostname": "{{ inventory_hostname }}", "cacheable": True}},
            {"ansible.builtin.include_role": {**ROLE, "tasks_from": "{{ part | default('reach') }}"}},
        ],
    }
]
HOST = "{{ inventory_hostname }}"
INVENTORY = {"kube_control_plane": {"hosts": {"cp1": {}}}, "kube_node": {"hosts": {"gpu1": {}}}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, client.ApiClient]]:
    work = tmp_path_factory.mktemp("control-plane")
    with running(work, "daemonset-controller", "garbage-collector-controller") as plane:
        yield plane


@pytest.fixture(scope="module")
def networks(
    cluster: tuple[ControlPlane, client.ApiClient], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodNetworks]:
    networks = PodNetworks(cluster[1], tmp_path_factory.mktemp("networks"), RANGES)
    with networks.running():
        yield networks


class Proof:
    """Runs it on both servers, or on some."""

    def __init__(self, folder: Path, plane: ControlPlane, kube: client.ApiClient, networks: PodNetworks) -> None:
        self.folder, self.plane, self.kube, self.networks = folder, plane, kube, networks

    def run(self, *flags: str, **options: object) -> subprocess.CompletedProcess[str]:
        (self.folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": INVENTORY}}))
        variables = {
            "ansible_remote_tmp": str(self.folder / "ansible"),
            "kubernetes_wait_timeout": 120,
            "__kubernetes_admin_conf": str(self.plane.kubeconfig),
            "__kubernetes_plan": {"control_plane": "cp1"},
            "_common_host": dict.fromkeys(("name", "system", "kernel", "architecture"), HOST),
            "__kubernetes_cache": str(self.folder / "cache"),
            "__kubernetes_sandboxes": str(self.networks.containerd),
            **options,
        }
        path = f"{self.networks.programs}:{FOLDER}:{os.environ['PATH']}"
        done = run_playbook(self.folder, PLAY, variables, *flags, inventory="hosts.yml", PATH=path)
        assert client.AppsV1Api(self.kube).list_namespaced_daemon_set("kube-system").items == []
        gone(self.kube)
        return done


@pytest.fixture
def proof(tmp_path: Path, cluster: tuple[ControlPlane, client.ApiClient], networks: PodNetworks) -> Iterator[Proof]:
    yield Proof(tmp_path, *cluster, networks)
    networks.without.clear()
    networks.apart.clear()


def said(output: str) -> str:
    """What it prints, in one line."""
    return re.sub(r"\s+", " ", output)


@pytest.mark.parametrize("cni", ["bridge", "cilium"])
def test_pods_of_all_nodes_reach_each_other_in_any_network(proof: Proof, cni: str) -> None:
    done = proof.run("-v", kubernetes_cni=cni)

    assert done.returncode == 0
    assert changed(done.stdout) == 0
    reached = re.findall(r'"reached": \["([^"]+)"\]', said(done.stdout).replace("[ ", "[").replace(" ]", "]"))
    assert sorted(re.sub(r"\d+:", ":", address) for address in reached) == ["10.251.1.:8080", "10.251.2.:8080"]


def test_each_node_says_whom_it_does_not_reach(proof: Proof) -> None:
    proof.networks.apart.add("gpu1")
    done = proof.run(kubernetes_cni="calico", __kubernetes_reach_tries=1)

    assert done.returncode == 2
    for server, other in (("cp1", "gpu1"), ("gpu1", "cp1")):
        seen = rf"{server} has a pod that does not reach pods of other nodes: {RANGES[other]}\.\d+:8080 on {other}: \S"
        assert re.search(seen, said(done.stdout))
    assert "UDP 4789 of calico" in said(done.stdout)


def test_a_node_without_a_pod_is_named_and_the_others_go_on(proof: Proof) -> None:
    proof.networks.without.add("gpu1")
    # All of it is waited for, and the other one has to have its address by then.
    done = proof.run(kubernetes_wait_timeout=10)

    assert done.returncode == 2
    assert "gpu1 has no pod that got an address within 10 s" in said(done.stdout)
    assert re.search(r"cp1\s+: ok=\d+ .*failed=0", done.stdout)


def test_what_a_killed_run_has_left_goes_with_the_next(proof: Proof) -> None:
    """Its pods are there as well, and nobody answers in them."""
    labels = {"k8s-app": "kubegpu-reach"}
    pod = {
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "a", "image": "a"}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    client.AppsV1Api(proof.kube).create_namespaced_daemon_set(
        "kube-system",
        {
            "metadata": {"name": "kubegpu-reach-before", "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    )
    assert proof.run().returncode == 0


def test_one_server_by_itself_asks_the_dns_of_the_others(proof: Proof) -> None:
    """It cannot have the pods of other servers answer."""
    core = client.CoreV1Api(proof.kube)
    alone = proof.run("--limit", "cp1")
    pod = {
        "metadata": {"name": "dns", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"nodeName": "gpu1", "containers": [{"name": "a", "image": "a"}]},
    }
    core.create_namespaced_pod("kube-system", pod)
    try:
        address = {"podIP": "10.251.2.250", "podIPs": [{"ip": "10.251.2.250"}]}
        core.patch_namespaced_pod_status("dns", "kube-system", {"status": {"phase": "Running", **address}})
        beside = proof.run("--limit", "cp1", __kubernetes_reach_tries=2)
    finally:
        core.delete_namespaced_pod("dns", "kube-system", grace_period_seconds=0)

    assert alone.returncode == 0
    assert "Run a pod on each node" not in alone.stdout
    assert "does not reach pods of other nodes: 10.251.2.250:53 on gpu1: " in said(beside.stdout)


def test_a_node_that_is_not_ready_is_named_and_the_others_go_on(proof: Proof) -> None:
    """Until the cluster's DNS is asked for, of which there is none here."""
    core = client.CoreV1Api(proof.kube)
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    core.patch_node_status("cp1", ready)
    done = proof.run(part="verify", most=99, kubernetes_wait_timeout=1)

    assert "node -> cluster: gpu1 was not Ready within 1 s. Seen: gpu1=." in said(done.stdout)
    assert re.search(r"Wait until the cluster's DNS answers\] \*+ .*cp1", said(done.stdout))
