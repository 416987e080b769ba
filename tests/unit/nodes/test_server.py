"""Why a server cannot become a node, and why several cannot become one cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.checks.server import SERVER as SERVER_CHECKS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.checks.server import SERVERS as SERVERS_CHECKS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.host import Host
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.server_plan import (
    SERVER,
    SERVERS,
    server_plan,
    servers_plan,
)
from planned import HOST, planned, unseen


def refused(host: Host = HOST, **params: Any) -> list[str]:
    return planned(server_plan, SERVER, {"user": "root", "uid": 0, **params}, host)["refused"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("system", ["Debian 12", "Debian 13", "Ubuntu 22.04", "Ubuntu 24.04", "Ubuntu 26.04"])
def test_a_supported_system_is_one(system: str) -> None:
    assert refused(replace(HOST, system=system)) == []


@pytest.mark.parametrize("system", ["Rocky 9", "Debian 11", "Ubuntu 23.10"])
def test_another_system_is_reported_alone(system: str) -> None:
    [refusal] = refused(replace(HOST, system=system), user="admin", uid=1000)

    assert f"server: gpu1 runs {system}, which is not supported." in refusal
    assert "Debian 12, Debian 13, Ubuntu 22.04, Ubuntu 24.04 and Ubuntu 26.04" in refusal


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
    plan = planned(server_plan, SERVER, {"user": "root", "uid": 0, **params}, host)

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
    return planned(servers_plan, SERVERS, params)["refused"]  # type: ignore[no-any-return]


PLAY = {"wanted": ["cp1", "cp2", "gpu1"]}


@pytest.mark.parametrize(
    ("remaining", "needed", "fail_fast", "missing"),
    [
        (["cp1", "cp2", "gpu1"], ["cp1"], True, ""),
        (["cp1", "cp2"], [], True, "gpu1"),
        (["cp1"], [], "true", "cp2, gpu1"),
        (["cp1", "cp2"], ["cp1", "cp2"], "false", ""),
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


def test_each_finding_happens() -> None:
    sentences = [
        *refused(replace(HOST, system="Rocky 9")),
        *refused(uid=1),
        *refused(**ROOM),
        *of_all(**PLAY),
        *of_all(**PLAY, needed=["cp1"], fail_fast=False),
        *of_all(hostnames={"a": "x", "b": "x", "c": "_"}),
    ]
    assert unseen((*SERVER_CHECKS, *SERVERS_CHECKS), sentences) == []
