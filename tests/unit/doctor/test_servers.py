"""Servers of the inventory in the report: with a cluster, without one, and with one that does not answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.examine import examine_servers
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.cluster import Scope
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.servers import (
    ExaminedServer,
    NoCluster,
    ServerFinding,
    server_of,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import CHAIN, Hop
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.doctor_texts import failure, headline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.html import html
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.junit import junit
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.text import text_lines
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.textfile import textfile
from clusters import Cluster, crash, ids, node, turned
from collection import ROOT
from driver_machines import B200, L4, V100, Machine, plan
from jsonschema import Draft202012Validator

examined_servers = import_module(
    "ansible_collections.kubegpu.autoscale.plugins.module_utils.components.servers"
).examined_servers

SCHEMA = json.loads((ROOT / "docs" / "doctor" / "report.schema.json").read_text())
MISSING = NoCluster("there is no kubeconfig at /root/.kube/config", is_missing=True)
SILENT = NoCluster("https://192.0.2.1:6443 did not answer in time", is_missing=False)
NO_DRIVER = ServerFinding(
    "DRIVER_MISSING", Hop.DRIVER, "error", "has 2 GPUs and no driver", "no {driver}", "run nvidia_driver", True
)
HELD = ServerFinding("DRIVER_PACKAGES_HELD", Hop.DRIVER, "error", "has nvidia-smi on hold", "held", "unhold it")
NO_TOOLKIT = ServerFinding("TOOLKIT_MISSING", Hop.RUNTIME, "error", "has no toolkit", "none", "run it", True)
BOTH = (Hop.DRIVER, Hop.RUNTIME)


def alone(
    *servers: ExaminedServer, gap: NoCluster = MISSING, fail_on: str = "never", facts: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The report on servers without a cluster."""
    outcome = examine_servers(servers, gap, scope=Scope(), facts=facts or {}, fail_on=fail_on)
    report: dict[str, Any] = json.loads(json.dumps(outcome.result))
    Draft202012Validator(SCHEMA).validate(report)
    return report


def statuses(report: dict[str, Any], hops: Sequence[str]) -> list[str]:
    return [hop["status"] for hop in report["hops"] if hop["id"] in hops]


def test_servers_without_a_finding_and_without_a_cluster() -> None:
    report = alone(ExaminedServer("gpu1", "gpu1", hops=BOTH), ExaminedServer("cp1", "cp1", hops=BOTH))

    assert (report["verdict"], ids(report)) == ("partial", ["CLUSTER_MISSING"])
    assert statuses(report, ("server", *BOTH)) == ["ok"] * 3
    assert set(statuses(report, CHAIN)) == {"unknown"}
    assert set(report["unchecked_hops"]) == {*CHAIN}
    assert headline(report) == "No cluster was reached. On the servers no error was found, 2 of 2 servers examined"
    assert {row["finding"] for row in report["not_checked"]} == {"CLUSTER_MISSING"}
    assert report["cluster"]["reached"] is False


def test_a_bare_server_has_one_cause() -> None:
    report = alone(ExaminedServer("gpu1", "gpu1", hops=BOTH, findings=(NO_DRIVER, NO_TOOLKIT)))

    first, second = report["findings"]
    assert (report["verdict"], first["id"], second["id"]) == ("broken", "DRIVER_MISSING", "CLUSTER_MISSING")
    assert (first["object"], first["servers"], first["severity"]) == ("server gpu1", ["gpu1"], "error")
    assert (first["cause"], first["doc"]) == ("no {driver}", "docs/doctor/driver.md#driver_missing")
    assert first["consequences"] == ["Container runtime of a server: server gpu1: has no toolkit"]
    assert statuses(report, BOTH) == ["broken", "consequence"]
    assert failure(report).startswith("No cluster was reached. Broken on the servers: NVIDIA driver of a server:")


@pytest.mark.parametrize(
    ("known", "found"),
    [
        ({"driver_problem": "nvidia-smi fails"}, "DRIVER_BROKEN"),
        ({"driver_version_loaded": "580.95.05", "uvm_available": False}, "DRIVER_UVM_MISSING"),
        ({"fabric": {"0000:17:00.0": "In Progress"}}, "FABRIC_NOT_COMPLETED"),
        ({"expected_gpus": 8}, "GPU_MISSING"),
    ],
)
def test_without_a_cluster_the_facts_of_a_server_count_as_well(known: dict[str, Any], found: str) -> None:
    report = alone(ExaminedServer("gpu1", "gpu1", hops=BOTH), facts={"gpu1": {"gpus": [], **known}})

    assert (report["verdict"], ids(report)) == ("broken", [found, "CLUSTER_MISSING"])
    assert headline(report) == "No cluster was reached. Broken on the servers: GPU nodes and drivers"


def test_what_keeps_the_role_from_its_work_explains_what_is_missing() -> None:
    report = alone(ExaminedServer("gpu1", "gpu1", hops=BOTH, findings=(NO_DRIVER, NO_TOOLKIT, HELD)[::-1]))

    assert ids(report) == ["DRIVER_PACKAGES_HELD", "CLUSTER_MISSING"]
    assert len(report["findings"][0]["consequences"]) == 2


def test_servers_with_the_same_finding_and_another_fix_are_two_findings() -> None:
    other = ServerFinding(HELD.id, Hop.DRIVER, "error", HELD.seen, HELD.cause, "unhold another")
    found = [HELD, HELD, other]
    report = alone(*(ExaminedServer(f"gpu{n}", f"gpu{n}", hops=BOTH, findings=(f,)) for n, f in enumerate(found)))

    held = [finding for finding in report["findings"] if finding["id"] == HELD.id]
    assert [(finding["servers"], finding["fix"]) for finding in held] == [
        (["gpu0", "gpu1"], "unhold it"),
        (["gpu2"], "unhold another"),
    ]


@pytest.mark.parametrize(
    ("gap", "fail_on", "verdict", "errors"),
    [
        (MISSING, "error", "partial", 0),
        (MISSING, "warning", "partial", 2),
        (SILENT, "error", "broken", 1),
        (SILENT, "never", "broken", 0),
    ],
)
def test_a_cluster_that_does_not_answer_is_an_error_and_one_that_is_missing_is_none(
    gap: NoCluster, fail_on: str, verdict: str, errors: int
) -> None:
    outcome = examine_servers(
        [ExaminedServer("gpu1", "gpu1", hops=BOTH)], gap, scope=Scope(), facts={}, fail_on=fail_on
    )
    assert outcome.result["verdict"] == verdict
    assert len(outcome.errors) == errors
    assert gap.why in json.dumps(outcome.result["findings"])


def test_without_a_server_nothing_is_known() -> None:
    assert alone()["verdict"] == "unknown"


def test_a_server_that_cannot_be_reached_is_one_finding() -> None:
    report = alone(
        ExaminedServer("gpu1", "gpu1", hops=BOTH), ExaminedServer("gpu2", "gpu2", unreachable="Connection timed out")
    )

    assert (report["verdict"], ids(report)) == ("broken", ["SERVER_UNREACHABLE", "CLUSTER_MISSING"])
    assert "ansible gpu2 -m ping" in report["findings"][0]["fix"]
    assert [server["status"] for server in report["servers"]] == ["examined", "unreachable"]
    assert statuses(report, BOTH) == ["partial", "partial"]
    assert {"server", "driver", "runtime"} <= set(report["unchecked_hops"])


def without_gpus(name: str) -> Cluster:
    """A node that has GPUs by its label, and offers none because its device plugin fails."""
    cluster = Cluster(facts={})
    cluster.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    crash(cluster.pods[f"plugin-{name}"], "could not load NVML library")
    return cluster


def test_a_fault_of_a_server_is_the_cause_of_its_nodes() -> None:
    cluster = without_gpus("gpu1")
    assert ids(cluster.report()) == ["DEVICE_PLUGIN_NO_NVML"]

    cluster.servers = [ExaminedServer("rack1-gpu1", "gpu1", hops=BOTH, findings=(NO_DRIVER,))]
    report = cluster.report()
    [finding] = report["findings"]
    assert (finding["id"], finding["severity"], finding["servers"]) == ("DRIVER_MISSING", "error", ["rack1-gpu1"])
    assert any(words.startswith("Device plugin") for words in finding["consequences"])
    assert headline(report) == "The chain is broken at: NVIDIA driver of a server"


def test_another_servers_fault_is_not_the_cause() -> None:
    cluster = without_gpus("gpu1")
    cluster.servers = [ExaminedServer("gpu9", "gpu9", hops=BOTH, findings=(NO_DRIVER,))]
    assert sorted(ids(cluster.report())) == ["DEVICE_PLUGIN_NO_NVML", "DRIVER_MISSING"]


def test_a_server_is_not_explained_by_another_one() -> None:
    """Also if that one stands for all nodes with GPUs."""
    cluster = Cluster(nodes=[node("gpu1")], facts={})
    cluster.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    cluster.servers = [
        ExaminedServer("gpu1", "gpu1", hops=BOTH, findings=(HELD,)),
        ExaminedServer("gpu2", "gpu2", hops=BOTH, findings=(NO_DRIVER,)),
    ]
    assert {"DRIVER_PACKAGES_HELD", "DRIVER_MISSING"} <= set(ids(cluster.report()))


def test_a_server_whose_node_works_breaks_nothing() -> None:
    """The role would refuse to go on, and Ansible may not reach it: the pods have their GPUs all the same."""
    servers = [
        ExaminedServer("gpu1", "gpu1", hops=BOTH, findings=(HELD,)),
        ExaminedServer("gpu2", "gpu2", unreachable="Connection timed out"),
    ]
    report = Cluster(servers=servers).report()

    assert [(finding["id"], finding["severity"]) for finding in report["findings"]] == [
        ("SERVER_UNREACHABLE", "warning"),
        ("DRIVER_PACKAGES_HELD", "warning"),
    ]
    assert report["verdict"] == "partial"


def test_a_server_that_is_down_explains_its_node() -> None:
    cluster = Cluster(servers=[ExaminedServer("gpu1", "gpu1", unreachable="No route to host")])
    cluster.nodes[0]["status"]["conditions"] = [turned("Ready", "Unknown", 900, reason="NodeStatusUnknown")]
    report = cluster.report()

    assert ids(report) == ["SERVER_UNREACHABLE"]
    assert any(words.startswith("GPU nodes") for words in report["findings"][0]["consequences"])


def test_each_form_of_the_report_has_the_findings_of_servers() -> None:
    report = alone(ExaminedServer("gpu1", "gpu1", hops=BOTH, findings=(HELD,)))

    assert "server gpu1" in html(report)
    assert "1 of 1 server examined" in html(report)
    assert 'type="DRIVER_PACKAGES_HELD"' in junit(report)
    assert 'kubegpu_doctor_findings{id="DRIVER_PACKAGES_HELD",hop="driver",severity="error"} 1' in textfile(report)
    assert 'kubegpu_doctor_hop{hop="driver",status="broken"} 1' in textfile(report)
    lines = text_lines(report, width=200)
    assert "1. error DRIVER_PACKAGES_HELD" in lines
    assert lines[1].startswith("no cluster was reached; 1 of 1 server examined; ")


def test_a_report_without_servers_has_none_of_their_hops() -> None:
    report = Cluster().report()
    assert [hop["id"] for hop in report["hops"]] == ["access", *CHAIN]
    assert report["servers"] == []


def test_an_unknown_hop_is_refused() -> None:
    given = {"name": "gpu1", "node": "gpu1", "unreachable": "", "failed": "", "hops": ["warp"], "findings": []}
    with pytest.raises(HopError, match="servers: unknown hop 'warp'"):
        server_of(given)


# What a plan hands over.
def from_plan(folder: Path, machine: Machine, **survey: Any) -> ExaminedServer:
    gathered = {"ansible_facts": {}}
    planned = plan(folder, machine, **survey)
    hostvars = {folder.name: {"__gpu_doctor_gathered": gathered, "__nvidia_driver_plan": planned}}
    [given] = examined_servers([folder.name, *()], hostvars, ["nvidia_driver", "containerd"])
    return server_of(given)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine(devices=()), []),
        (Machine(), ["DRIVER_MISSING"]),
        (Machine(devices=(V100, B200)), ["DRIVER_FLAVOUR_MIXED"]),
        (Machine(options={"nvidia_driver_state": "absent"}), []),
        (Machine(options={"nvidia_driver_state": "existing"}), ["DRIVER_MISSING"]),
    ],
    ids=["no GPU", "bare", "no driver for both", "not wanted", "somebody else's driver is missing"],
)
def test_a_plan_is_what_the_report_is_made_of(tmp_path: Path, machine: Machine, expected: list[str]) -> None:
    server = from_plan(tmp_path, machine)

    assert server.hops == (Hop.DRIVER,)
    assert [found for found in ids(alone(server)) if found != "CLUSTER_MISSING"] == expected


def test_gpus_that_nvidia_smi_does_not_show_are_found(tmp_path: Path) -> None:
    machine = Machine(
        devices=(L4, L4),
        bound="nvidia",
        loaded="580.95.05",
        installed=["nvidia-driver-cuda install installed 580.95.05-1"],
    )
    shown = {"rc": 0, "stdout": "00000000:17:00.0, 580.95.05, Enabled"}
    assert "DRIVER_GPUS_NOT_SHOWN" in {found.id for found in from_plan(tmp_path, machine, shown=shown).findings}


def test_a_missing_gpu_is_left_to_the_facts(tmp_path: Path) -> None:
    server = from_plan(tmp_path, Machine(options={"nvidia_driver_expected_gpus": 8}))
    assert [found.id for found in server.findings] == ["DRIVER_MISSING"]


def test_the_server_itself_is_judged_besides_the_roles() -> None:
    found = {"id": "SERVER_NOT_ROOT", "hop": "server", "severity": "error", "seen": "is connected as admin"}
    found |= {"server": "gpu1", "cause": "none", "fix": "become", "doc": "", "is_consequence": False}
    plan_of_server = {"hop": "server", "findings": [found | {"explained_by": []}]}
    variables = {"gpu1": {"__gpu_doctor_gathered": {}, "_common_server_plan": plan_of_server}}
    [given] = examined_servers(["gpu1"], variables, ["nvidia_driver"])

    assert [finding.id for finding in server_of(given).findings] == ["SERVER_NOT_ROOT"]
    assert given["hops"] == ["server"]


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ({"msg": "cannot read the database"}, "cannot read the database"),
        (
            {"msg": "The following modules failed", "failed_modules": {"setup": {"msg": "Missing sudo password"}}},
            "Missing sudo password",
        ),
        ({"module_stderr": "sh: 1: python3: not found\n"}, "sh: 1: python3: not found"),
        ({}, "the task reported no reason"),
    ],
)
def test_a_failure_has_its_reason(failed: dict[str, Any], words: str) -> None:
    variables = {"gpu1": {"__gpu_doctor_gathered": {}, "__gpu_doctor_failed": failed}}
    [given] = examined_servers(["gpu1"], variables, ["nvidia_driver"])

    assert given["failed"] == words
    assert server_of(given).status == "failed"


def test_servers_that_the_run_did_not_examine_are_left_out() -> None:
    variables = {"gpu1": {}, "gpu2": {"__gpu_doctor_gathered": {"unreachable": True, "msg": "timed out\n"}}}
    [given] = examined_servers(["gpu1", "gpu2"], variables, ["nvidia_driver"])

    assert (given["name"], given["unreachable"], given["hops"]) == ("gpu2", "timed out", [])
