"""Why a server cannot become a node, and why several cannot become one cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.server.checks import SERVER as SERVER_CHECKS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.server.checks import SERVERS as SERVERS_CHECKS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.survey.host import Host
from planned import HOST, plan_of, unseen


def refused(host: Host = HOST, **params: Any) -> list[str]:
    return plan_of("_common.server", {"user": "root", "uid": 0, **params}, host)["refused"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("system", ["Debian 12", "Debian 13", "Ubuntu 22.04", "Ubuntu 24.04", "Ubuntu 26.04"])
def test_a_supported_system_is_one(system: str) -> None:
    assert refused(replace(HOST, system=system)) == []


@pytest.mark.parametrize("system", ["Rocky 9", "Debian 11", "Ubuntu 23.10"])
def test_another_system_is_reported_alone(system: str) -> None:
    [refusal] = refused(replace(HOST, system=system), user="admin", uid=1000)

    assert f"server: gpu1 runs {system}, which is not supported." in refusal
    assert "Debian 12, Debian 13, Ubuntu 22.04, Ubuntu 24.04 and Ubuntu 26.04" in refusal


@pytest.mark.parametrize(("architectures", "is_refused"), [([], True), (["aarch64"], False), (["riscv64"], True)])
def test_another_architecture_is_refused_unless_the_user_tries_it(architectures: list[str], is_refused: bool) -> None:
    told = refused(replace(HOST, architecture="aarch64"), architectures=architectures)
    assert bool(told) is is_refused
    for refusal in told:
        assert "gpu1 has the architecture aarch64." in refusal
        assert "kubegpu_untested_architectures: [aarch64]" in refusal
        assert "sbsa" in refusal


def test_a_reboot_that_nobody_drains_is_a_warning() -> None:
    plan = plan_of("_common.server", {"user": "root", "uid": 0, "reboots_alone": True})
    assert plan["refused"] == []
    assert "Next: set `Unattended-Upgrade::Automatic-Reboot" in plan["notices"][0]
    assert [finding["severity"] for finding in plan["findings"]] == ["warning"]
    assert plan_of("_common.server", {"user": "root", "uid": 0})["notices"] == []


def on_amazon(*nodes: bool, **options: Any) -> list[str]:
    rows = {
        f"gpu{number}": {
            "address": f"10.0.0.{number}",
            "subnet": "10.0.0.0/24",
            "is_node": node,
            "vendor": "Amazon EC2",
        }
        for number, node in enumerate(nodes, 1)
    }
    survey = {"addresses": rows, "control_planes": ["gpu1"]}
    return plan_of("kubernetes.cluster", survey, **{"cni": "bridge", **options})["refused"]  # type: ignore[no-any-return]


def test_amazon_drops_what_the_network_bridge_sends() -> None:
    """Instances do not see whether it does, and the network of a cluster cannot be changed later."""
    [refusal] = on_amazon(True, False)
    assert "gpu2 run on Amazon EC2." in refusal
    assert "kubernetes_cni: flannel" in refusal
    assert on_amazon(False, False, source_check_disabled=True) == []
    assert on_amazon(False, False, cni="flannel") == []
    assert on_amazon(True, True) == []
    assert on_amazon(False) == []


def test_tasks_have_to_run_as_root() -> None:
    [refusal] = refused(user="admin", uid=1000)
    assert "gpu1 is connected as admin, not as root." in refusal


@pytest.mark.parametrize(
    ("host", "params", "found", "examined"),
    [
        (HOST, {}, [], True),
        (HOST, {"wanted_gib": {"/usr": 3}, "free_gib": {"/usr": 1.0}}, ["SERVER_DISK_FULL"], True),
        (HOST, {"user": "admin", "uid": 1000}, ["SERVER_NOT_ROOT"], False),
        (replace(HOST, system="Debian 11"), {}, ["SERVER_SYSTEM_UNSUPPORTED"], False),
    ],
    ids=["fit", "full", "no root", "another system"],
)
def test_the_doctor_gets_the_findings_and_whether_the_roles_can_look(
    host: Host, params: dict[str, Any], found: list[str], examined: bool
) -> None:
    plan = plan_of("_common.server", {"user": "root", "uid": 0, **params}, host)

    assert plan["hop"] == "server"
    assert [finding["id"] for finding in plan["findings"]] == found
    assert plan["steps"]["examine"] is examined


ROOM = {
    "wanted_gib": {"/var/lib": 5, "/var/lib/containerd": 200},
    "free_gib": {"/var/lib": 100.0, "/var/lib/containerd": 99.5},
}


def test_room_is_needed_in_each_folder() -> None:
    [refusal] = refused(**ROOM)

    assert "gpu1 has too little free disk space: 99.5 GiB for /var/lib/containerd, wanted 200." in refusal
    assert "(`df -h /var/lib/containerd`)" in refusal


def test_a_node_has_what_it_needs_already() -> None:
    assert refused(replace(HOST, clusters=("/etc/kubernetes/kubelet.conf",)), **ROOM) == []


@pytest.mark.parametrize("wanted", [{"/var/lib": "5"}, {"/var/lib": 100}, {}])
def test_enough_room_is_no_reason(wanted: dict[str, Any]) -> None:
    assert refused(wanted_gib=wanted, free_gib=ROOM["free_gib"]) == []


def of_all(**params: Any) -> list[str]:
    return plan_of("_common.servers", params)["refused"]  # type: ignore[no-any-return]


def cluster(addresses: dict[str, Any], *control_planes: str, **options: Any) -> dict[str, Any]:
    survey = {"addresses": addresses, "control_planes": [*control_planes]}
    return plan_of("kubernetes.cluster", survey, **options)


PLAY = {"wanted": ["cp1", "cp2", "gpu1"]}


@pytest.mark.parametrize(
    ("remaining", "needed", "fail_fast", "missing"),
    [
        (["cp1", "cp2", "gpu1"], ["cp1"], True, ""),
        (["cp1", "cp2"], [], True, "gpu1"),
        (["cp1"], [], True, "cp2, gpu1"),
        (["cp1", "cp2"], ["cp1", "cp2"], False, ""),
        (["cp1", "gpu1"], ["cp1", "cp2"], False, "cp2"),
        (["gpu1"], ["cp9"], False, ""),
    ],
)
def test_a_server_that_may_not_be_left_out_ends_the_run(
    remaining: list[str], needed: list[str], fail_fast: Any, missing: str
) -> None:
    sentences = of_all(**PLAY, remaining=remaining, needed=needed, fail_fast=fail_fast)

    assert [f"server: {missing} did not answer" in sentence for sentence in sentences] == ([True] if missing else [])
    assert all(f"`ansible {missing.split(', ')[0]} -m ping`" in sentence for sentence in sentences)


def test_two_servers_of_one_name_are_reported() -> None:
    hostnames = {"cp1": "Ubuntu", "gpu1": "ubuntu", "gpu2": "gpu_2", "gpu3": "gpu-3.example"}
    invalid, shared = of_all(hostnames=hostnames)

    assert "server: cp1 and gpu1 have the same host name, ubuntu." in shared
    assert "server: gpu2 has the host name gpu_2." in invalid


@pytest.mark.parametrize("name", ["-gpu", "gpu-", "gpu_1", ""])
def test_a_name_that_no_node_can_have_is_reported(name: str) -> None:
    assert len(of_all(hostnames={"gpu1": name})) == 1


@pytest.mark.parametrize(("ahead", "words"), [(61, "61 s ahead of"), (-3600.4, "3600 s behind")])
def test_a_clock_that_differs_from_the_controller_s_is_reported(ahead: float, words: str) -> None:
    [refusal] = refused(clock_ahead=ahead)
    assert f"server: gpu1 has a clock that is {words} the controller's." in refusal
    assert "`timedatectl set-ntp true`" in refusal


@pytest.mark.parametrize("ahead", [0, 8.5, 60, -60])
def test_a_task_may_begin_late_on_a_busy_server(ahead: float) -> None:
    assert refused(clock_ahead=ahead) == []


def test_ports_that_are_not_reached_are_reported_together() -> None:
    [refusal] = refused(unreached={"10.0.0.2:2379": "no route to host", "10.0.0.1:6443": "no answer in 5 s"})
    assert "gpu1 does not reach 10.0.0.1:6443 (no answer in 5 s), 10.0.0.2:2379 (no route to host)." in refusal


def at(address: str, subnet: str = "", *, is_node: bool = False) -> dict[str, Any]:
    return {"address": address, "subnet": subnet, "is_node": is_node}


RACKS = {
    "cp1": at("10.0.1.1", "10.0.1.0/24"),
    **{f"a{number}": at(f"10.0.1.{number + 9}", "10.0.1.0/24") for number in range(6)},
    "b1": at("10.0.2.9", "10.0.2.0/24"),
}


def test_bridge_does_not_connect_racks_and_the_networks_that_do_are_named() -> None:
    [refusal] = cluster(RACKS, cni="bridge")["refused"]

    assert "are in several subnets: cp1, a0, a1, a2, a3 and 2 more in 10.0.1.0/24; b1 in 10.0.2.0/24." in refusal
    assert "Next: set kubernetes_cni: flannel, which works across subnets (cilium and calico do, too)" in refusal
    assert "kubernetes_node_ip" in refusal


@pytest.mark.parametrize("cni", ["flannel", "cilium", "calico", "manifest", "none"])
def test_other_networks_connect_racks(cni: str) -> None:
    assert cluster(RACKS, cni=cni)["refused"] == []


@pytest.mark.parametrize("other", [at("10.0.1.99", "10.0.1.0/24"), at("10.0.2.9")], ids=["one subnet", "unknown"])
def test_bridge_connects_servers_of_one_subnet(other: dict[str, Any]) -> None:
    assert cluster({"cp1": RACKS["cp1"], "b1": other}, cni="bridge")["refused"] == []


def reached(addresses: dict[str, Any], *control_planes: str, **options: Any) -> dict[str, list[str]]:
    return cluster(addresses, *control_planes, **options)["reached"]  # type: ignore[no-any-return]


THREE = {"cp1": at("10.0.0.1"), "cp2": at("2001:db8::2"), "gpu1": at("10.0.0.9")}


def test_what_a_server_has_to_reach_follows_from_what_it_is() -> None:
    assert reached(THREE, "cp1", "cp2") == {
        "cp1": [*(f"[2001:db8::2]:{port}" for port in (6443, 10250, 2379, 2380)), "10.0.0.9:10250"],
        "cp2": [*(f"10.0.0.1:{port}" for port in (6443, 10250, 2379, 2380)), "10.0.0.9:10250"],
        "gpu1": ["10.0.0.1:6443", "[2001:db8::2]:6443"],
    }


def test_an_etcd_elsewhere_has_no_port_on_control_planes() -> None:
    ports = reached(THREE, "cp1", "cp2", cluster_config='{"etcd": {"external": {}}}')
    assert [address for addresses in ports.values() for address in addresses if ":23" in address] == []


def test_nodes_that_work_already_are_not_asked_for_each_other() -> None:
    """A new server is: by the control planes, too."""
    nodes = {name: {**address, "is_node": name != "gpu1"} for name, address in THREE.items()}
    assert reached(nodes, "cp1", "cp2") == {
        "cp1": ["10.0.0.9:10250"],
        "cp2": ["10.0.0.9:10250"],
        "gpu1": ["10.0.0.1:6443", "[2001:db8::2]:6443"],
    }


def test_the_connections_of_a_large_fleet_grow_as_its_number() -> None:
    fleet = {f"gpu{number}": at(f"10.0.{number // 250}.{number % 250 + 1}") for number in range(500)}
    ports = reached({"cp1": at("10.1.0.1"), **fleet}, "cp1")
    assert sum(map(len, ports.values())) == 2 * 500


def test_each_finding_happens() -> None:
    sentences = [
        *refused(replace(HOST, system="Rocky 9")),
        *refused(uid=1),
        *refused(**ROOM),
        *of_all(**PLAY),
        *of_all(**PLAY, needed=["cp1"], fail_fast=False),
        *of_all(hostnames={"a": "x", "b": "x", "c": "_"}),
        *cluster(RACKS, cni="bridge")["refused"],
        *refused(clock_ahead=100, unreached={"10.0.0.1:6443": "no answer"}),
        *refused(replace(HOST, architecture="aarch64")),
        *plan_of("_common.server", {"user": "root", "uid": 0, "reboots_alone": True})["notices"],
        *on_amazon(False, False),
    ]
    assert unseen((*SERVER_CHECKS, *SERVERS_CHECKS), sentences) == []
