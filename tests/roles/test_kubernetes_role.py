"""What the role kubernetes gives to kubeadm for each topology, rendered by Ansible and judged by kubeadm's parser."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_forks import ansible_playbook
from collection import COLLECTIONS_PATH, install
from programs import program
from role_values import RoleValues

install()  # the roles' filters are the collection's
ENVIRONMENT = {"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json", "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS_PATH}
CHECKOUT = Path(__file__).resolve().parents[2]
RENDERED = """
- hosts: all
  gather_facts: false
  vars_files:
    - {role}/defaults/main.yml
    - {role}/vars/main/main.yml
    - {role}/vars/main/metrics.yml
    - {common}/defaults/main/versions.yml
    - {common}/defaults/main/main.yml
    - {common}/defaults/main/cluster.yml
    - {common}/vars/main.yml
  tasks:
    - ansible.builtin.set_fact:
        hostname: "{{{{ inventory_hostname }}}}"
        all_ipv4_addresses: "{{{{ addresses | default([]) }}}}"
        all_ipv6_addresses: ["2001:db8::2"]
        cacheable: true
    - ansible.builtin.debug: {{msg: "{{{{ {wanted} }}}}"}}
"""
CLUSTER = "{'config': __kubernetes_config_text, 'leader': __kubernetes_control_plane, 'gone': __kubernetes_gone}"


def render(
    folder: Path,
    wanted: str,
    *,
    complete: tuple[str, ...] = (),
    elsewhere: tuple[tuple[str, bool], ...] = (),
    hosts: int = 1,
    **variables: Any,
) -> dict[str, Any]:
    """The expressions `wanted`, by name of the control plane, cp1 and so on.

    complete: those in a cluster already. elsewhere: those that the play leaves out, with whether they are.
    """
    marker = {"files": [{"path": "/etc/kubernetes/kubegpu/initialised"}]}
    names = [f"cp{number}" for number in range(1, hosts + 1)]
    found = {name: {"__kubernetes_found": marker if name in complete else {"files": []}} for name in names}
    inventory = {"all": {"children": {"kube_control_plane": {"hosts": found}}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    roles = CHECKOUT / "roles"
    play = RENDERED.format(role=roles / "kubernetes", common=roles / "_common", wanted=wanted)
    (folder / "play.yml").write_text(play)
    asked = [{"item": name, "stat": {"exists": exists}} for name, exists in elsewhere]
    variables["__kubernetes_elsewhere"] = {"results": asked}
    words = ("-i", "hosts.yml", "play.yml", "--extra-vars", json.dumps(variables))
    done = ansible_playbook(*words, cwd=folder, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout
    told = json.loads(done.stdout)["plays"][0]["tasks"][-1]["hosts"]
    return {name: told[name]["msg"] for name in names}


def kubeadm_says(folder: Path, config: str) -> subprocess.CompletedProcess[str]:
    """What kubeadm's own parser says of the configuration; it goes by the name that it is called by."""
    kubeadm, file = folder / "kubeadm", folder / "kubeadm.yaml"
    kubeadm.symlink_to(program("kube"))
    file.write_text(config)
    return subprocess.run([kubeadm, "config", "validate", "--config", file], capture_output=True, text=True)


TOPOLOGIES = {
    "one": {},
    "behind a load balancer": {"hosts": 3, "kubernetes_control_plane_endpoint": "lb.example:6443"},
    "kube-vip": {"hosts": 3, "kubernetes_kube_vip_address": "192.0.2.9"},
    "an address for the controller": {"kubernetes_api_address": "cluster.example"},
    "metrics for the cluster": {"kubernetes_control_plane_metrics": True},
    "numbers for flags": {"kubernetes_controller_manager_args": {"concurrent-job-syncs": 7}},
    "an address of its own": {"kubernetes_node_ip": "192.0.2.1", "kubernetes_schedule_on_control_plane": True},
    "IPv4 and IPv6": {
        "kubernetes_node_ip": "192.0.2.1,2001:db8::1",
        "kubernetes_pod_subnet": "10.244.0.0/16,2001:db8:1::/56",
        "kubernetes_service_subnet": "10.96.0.0/16,2001:db8:2::/112",
    },
}


@pytest.mark.parametrize("variables", TOPOLOGIES.values(), ids=TOPOLOGIES)
def test_kubeadm_takes_the_configuration_of_every_topology(tmp_path: Path, variables: dict[str, Any]) -> None:
    said = kubeadm_says(tmp_path, render(tmp_path, CLUSTER, **variables)["cp1"]["config"])

    assert said.returncode == 0, said.stderr


def test_metrics_of_the_control_plane_are_opened_as_a_whole(tmp_path: Path) -> None:
    """One that listens on localhost alone would be a target that is down for ever."""
    config = render(tmp_path, CLUSTER, kubernetes_control_plane_metrics=True)["cp1"]["config"]
    documents = {document["kind"]: document for document in yaml.safe_load_all(config)}
    cluster = documents["ClusterConfiguration"]
    flags = {
        name: {flag["name"]: flag["value"] for flag in part["extraArgs"]}
        for name, part in (("manager", cluster["controllerManager"]), ("scheduler", cluster["scheduler"]))
    }
    [etcd] = cluster["etcd"]["local"]["extraArgs"]

    assert {name: part["bind-address"] for name, part in flags.items()} == dict.fromkeys(flags, "0.0.0.0")
    assert etcd == {"name": "listen-metrics-urls", "value": "http://0.0.0.0:2381"}
    assert documents["KubeProxyConfiguration"]["metricsBindAddress"] == "0.0.0.0:10249"
    assert flags["manager"]["horizontal-pod-autoscaler-sync-period"] == "5s"


def test_they_are_closed_by_default(tmp_path: Path) -> None:
    assert "0.0.0.0" not in render(tmp_path, CLUSTER)["cp1"]["config"]


def test_the_repository_names_the_host_that_it_sends_apt_to() -> None:
    """Proxies are set by host: see tests/unit/nodes/test_apt_repository.py."""
    kubernetes = RoleValues("kubernetes", {"inventory_hostname": "cp1"}, {})
    assert kubernetes["__kubernetes_apt"]["hosts"] == ["prod-cdn.packages.k8s.io"]


def test_kubeadm_refuses_a_field_that_it_does_not_know(tmp_path: Path) -> None:
    config = render(tmp_path, CLUSTER, kubernetes_cluster_config={"netwrking": {}})["cp1"]["config"]

    assert "netwrking" in kubeadm_says(tmp_path, config).stderr


@pytest.mark.parametrize(
    ("complete", "leader", "gone"),
    [
        ((), "cp1", []),
        (("cp1",), "cp1", ["cp2", "cp3"]),
        (("cp2", "cp3"), "cp2", ["cp1"]),
        (("cp1", "cp2", "cp3"), "cp1", []),
    ],
)
def test_only_a_control_plane_that_is_complete_leads_a_cluster(
    tmp_path: Path, complete: tuple[str, ...], leader: str, gone: list[str]
) -> None:
    """A bare server in the first one's place joins: had it led, it would have made a second cluster."""
    told = render(tmp_path, CLUSTER, complete=complete, hosts=3)

    assert {name: row["leader"] for name, row in told.items()} == dict.fromkeys(told, leader)
    assert told["cp2"]["gone"] == gone


def test_what_an_earlier_play_found_does_not_count(tmp_path: Path) -> None:
    """Of control planes that a play leaves out, what they are now is asked; they may have left or joined meanwhile."""
    now = (("cp1", False), ("cp2", True))
    told = render(tmp_path, CLUSTER, complete=("cp1", "cp3"), elsewhere=now, hosts=3)

    assert told["cp3"]["leader"] == "cp2"


@pytest.mark.parametrize(
    ("ready", "address", "refused"),
    [
        ("True", "192.0.2.1", True),
        ("Unknown", "192.0.2.1", False),
        ("True", "192.0.2.2", False),
        ("True", "2001:db8::2", False),
    ],
    ids=["a clone of it", "in place of a lost one", "itself, half joined", "itself, by IPv6"],
)
def test_a_server_does_not_take_the_place_of_a_control_plane_that_works(
    tmp_path: Path, ready: str, address: str, refused: bool
) -> None:
    status = {
        "conditions": [{"type": "Ready", "status": ready}],
        "addresses": [{"type": "InternalIP", "address": address}],
    }
    nodes = {"items": [{"metadata": {"name": "cp2"}, "status": status}]}
    told = render(
        tmp_path,
        "{'namesakes': __kubernetes_namesakes}",
        complete=("cp1",),
        hosts=2,
        addresses=["192.0.2.2"],
        __kubernetes_nodes_answer={"stdout": json.dumps(nodes)},
    )["cp1"]["namesakes"]

    assert told == (["cp2 has the name of node cp2, which is Ready at 192.0.2.1"] if refused else [])


def test_kube_vip_gives_its_address_to_the_cluster(tmp_path: Path) -> None:
    wanted = "{'config': __kubernetes_config_text, 'pod': __kubernetes_kube_vip}"
    told = render(
        tmp_path,
        wanted,
        kubernetes_kube_vip_address="192.0.2.9",
        __kubernetes_kube_vip_kubeconfig="/etc/kubernetes/admin.conf",
    )["cp1"]
    container = told["pod"]["spec"]["containers"][0]
    env = {row["name"]: row.get("value") for row in container["env"]}

    cluster = next(doc for doc in yaml.safe_load_all(told["config"]) if doc["kind"] == "ClusterConfiguration")
    assert cluster["controlPlaneEndpoint"] == "192.0.2.9:6443"
    assert env["address"] == "192.0.2.9"
    assert "vip_interface" not in env


@pytest.mark.parametrize(
    ("cni", "charts", "pod_subnet"),
    [
        ("flannel", ["flannel"], lambda values: values["podCidr"]),
        (
            "calico",
            ["crd.projectcalico.org.v1", "tigera-operator"],
            lambda values: values["installation"]["calicoNetwork"]["ipPools"][0]["cidr"],
        ),
        ("cilium", ["cilium"], lambda values: "10.7.0.0/16" if values["ipam"]["mode"] == "kubernetes" else ""),
        ("bridge", [], None),
    ],
)
def test_a_network_gets_the_pod_subnet_and_the_users_values(
    tmp_path: Path, cni: str, charts: list[str], pod_subnet: Any
) -> None:
    told = render(
        tmp_path,
        "{'charts': __kubernetes_cni_charts}",
        kubernetes_cni=cni,
        kubernetes_pod_subnet="10.7.0.0/16",
        kubernetes_cni_values={"mine": True},
    )["cp1"]["charts"]

    assert [chart["name"] for chart in told] == charts
    assert all(chart["version"] and chart["repository"].startswith("https://") for chart in told)
    if charts:
        assert pod_subnet(told[-1]["values"]) == "10.7.0.0/16"
        assert told[-1]["values"]["mine"] is True


def test_an_address_for_the_controller_is_in_the_certificate_and_in_the_kubeconfig(tmp_path: Path) -> None:
    fetched = {"clusters": [{"cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": "AA=="}}]}
    told = render(
        tmp_path,
        "{'config': __kubernetes_config_text, 'kubeconfig': __kubernetes_kubeconfig}",
        kubernetes_api_address="cluster.example",
        __kubernetes_admin={"content": b64encode(yaml.safe_dump(fetched).encode()).decode()},
    )["cp1"]

    cluster = next(doc for doc in yaml.safe_load_all(told["config"]) if doc["kind"] == "ClusterConfiguration")
    assert cluster["apiServer"]["certSANs"] == ["cluster.example"]
    fetched["clusters"][0]["cluster"]["server"] = "https://cluster.example:6443"
    assert yaml.safe_load(told["kubeconfig"]) == fetched


LEAVING = "{'files': __kubernetes_files, 'preflight': __kubernetes_preflight}"
SHARED = {"/etc/kubernetes", "/usr/libexec/kubernetes", "/var/log/containers", "/var/log/pods"}


@pytest.mark.parametrize(("ours", "marked"), [(True, False), (False, True), (False, False)])
def test_what_others_have_in_kubernetes_folders_stays(tmp_path: Path, ours: bool, marked: bool) -> None:
    """k3s and RKE2 keep the logs of their pods where kubelet does."""
    known = {"__kubernetes_ours": ours, "_common_apt_mark": {"stat": {"exists": marked}}}
    removed = render(tmp_path, LEAVING, **known)["cp1"]["files"]

    assert SHARED & set(removed) == (SHARED if ours or marked else set())
    assert any(path.startswith("/etc/sysctl.d/") for path in removed)
    if ours:
        assert removed[-1] == "/etc/kubernetes"  # the mark of ours: a run that ends before it is gone on with


def test_an_interrupted_run_is_forgiven_what_it_left_and_nothing_else(tmp_path: Path) -> None:
    known = {"kubernetes_ignore_preflight_errors": ["NumCPU"], "_common_apt_mark": {"stat": {"exists": True}}}
    (tmp_path / "again").mkdir()
    first = render(tmp_path, LEAVING, **known)["cp1"]["preflight"]
    again = render(tmp_path / "again", LEAVING, __kubernetes_ours=True, **known)["cp1"]["preflight"].partition("=")[2]

    assert first == "--ignore-preflight-errors=NumCPU"
    assert {"NumCPU", "Port-10250", "FileAvailable--etc-kubernetes-kubelet.conf"} < set(again.split(","))
    assert not {"all", "Swap", "Mem", "FileContent--proc-sys-net-ipv4-ip_forward"} & set(again.split(","))
