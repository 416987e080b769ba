"""What the role kubernetes gives to kubeadm, and how it knows a change. tests/roles asks kubeadm's own parser."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.formats.yaml import to_sorted_yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.kubernetes.kubeadm import combined
from kubernetes_nodes import CONTROL_PLANE, FOLDER, KUBELET_CONF, PIN, RELEASE, WORKER, Node, documents

CP1 = Node()
GPU1 = Node(name="GPU1", planes=("cp1",))


def config(node: Node = CP1, **options: Any) -> dict[str, Any]:
    return documents(node.plan(**options)["kubeadm"]["config"])


def flags(rows: list[dict[str, str]]) -> dict[str, str]:
    return {row["name"]: row["value"] for row in rows}


def test_metrics_of_the_control_plane_are_opened_as_a_whole() -> None:
    """One that listens on localhost alone would be a target that is down for ever."""
    given = config(control_plane_metrics=True)
    cluster = given["ClusterConfiguration"]
    manager, scheduler = (flags(cluster[part]["extraArgs"]) for part in ("controllerManager", "scheduler"))

    assert manager["bind-address"] == scheduler["bind-address"] == "0.0.0.0"
    assert flags(cluster["etcd"]["local"]["extraArgs"]) == {"listen-metrics-urls": "http://0.0.0.0:2381"}
    assert given["KubeProxyConfiguration"]["metricsBindAddress"] == "0.0.0.0:10249"
    assert manager["horizontal-pod-autoscaler-sync-period"] == "5s"


@pytest.mark.parametrize("text", [False, "false", "no"])
def test_they_are_closed_by_default_and_where_a_text_says_so(text: bool | str) -> None:
    plan = CP1.plan(control_plane_metrics=text)

    assert "0.0.0.0" not in plan["kubeadm"]["config"]
    assert plan["kubeadm"]["etcd_metrics_url"] == "http://127.0.0.1:2381"


def test_flags_of_the_controller_manager_are_texts() -> None:
    given = config(
        Node(requests=300),
        hpa_concurrent_syncs=7,
        controller_manager_args={"concurrent-job-syncs": 7, "kube-api-qps": 5},
    )
    assert flags(given["ClusterConfiguration"]["controllerManager"]["extraArgs"]) == {
        "horizontal-pod-autoscaler-sync-period": "5s",
        "concurrent-horizontal-pod-autoscaler-syncs": "7",
        "kube-api-qps": "5",
        "kube-api-burst": "450",
        "concurrent-job-syncs": "7",
    }


def test_the_users_values_come_last() -> None:
    given = config(
        cluster_config={"networking": {"dnsDomain": "x.local"}},
        kubelet_config={"cgroupDriver": "cgroupfs", "maxPods": 50},
        kubeproxy_config={"mode": "nftables"},
    )
    assert given["ClusterConfiguration"]["networking"] == {
        "podSubnet": "10.244.0.0/16",
        "serviceSubnet": "10.96.0.0/12",
        "dnsDomain": "x.local",
    }
    assert (given["KubeletConfiguration"]["cgroupDriver"], given["KubeletConfiguration"]["maxPods"]) == ("cgroupfs", 50)
    assert given["KubeProxyConfiguration"]["mode"] == "nftables"


def test_lists_are_replaced_and_maps_are_combined() -> None:
    base = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert combined(base, {"a": {"c": [3]}}, {"d": {"e": 2}}) == {"a": {"b": 1, "c": [3]}, "d": {"e": 2}}
    assert base == {"a": {"b": 1, "c": [1, 2]}, "d": 1}


@pytest.mark.parametrize(("systemd", "driver"), [(True, "systemd"), (False, "cgroupfs")])
def test_the_kubelet_has_the_cgroups_of_containerd(systemd: bool, driver: str) -> None:
    assert config(Node(cgroup=systemd))["KubeletConfiguration"]["cgroupDriver"] == driver


@pytest.mark.parametrize(("swap", "fails"), [("allow", False), ("disable", None), ("refuse", None)])
def test_the_kubelet_runs_with_swap_where_that_is_wanted(swap: str, fails: bool | None) -> None:
    assert config(swap=swap)["KubeletConfiguration"].get("failSwapOn") is fails


def test_the_node_registers_its_address_and_name() -> None:
    given = config(Node(name="CP1", planes=("CP1",)), node_ip="192.0.2.5,2001:db8::5")["InitConfiguration"]

    assert given["localAPIEndpoint"] == {"advertiseAddress": "192.0.2.5"}
    assert given["nodeRegistration"] == {
        "name": "cp1",
        "criSocket": "unix:///run/containerd/containerd.sock",
        "kubeletExtraArgs": [{"name": "node-ip", "value": "192.0.2.5,2001:db8::5"}],
    }
    assert config()["InitConfiguration"]["localAPIEndpoint"] == {}


@pytest.mark.parametrize(("schedules", "taints"), [(True, []), ("true", []), (False, None), ("false", None)])
def test_workloads_run_on_a_control_plane_without_taints(schedules: bool | str, taints: list[str] | None) -> None:
    plan = CP1.plan(schedule_on_control_plane=schedules)

    assert documents(plan["kubeadm"]["config"])["InitConfiguration"]["nodeRegistration"].get("taints") == taints
    assert plan["kubeadm"]["join"]["nodeRegistration"].get("taints") == taints


def test_a_control_plane_and_a_worker_join_by_documents_of_their_own() -> None:
    """The token is made when it is used, and not planned."""
    node_ip = {"node_ip": "192.0.2.5"}
    cp2 = Node(name="cp2", planes=("cp1", "cp2"), others={"cp1": True}).plan(**node_ip)["kubeadm"]["join"]
    gpu1 = GPU1.plan(schedule_on_control_plane=True, **node_ip)["kubeadm"]["join"]

    assert cp2["controlPlane"] == {"localAPIEndpoint": {"advertiseAddress": "192.0.2.5"}}
    assert cp2["timeouts"] == {"etcdAPICall": "10m"}
    assert {"controlPlane", "timeouts"} & {*gpu1} == set()
    assert gpu1["nodeRegistration"]["name"] == "gpu1"
    assert "taints" not in gpu1["nodeRegistration"]


def test_an_address_for_the_controller_is_in_the_certificate() -> None:
    plan = CP1.plan(api_address="cluster.example")

    assert documents(plan["kubeadm"]["config"])["ClusterConfiguration"]["apiServer"] == {
        "certSANs": ["cluster.example"]
    }
    assert plan["api"]["server"] == "cluster.example:6443"


def test_a_worker_is_given_what_concerns_workers() -> None:
    plan = GPU1.plan(patches={"kubeletconfiguration": {"maxPods": 50}})

    assert {*yaml.safe_load(plan["kubeadm"]["applied"])} == {"kubelet", "patches", "network"}
    assert plan["kubeadm"]["config"] == ""


def test_the_version_is_no_change_of_a_document() -> None:
    """It changes by an upgrade alone."""
    before, after = (CP1.plan(version=version)["kubeadm"] for version in (PIN, "1.99.0"))

    assert before["applied"] == after["applied"]
    assert documents(after["config"])["ClusterConfiguration"]["kubernetesVersion"] == "v1.99.0"
    assert documents(before["config"])["ClusterConfiguration"]["kubernetesVersion"] == f"v{RELEASE}"


def ignored(node: Node, **options: Any) -> set[str]:
    flag, _, names = node.plan(**options)["kubeadm"]["ignored_errors"].partition("=")
    assert flag == "--ignore-preflight-errors"
    return set(names.split(",")) - {""}


def test_an_interrupted_run_is_forgiven_what_it_left_and_nothing_else() -> None:
    names = {"ignore_preflight_errors": ["NumCPU"]}
    again = ignored(Node(files=(FOLDER,)), **names)

    assert ignored(CP1, **names) == {"NumCPU"}
    assert {"NumCPU", "Port-10250", "FileAvailable--etc-kubernetes-kubelet.conf", "DirAvailable--var-lib-etcd"} < again
    assert not {"all", "Swap", "Mem", "FileContent--proc-sys-net-ipv4-ip_forward"} & again


def test_it_is_forgiven_the_folder_of_etcd_wherever_it_is() -> None:
    moved = {"cluster_config": {"etcd": {"local": {"dataDir": "/srv/etcd"}}}}
    assert "DirAvailable--srv-etcd" in ignored(Node(files=(FOLDER,)), **moved)


@pytest.mark.parametrize("given", [["NumCPU", "Mem"], "NumCPU,Mem"])
def test_a_list_of_errors_may_be_a_text_with_commas(given: list[str] | str) -> None:
    """As kubeadm's own flag is, and as the command line gives it."""
    assert ignored(CP1, ignore_preflight_errors=given) == {"NumCPU", "Mem"}


def test_equal_values_are_equal_texts() -> None:
    """By the text of what a node was given the role knows a change."""
    assert to_sorted_yaml({"b": 1, "a": {"d": True, "c": "1"}}) == "a:\n  c: '1'\n  d: true\nb: 1\n"
    assert to_sorted_yaml({"a": ["ä", {}]}) == "a:\n- ä\n- {}\n"


@pytest.mark.parametrize("files", [CONTROL_PLANE, (FOLDER, KUBELET_CONF)])
def test_only_a_complete_node_changes(files: tuple[str, ...]) -> None:
    node = Node(files=files, applied={"kubelet": {}, "patches": {}})
    assert bool(node.plan()["kubeadm"]["changed"]) is (files == CONTROL_PLANE)


def test_a_worker_does_not_know_of_changes_of_the_cluster() -> None:
    given = yaml.safe_load(GPU1.plan()["kubeadm"]["applied"])
    member = Node(name="GPU1", planes=("cp1",), files=WORKER, applied=given)

    assert (
        member.plan(cluster_config={"dns": {"imageTag": "v1"}}, kubeproxy_config={"mode": "nftables"})["kubeadm"][
            "changed"
        ]
        == []
    )
