"""What roles wait for on nodes: a pod of each DaemonSet, and GPUs that are offered."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import (
    daemon_set_rollout,
    gpu_offers,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.gpu_nodes import runtime_class_users
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.servers import server_gpu_facts


def node(name: str = "n", ready: str = "True", **allocatable: str) -> dict[str, Any]:
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    offered = {f"nvidia.com/{key}": count for key, count in allocatable.items()}
    return {"metadata": {"name": name}, "status": {"conditions": conditions, "allocatable": {"cpu": "4"} | offered}}


def daemon_set(**status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 2}, "status": {"observedGeneration": 2, **status}}


def pods(ready: int, updated: int) -> dict[str, Any]:
    return daemon_set(numberReady=ready, updatedNumberScheduled=updated)


NODES = [node("a"), node("b"), node("down", "Unknown")]


@pytest.mark.parametrize(
    ("daemon_sets", "nodes", "expected"),
    [
        ([pods(2, 2)], NODES, (2, 2, True)),
        ([pods(1, 2)], NODES, (1, 2, False)),
        ([pods(2, 1)], NODES, (1, 2, False)),
        ([{**pods(2, 2), "metadata": {"generation": 3}}], NODES, (0, 2, False)),
        ([], NODES, (0, 2, False)),
        ([daemon_set()], [], (0, 0, True)),
        ([], [], (0, 0, False)),
        ([{"metadata": {"generation": 1}, "status": {"numberReady": 0}}], [], (0, 0, False)),
    ],
    ids=["ready", "one is not ready", "one is not new", "changed", "no exporter", "no node", "nothing", "made now"],
)
def test_each_ready_node_gets_a_pod(daemon_sets: list[Any], nodes: list[Any], expected: tuple[int, int, bool]) -> None:
    found = daemon_set_rollout(daemon_sets, nodes)
    assert (found["ready"], found["nodes"], found["is_complete"]) == expected


@pytest.mark.parametrize(
    ("offered", "waits"),
    [
        ({}, True),
        ({"gpu": "0"}, True),
        ({"gpu": "0", "hostdev": "8"}, True),
        ({"gpu": "8"}, False),
        ({"gpu": "0", "mig-1g.10gb": "7"}, False),
        ({"gpumem": "80k"}, False),
    ],
    ids=["no plugin", "a plugin that was removed", "network devices", "GPUs", "instances", "a quantity with a suffix"],
)
def test_a_node_offers_gpus_under_one_name_or_another(offered: dict[str, str], waits: bool) -> None:
    found = gpu_offers([node("gpu1", **offered), node("down", "False")])
    assert found["waiting"] == (["gpu1"] if waits else [])
    assert [ready["metadata"]["name"] for ready in found["ready"]] == ["gpu1"]


def test_what_each_node_offers_is_shown() -> None:
    nodes = [node("gpu1"), node("gpu2", gpu="8")]
    assert gpu_offers(nodes)["shown"] == "gpu1 0 nvidia.com/gpu, gpu2 8 nvidia.com/gpu"
    assert gpu_offers([])["shown"] == "nothing, because no such node is ready"


def runs_with(name: str, runtime_class: str | None = "nvidia", kind: str = "DaemonSet", **more: Any) -> dict[str, Any]:
    pod: dict[str, Any] = {"runtimeClassName": runtime_class} if runtime_class else {}
    template = {"template": {"spec": pod}}
    specs = {"Pod": pod, "CronJob": {"jobTemplate": {"spec": template}}}
    owners = [{"kind": owner, "name": "x"} for owner in more.pop("owners", ())]
    metadata = {"namespace": "gpus", "name": name, "ownerReferences": owners, **more.pop("metadata", {})}
    return {"kind": kind, "metadata": metadata, "spec": specs.get(kind, template), **more}


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Rollout", "CronJob", "Pod"])
def test_a_runtime_class_is_used_by_all_that_makes_pods_with_it(kind: str) -> None:
    objects = [runs_with("a", kind=kind), runs_with("other", "runc", kind), runs_with("none", None, kind)]
    assert runtime_class_users(objects, "nvidia") == f"{kind} gpus/a"
    assert runtime_class_users([], "nvidia") == ""


def test_pods_count_by_their_controller_and_only_as_long_as_they_run() -> None:
    """A removed DaemonSet leaves its pods behind for a moment."""
    objects = [
        *(runs_with(f"of-{owner}", kind="Pod", owners=[owner]) for owner in ("DaemonSet", "ReplicaSet", "StatefulSet")),
        runs_with("of-a-deployment", kind="ReplicaSet", owners=["Deployment"]),
        *(runs_with(phase, kind="Pod", status={"phase": phase}) for phase in ("Succeeded", "Failed")),
        runs_with("deleted", kind="Pod", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ]
    assert runtime_class_users(objects, "nvidia") == ""
    running = runs_with("training", kind="Pod", owners=["Job"], status={"phase": "Running"})
    group = runs_with("group", kind="StatefulSet", owners=["LeaderWorkerSet"])
    assert runtime_class_users([*objects, running, group], "nvidia") == "Pod gpus/training, StatefulSet gpus/group"


def test_in_check_mode_objects_of_the_inventory_do_not_use_a_runtime_class() -> None:
    released = {"kubegpu.autoscale/release": "exporter"}
    ours = runs_with("ours", metadata={"labels": {**released, "kubegpu.autoscale/inventory": "one"}})
    theirs = runs_with("theirs", metadata={"labels": {**released, "kubegpu.autoscale/inventory": "two"}})
    assert runtime_class_users([ours, theirs], "nvidia") == "DaemonSet gpus/ours, DaemonSet gpus/theirs"
    assert runtime_class_users([ours, theirs], "nvidia", without="one") == "DaemonSet gpus/theirs"


def test_facts_of_servers_have_the_names_of_their_nodes() -> None:
    facts = {"gpus": []}
    hostvars = {
        "a": {"ansible_facts": {"hostname": "GPU-A", "gpu_facts": facts}},
        "b": {"ansible_facts": {"hostname": "gpu-b", "gpu_facts": facts}, "kubernetes_node_name": "other"},
        "not-surveyed": {"ansible_facts": {"hostname": "c"}},
        "unreachable": {},
    }
    assert server_gpu_facts(list(hostvars), hostvars) == [
        {"node": "gpu-a", "facts": facts},
        {"node": "other", "facts": facts},
    ]


def test_facts_of_servers_have_what_a_proof_rests_on() -> None:
    described = "GPU 00000000:1B:00.0\n    Fabric\n        State                  : In Progress\n"
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n  MIG 1g.18gb     Device  0: (UUID: MIG-2)\n"
    host = {
        "ansible_facts": {"hostname": "a", "gpu_facts": {"gpus": []}},
        "nvidia_driver_expected_gpus": "8",
        "gpu_proof_described": {"stdout": described},
        "gpu_proof_listed": {"stdout": listed},
        "gpu_proof_toolkit": {"stdout": "NVIDIA Container Toolkit CLI version 1.19.0\ncommit: 0a1b"},
        "gpu_proof_toolkit_config": {"stat": {"exists": True, "checksum": "0123456789abcdef"}},
    }
    (found,) = server_gpu_facts(["a"], {"a": host})
    assert found["facts"] == {
        "gpus": [],
        "expected_gpus": 8,
        "fabric": {"00000000:1B:00.0": "In Progress"},
        "uuids": ["GPU-1", "MIG-2"],
        "toolkit": "1.19.0",
        "toolkit_config": "0123456789ab",
    }


def test_commands_that_failed_or_did_not_run_give_no_facts() -> None:
    failed = {"rc": 2, "msg": "no such file"}
    names = ("gpu_proof_described", "gpu_proof_listed", "gpu_proof_toolkit", "gpu_proof_toolkit_config")
    for result in (failed, {"skipped": True}, {"stat": {"exists": False}}):
        host = {"ansible_facts": {"hostname": "a", "gpu_facts": {"gpus": []}}, **dict.fromkeys(names, result)}
        assert server_gpu_facts(["a"], {"a": host}) == [{"node": "a", "facts": {"gpus": []}}]
