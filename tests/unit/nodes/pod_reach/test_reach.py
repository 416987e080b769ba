"""The proof that pods of all nodes reach each other: who is asked, and what a failure is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.pod_reach.checks import AFTER
from planned import plan_of


def plan(cni: str = "bridge", **survey: Any) -> dict[str, Any]:
    return plan_of("kubernetes.reach", survey, cni=cni)


def printed(value: Any) -> dict[str, Any]:
    return {"rc": 0, "stdout": json.dumps(value)}


def pod(name: str, node: str, *ips: str, owner: str = "this run") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "ownerReferences": [{"uid": owner}]},
        "spec": {"nodeName": node},
        "status": {"podIPs": [{"ip": ip} for ip in ips]} if ips else {},
    }


def test_pods_of_this_run_answer_and_the_dns_is_connected_to() -> None:
    made = plan(
        created=printed({"metadata": {"uid": "this run"}}),
        pods=printed(
            {
                "items": [
                    pod("a", "gpu1", "10.244.1.5", "2001:db8::5"),
                    pod("b", "gpu2"),
                    pod("c", "gpu2", "10.244.2.6", owner="a run that was killed"),
                ]
            }
        ),
        dns=printed({"items": [pod("dns", "cp1", "10.244.0.2", owner="another")]}),
    )
    assert made["peers"] == [
        {"address": "10.244.1.5:8080", "node": "gpu1", "pod": "uid-a"},
        {"address": "[2001:db8::5]:8080", "node": "gpu1", "pod": "uid-a"},
        {"address": "10.244.0.2:53", "node": "cp1", "pod": ""},
    ]
    assert (made["port"], made["broken"]) == (8080, [])


PEERS = [
    {"address": "10.244.1.5:8080", "node": "gpu1", "pod": "1"},
    {"address": "10.244.2.5:8080", "node": "gpu2", "pod": "2"},
]
MISSED = {"result": {"missed": {"10.244.2.5:8080": "timed out"}}}
FAILED = {"msg": "non-zero return code", "stderr": "Unable to connect to the server"}
BROKEN = {
    "the bridge": (
        "KUBERNETES_BRIDGE_APART",
        {"peers": PEERS, "pod": "1", "asked": MISSED, "failure": FAILED},
        "gpu1 has a pod that does not reach pods of other nodes: 10.244.2.5:8080 on gpu2: timed out.",
    ),
    "another network": (
        "KUBERNETES_NETWORK_APART",
        {"cni": "calico", "peers": PEERS, "pod": "1", "asked": MISSED, "failure": FAILED},
        "UDP 4789 of calico",
    ),
    "no pod": (
        "KUBERNETES_NO_POD",
        {"peers": PEERS[1:], "failure": {"msg": "pod is empty"}},
        "gpu1 has no pod that got an address within 300 s",
    ),
    "no DaemonSet": (
        "KUBERNETES_NO_POD",
        {"failure": FAILED},
        "gpu1 could not prove that pods reach each other: Unable to connect to the server",
    ),
    "a task without words": ("KUBERNETES_NO_POD", {"peers": PEERS, "pod": "1", "failure": {"rc": 1}}, "no answer"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_keeps_pods_apart_is_named(name: str) -> None:
    finding, given, words = BROKEN[name]
    [said] = plan(**given)["broken"]

    assert words in said
    assert f"docs/doctor/kubernetes.md#{finding.lower()}" in said


def test_each_finding_happens() -> None:
    happened = {finding for finding, _given, _words in BROKEN.values()}
    assert {kind.id for check in AFTER for kind in check.types} == happened
