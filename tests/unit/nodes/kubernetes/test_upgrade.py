"""An upgrade of Kubernetes on a node: what it refuses, and what it does node by node."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.kubernetes.checks import UPGRADE
from kubernetes_nodes import CONTROL_PLANE, FOLDER, KUBELET_CONF, WORKER, Node, encoded

UPGRADING = f"{FOLDER}/upgrading"


def survey(cluster: str, installed: str, **more: Any) -> dict[str, Any]:
    """What is read of the cluster and of the node's packages."""
    record = yaml.safe_dump({"kubernetesVersion": f"v{cluster}"})
    return {
        "packages": {"rc": 0, "stdout": f"kubelet {installed}-1.1\nkubeadm {installed}-1.1"},
        "kubeadm_config": {"resources": [{"data": {"ClusterConfiguration": record}}]},
        **more,
    }


def node(cluster: str = "1.35.2", installed: str = "1.35.2", **more: Any) -> Node:
    return Node(files=CONTROL_PLANE, has_kubeconfig=True, survey=survey(cluster, installed, **more))


REFUSED: dict[str, tuple[str, Node, str, str]] = {
    "a bare server": (
        "KUBERNETES_NOT_A_NODE",
        Node(has_kubeconfig=True),
        "1.36.3",
        "cp1 is not a node that this role has joined to a cluster",
    ),
    "a node of another cluster": (
        "KUBERNETES_NOT_A_NODE",
        Node(files=(KUBELET_CONF,), has_kubeconfig=True),
        "1.36.3",
        "or leave the host out",
    ),
    "no kubeconfig": (
        "KUBERNETES_NOT_A_NODE",
        Node(files=CONTROL_PLANE),
        "1.36.3",
        "/nowhere/kubeconfig is not on the controller",
    ),
    "a version that is no release": ("KUBERNETES_VERSION_UNFIT", node(), "1.36", "kubernetes_version 1.36."),
    "a cluster without kubeadm's record": (
        "KUBERNETES_RELEASE_UNKNOWN",
        node(kubeadm_config={"api_found": False, "resources": []}),
        "1.36.3",
        "cp1 belongs to a cluster without kubeadm's record",
    ),
    "an older one than the cluster": (
        "KUBERNETES_DOWNGRADE",
        node("1.36.3", "1.35.2"),
        "1.36.2",
        "cp1 has 1.35.2, the cluster 1.36.3, and kubernetes_version is older: 1.36.2",
    ),
    "an older one than the node": ("KUBERNETES_DOWNGRADE", node("1.35.2", "1.36.3"), "1.36.2", "kubernetes_version"),
    "a skipped minor": (
        "KUBERNETES_MINOR_SKIPPED",
        node("1.34.10", "1.34.10"),
        "1.36.3",
        "set kubernetes_version to a release of 1.35, run this, then continue with the next release",
    ),
    "another major": ("KUBERNETES_MINOR_SKIPPED", node(), "2.0.0", "kubernetes_version is 2.0.0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_kubernetes_does_not_support_is_rejected(name: str) -> None:
    finding, server, version, words = REFUSED[name]
    [refusal] = server.plan(version=version)["upgrade"]["refused"]

    assert words in refusal
    assert f"#{finding.lower()})" in refusal
    assert "Nothing was changed." in refusal


def test_each_finding_of_an_upgrade_happens() -> None:
    happened = {finding for finding, _node, _version, _words in REFUSED.values()}
    assert {kind.id for check in UPGRADE for kind in check.types} == happened


@pytest.mark.parametrize("version", ["1.35.2", "1.35.10-*", "1.36.3"], ids=["the same", "a patch", "the next minor"])
def test_the_next_release_is_supported(version: str) -> None:
    """As numbers: 1.35.10 is later than 1.35.2."""
    assert node().plan(version=version)["upgrade"]["refused"] == []


def reported(release: str, cordoned: bool = False) -> dict[str, Any]:
    spec = {"unschedulable": True} if cordoned else {}
    resources = [{"spec": spec, "status": {"nodeInfo": {"kubeletVersion": f"v{release}"}}}]
    return {"node_before": {"resources": resources}}


@pytest.mark.parametrize(
    ("server", "is_required"),
    [
        (node("1.36.3", "1.36.3", **reported("1.36.3")), False),
        (node("1.36.3", "1.35.2", **reported("1.35.2")), True),
        (node("1.36.3", "1.35.2", **reported("1.36.3")), True),
        (node("1.36.3", "1.36.3", **reported("1.35.2")), True),
        (
            Node(
                files=(*CONTROL_PLANE, UPGRADING),
                has_kubeconfig=True,
                survey=survey("1.36.3", "1.36.3", **reported("1.36.3")),
            ),
            True,
        ),
    ],
    ids=["done", "both", "packages", "the kubelet runs as before", "it did not end"],
)
def test_what_is_done_is_not_done_again(server: Node, is_required: bool) -> None:
    assert server.plan(version="1.36.3")["upgrade"]["required"] is is_required


def test_it_is_written_down_what_was_before() -> None:
    first = node(**reported("1.35.2", cordoned=True)).plan(version="1.36.3")["upgrade"]
    later = node(cluster="1.36.3", **reported("1.35.2")).plan(version="1.36.3")["upgrade"]

    assert first["record"] == {"apply": True, "cordoned": True}
    assert later["record"] == {"apply": False, "cordoned": False}


def before(**record: bool) -> dict[str, Any]:
    return {"before": {"content": encoded(json.dumps(record))}}


@pytest.mark.parametrize(
    ("files", "record", "command"),
    [
        (CONTROL_PLANE, {"apply": True, "cordoned": False}, "apply --yes v1.36.3"),
        (CONTROL_PLANE, {"apply": False, "cordoned": False}, "node"),
        (WORKER, {"apply": True, "cordoned": False}, "node"),
    ],
    ids=["the first control plane", "another one", "a worker"],
)
def test_the_first_control_plane_upgrades_the_cluster(
    files: tuple[str, ...], record: dict[str, bool], command: str
) -> None:
    planes = ("cp1",) if files == CONTROL_PLANE else ("cp0",)
    server = Node(
        planes=planes, files=files, has_kubeconfig=True, survey=survey("1.36.3", "1.35.2", **before(**record))
    )
    upgrade = server.plan(version="1.36.3", ignore_preflight_errors="NumCPU,Mem")["upgrade"]

    assert " ".join(upgrade["command"]) == (
        f"kubeadm upgrade {command} --patches {FOLDER}/patches --ignore-preflight-errors=NumCPU,Mem"
    )


@pytest.mark.parametrize(("cordoned", "uncordons"), [(True, False), (False, True)])
def test_a_node_that_took_no_pods_before_takes_none_afterwards(cordoned: bool, uncordons: bool) -> None:
    server = node(**before(apply=True, cordoned=cordoned))
    assert server.plan(version="1.36.3")["upgrade"]["uncordon"] is uncordons


def test_kubeadm_comes_before_the_kubelet() -> None:
    packages = node().plan(version="1.36.3")["packages"]

    assert packages["kubeadm"]["packages"] == ["kubeadm"]
    assert packages["kubeadm"]["pinned"] == packages["apt"]["packages"] == ["kubelet", "kubeadm", "kubectl"]
