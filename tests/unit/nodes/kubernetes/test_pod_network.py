"""How the role kubernetes connects pods: routes, sysctls, charts of networks, and who reaches the metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kubernetes_nodes import CONTROL_PLANE, WORKER, Node, cluster_node, listed

NODES = listed(
    cluster_node("gpu2", "192.0.2.12", pod_cidr="10.244.2.0/24"),
    cluster_node("gpu1", "192.0.2.11", pod_cidr="10.244.1.0/24"),
    cluster_node("cp1", "192.0.2.1", pod_cidr="10.244.0.0/24"),
)


def test_a_node_has_a_route_to_the_pods_of_each_other() -> None:
    network = Node(name="gpu1", planes=("cp1",), files=WORKER, survey={"nodes": NODES}).plan()["network"]

    assert network["pod_cidr"] == "10.244.1.0/24"
    assert network["routes"] == ["10.244.0.0/24 via 192.0.2.1", "10.244.2.0/24 via 192.0.2.12"]
    assert network["mtu"] == 1450


def test_an_unknown_mtu_is_that_of_ethernet() -> None:
    assert Node(survey={"default_route": {}}).plan()["network"]["mtu"] == 1500


@pytest.mark.parametrize(("subnet", "forwards"), [("10.244.0.0/16", False), ("10.244.0.0/16,2001:db8::/56", True)])
def test_pods_with_ipv6_are_forwarded_by_it(subnet: str, forwards: bool) -> None:
    """kubeadm refuses to begin without it: FileContent--proc-sys-net-ipv6-conf-default-forwarding."""
    sysctls = Node().plan(pod_subnet=subnet, cni="cilium")["network"]["sysctls"]

    assert ("net.ipv6.conf.all.forwarding = 1" in sysctls) == forwards
    assert "net.ipv4.ip_forward = 1" in sysctls


def test_a_boot_reads_ours_after_another_sysctl_conf() -> None:
    """Debian and Ubuntu have it as 99-sysctl.conf, where hardened servers forward nothing: the last name wins."""
    folder, _, name = Node().plan()["files"]["sysctl"].rpartition("/")

    assert folder == "/etc/sysctl.d"
    assert name > "99-sysctl.conf"


CHARTS: dict[str, tuple[list[str], Callable[[dict[str, Any]], str]]] = {
    "flannel": (["flannel"], lambda values: values["podCidr"]),
    "calico": (
        ["crd.projectcalico.org.v1", "tigera-operator"],
        lambda values: values["installation"]["calicoNetwork"]["ipPools"][0]["cidr"],
    ),
    "cilium": (["cilium"], lambda values: "10.7.0.0/16" if values["ipam"]["mode"] == "kubernetes" else ""),
}


@pytest.mark.parametrize("cni", CHARTS)
def test_a_network_gets_the_pod_subnet_and_the_users_values(cni: str) -> None:
    names, pod_subnet = CHARTS[cni]
    plan = Node().plan(cni=cni, pod_subnet="10.7.0.0/16", cni_values={"mine": True})
    charts = plan["network"]["charts"]

    assert [chart["name"] for chart in charts] == names
    assert all(chart["version"] and chart["repository"].startswith("https://") for chart in charts)
    assert pod_subnet(charts[-1]["values"]) == "10.7.0.0/16"
    assert charts[-1]["values"]["mine"] is True
    assert [chart["values"] for chart in charts[:-1]] == [{}] * (len(charts) - 1)
    assert plan["steps"]["charts"]


@pytest.mark.parametrize("subnet", ["10.244.0.0/16", "10.244.0.0/16,2001:db8::/56"])
def test_calico_has_a_pool_for_each_subnet(subnet: str) -> None:
    """Its operator takes one network for each, and refuses two with a comma between."""
    *_, operator = Node().plan(cni="calico", pod_subnet=subnet)["network"]["charts"]
    pools = operator["values"]["installation"]["calicoNetwork"]["ipPools"]

    assert pools == [{"cidr": cidr, "encapsulation": "VXLANCrossSubnet"} for cidr in subnet.split(",")]


@pytest.mark.parametrize(
    ("cni", "taken"),
    [("bridge", "bridge"), ("flannel", "charts"), ("manifest", "manifest"), ("none", "")],
)
def test_a_network_comes_in_one_way(cni: str, taken: str) -> None:
    manifest = {"cni_manifest": "/cni.yaml"} if cni == "manifest" else {}
    plan = Node().plan(cni=cni, **manifest)

    assert [name for name in ("bridge", "charts", "manifest") if plan["steps"][name]] == ([taken] if taken else [])
    assert plan["steps"]["verify"] == (cni != "none")


def test_the_leader_alone_brings_a_network_to_the_cluster() -> None:
    worker = Node(name="gpu1", planes=("cp1",), elsewhere={"cp1": True})
    assert not worker.plan(cni="flannel")["steps"]["charts"]
    assert not worker.plan(cni="manifest", cni_manifest="/cni.yaml")["steps"]["manifest"]


def test_kube_vip_gives_its_address_to_the_cluster() -> None:
    plan = Node().plan(kube_vip_address="192.0.2.9", control_plane_endpoint="192.0.2.9:6443")
    [container] = plan["kube_vip"]["afterwards"]["spec"]["containers"]
    env = {row["name"]: row.get("value") for row in container["env"]}
    kubeconfigs = {
        when: pod["spec"]["volumes"][0]["hostPath"]["path"].rpartition("/")[2] for when, pod in plan["kube_vip"].items()
    }

    assert env["address"] == "192.0.2.9"
    assert "vip_interface" not in env
    assert kubeconfigs == {"at_init": "super-admin.conf", "afterwards": "admin.conf"}
    assert plan["steps"]["kube_vip"]


def test_kube_vip_takes_the_interface_that_it_is_given() -> None:
    plan = Node().plan(kube_vip_address="192.0.2.9", kube_vip_interface="eth1")
    [container] = plan["kube_vip"]["at_init"]["spec"]["containers"]

    assert {"name": "vip_interface", "value": "eth1"} in container["env"]


def test_a_worker_and_a_cluster_without_such_an_address_have_no_kube_vip() -> None:
    assert Node().plan()["kube_vip"] == {}
    assert not Node(name="gpu1", planes=("cp1",)).plan(kube_vip_address="192.0.2.9")["steps"]["kube_vip"]


def test_pods_and_nodes_reach_the_metrics() -> None:
    addresses = {"metrics_addresses": {"rc": 0, "stdout": "192.0.2.1 192.0.2.2 2001:db8::2"}}
    both = {"pod_subnet": "10.244.0.0/16,2001:db8:1::/56"}

    assert Node(survey=addresses).plan(**both)["metrics"] == {
        "ports": [10249, 2381, 10257, 10259],
        "ipv4": ["10.244.0.0/16", "192.0.2.1", "192.0.2.2"],
        "ipv6": ["2001:db8:1::/56", "2001:db8::2"],
    }
    assert Node(name="gpu1", planes=("cp1",)).plan()["metrics"]["ports"] == [10249]


RULES = (*CONTROL_PLANE, "/etc/kubegpu-metrics")


@pytest.mark.parametrize(
    ("files", "wanted", "taken"),
    [
        (CONTROL_PLANE, False, set()),
        (CONTROL_PLANE, True, {"guard_metrics_first", "guard_metrics"}),
        (RULES, True, {"guard_metrics", "has_metrics_rules"}),
        (RULES, False, {"guard_metrics", "close_metrics", "has_metrics_rules"}),
    ],
    ids=["never", "from now on", "as before", "no longer"],
)
def test_ports_are_guarded_before_they_are_opened_and_closed_where_they_were_open(
    files: tuple[str, ...], wanted: bool, taken: set[str]
) -> None:
    steps = Node(files=files).plan(control_plane_metrics=wanted)["steps"]
    named = ("guard_metrics_first", "guard_metrics", "close_metrics", "has_metrics_rules")

    assert {name for name in named if steps[name]} == taken
