"""What the role kubernetes gives to kubeadm for each topology, as kubeadm reads it, and what the role writes itself."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from collection import ROOT, install
from kubernetes_nodes import CONTROL_PLANE, Node, cluster_node, listed
from programs import program
from role_values import RoleValues

install()  # the roles' filters are the collection's


def kubeadm_says(folder: Path, config: str) -> subprocess.CompletedProcess[str]:
    """What kubeadm's own parser says of the configuration; it goes by the name that it is called by."""
    kubeadm, file = folder / "kubeadm", folder / "kubeadm.yaml"
    kubeadm.symlink_to(program("kube"))
    file.write_text(config)
    return subprocess.run([kubeadm, "config", "validate", "--config", file], capture_output=True, text=True)


TOPOLOGIES = {
    "one": {},
    "behind a load balancer": {"control_plane_endpoint": "lb.example:6443"},
    "kube-vip": {"kube_vip_address": "192.0.2.9", "control_plane_endpoint": "192.0.2.9:6443"},
    "an address for the controller": {"api_address": "cluster.example"},
    "metrics for the cluster": {"control_plane_metrics": True},
    "numbers for flags": {"controller_manager_args": {"concurrent-job-syncs": 7}},
    "an address of its own": {"node_ip": "192.0.2.1", "schedule_on_control_plane": True},
    "IPv4 and IPv6": {
        "node_ip": "192.0.2.1,2001:db8::1",
        "pod_subnet": "10.244.0.0/16,2001:db8:1::/56",
        "service_subnet": "10.96.0.0/16,2001:db8:2::/112",
    },
}


@pytest.mark.parametrize("options", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_kubeadm_takes_the_configuration_of_every_topology(tmp_path: Path, options: dict[str, Any]) -> None:
    said = kubeadm_says(tmp_path, Node().plan(**options)["kubeadm"]["config"])

    assert said.returncode == 0, said.stderr


def test_kubeadm_refuses_a_field_that_it_does_not_know(tmp_path: Path) -> None:
    config = Node().plan(cluster_config={"netwrking": {}})["kubeadm"]["config"]

    assert "netwrking" in kubeadm_says(tmp_path, config).stderr


JOINING = {
    "a control plane": Node(name="cp2", planes=("cp1", "cp2"), others={"cp1": True}),
    "a worker": Node(name="gpu1", planes=("cp1",), others={"cp1": True}),
}


@pytest.mark.parametrize("name", JOINING)
def test_kubeadm_takes_the_document_by_which_a_server_joins(tmp_path: Path, name: str) -> None:
    """With the token and the key as the control plane has printed them."""
    path = ROOT / "roles/kubernetes/tasks/join.yml"
    [block] = DataLoader().load_from_file(str(path), trusted_as_template=True)
    [writes] = [task for task in block["block"] if "ansible.builtin.copy" in task]
    command = f"kubeadm join cp1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:{'0' * 64}"
    told = {
        "__kubernetes_plan": JOINING[name].plan(node_ip="192.0.2.5"),
        "__kubernetes_token": {"stdout": f"{command} "},
        "__kubernetes_certificates": {"stdout_lines": ["Using certificate key:", "1" * 64]},
    }
    text = RoleValues("kubernetes", {}, told | writes["vars"])[writes["ansible.builtin.copy"]["content"].strip("{} ")]
    joined = yaml.safe_load(text)

    assert joined["discovery"]["bootstrapToken"]["caCertHashes"] == [f"sha256:{'0' * 64}"]
    assert joined.get("controlPlane", {}).get("certificateKey") == ("1" * 64 if name == "a control plane" else None)
    assert kubeadm_says(tmp_path, text).returncode == 0, text


def test_the_repository_names_the_host_that_it_sends_apt_to() -> None:
    """Proxies are set by host: see tests/unit/nodes/apt/test_apt_repository.py."""
    assert Node().plan()["packages"]["apt"]["hosts"] == ["prod-cdn.packages.k8s.io"]


@pytest.mark.parametrize(("address", "server"), [("", "10.0.0.1"), ("cluster.example", "cluster.example")])
def test_the_kubeconfig_has_the_address_for_the_controller(address: str, server: str) -> None:
    fetched = {"clusters": [{"cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": "AA=="}}]}
    content = b64encode(yaml.safe_dump(fetched).encode()).decode()
    told = {"__kubernetes_plan": Node().plan(api_address=address), "__kubernetes_admin": {"content": content}}
    kubeconfig = yaml.safe_load(RoleValues("kubernetes", {}, told)["__kubernetes_kubeconfig"])

    fetched["clusters"][0]["cluster"]["server"] = f"https://{server}:6443"
    assert kubeconfig == fetched


NODES = listed(cluster_node("cp1", pod_cidr="10.244.0.0/24"), cluster_node("gpu1", pod_cidr="10.244.1.0/24"))
FILES = {
    "/etc/sysctl.d/99-zz-kubegpu.conf": "0644",
    "/etc/systemd/system/kubegpu-pod-network.service": "0644",
    "/etc/kubegpu-pod-network": "0755",
    "/etc/systemd/networkd.conf.d/kubegpu.conf": "0644",
    "/etc/cni/net.d/10-kubegpu.conflist": "0644",
    "/etc/systemd/system/kubegpu-metrics.service": "0644",
    "/etc/kubegpu-metrics": "0755",
}


def test_files_are_texts_with_a_line_at_their_end() -> None:
    """As they are compared with those of the server, by their digest."""
    node = Node(files=CONTROL_PLANE, survey={"nodes": NODES})
    told = {"__kubernetes_plan": node.plan(), "role_path": str(ROOT / "roles/kubernetes")}
    role = RoleValues("kubernetes", {}, told)
    files = [file for kind in ("kernel", "network", "metrics") for file in role[f"__kubernetes_{kind}_files"]]

    assert {file["path"]: file["mode"] for file in files} == FILES
    assert [file["path"] for file in files if not isinstance(file["content"], str)] == []
    assert [file["path"] for file in files if not file["content"].endswith("\n") or "{{" in file["content"]] == []
    [network] = [json.loads(file["content"]) for file in files if file["path"].endswith(".conflist")]
    [bridge, _portmap] = network["plugins"]
    assert (bridge["mtu"], bridge["ipam"]["ranges"]) == (1450, [[{"subnet": "10.244.0.0/24"}]])
