"""What the role kubernetes rejects before it changes a server."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from hashlib import sha1
from itertools import product
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.kubernetes.checks import (
    ALL,
    ALWAYS,
    BEFORE,
    CHANGES,
    DOCTOR,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.kubernetes.paths import (
    APPLIED,
    KUBELET_LINK,
    NETWORK_UNIT,
)
from kubernetes_nodes import (
    CONTROL_PLANE,
    FOLDER,
    INITIALISED,
    KUBELET_CONF,
    NOW,
    PIN,
    RELEASE,
    WORKER,
    Node,
    encoded,
    etcd,
    listed,
)

BARE = Node()
MEMBER = Node(files=CONTROL_PLANE)
GPU = Node(name="gpu1", planes=("cp0",), elsewhere={"cp0": True})
GPU_MEMBER = Node(name="gpu1", planes=("cp0",), elsewhere={"cp0": True}, files=WORKER)
SILENT = Node(name="new", planes=("cp2",), silent=("cp2",))
TWO = {"control_plane_endpoint": "k8s.example:6443"}
PACKAGES = {"packages": {"rc": 0, "stdout": "kubelet 1.35.2-1.1\nkubeadm 1.35.2-1.1"}}


def applied(**cluster: Any) -> dict[str, Any]:
    """What MEMBER was given, with these fields in place of those of the defaults."""
    before = yaml.safe_load(MEMBER.plan()["kubeadm"]["applied"])
    return before | {"cluster": before["cluster"] | cluster}


def gates(text: str) -> dict[str, Any]:
    """Of both programs, in a ClusterConfiguration."""
    arguments = {"extraArgs": [{"name": "feature-gates", "value": text}]}
    return {"apiServer": arguments, "controllerManager": arguments}


ZERO = gates("A=false,HPAScaleToZero=true")
TO_ZERO = listed(
    *(
        {"metadata": {"namespace": "ml", "name": name}, "spec": spec}
        for name, spec in {"chat": {"minReplicas": 0}, "embed": {"minReplicas": 1}, "plain": {}}.items()
    )
)
SUBNETS = {"podSubnet": "10.9.0.0/16", "serviceSubnet": "10.96.0.0/12"}
TIMEOUT = {"status": -1, "msg": "Request failed: <urlopen error timed out>"}
NO_NAME = {"status": -1, "msg": "Request failed: <urlopen error [Errno -2] Name or service not known>"}
CLOSED = {"status": -1, "msg": "Request failed: <urlopen error [Errno 111] Connection refused>"}
BEHIND = {"control_plane_endpoint": "k8s.example:8443"}
SERVER_API = {"survey": {"api": {"status": 401}}}
URL = "https://example.org/cni.yaml"
CNI = "/etc/cni/net.d"
WANTS = "/etc/systemd/system/multi-user.target.wants"

# Finding: a server, options, and words of the message.
REFUSED: dict[str, tuple[str, Node, dict[str, Any], str]] = {
    "a node of another kubeadm cluster": (
        "KUBERNETES_FOREIGN_CLUSTER",
        Node(files=(KUBELET_CONF,)),
        {},
        "cp1 belongs to a cluster that this role did not create: /etc/kubernetes/kubelet.conf",
    ),
    "the same, to be removed": (
        "KUBERNETES_FOREIGN_CLUSTER",
        Node(files=(KUBELET_CONF,)),
        {"state": "absent"},
        "run `kubeadm reset` on the server",
    ),
    "a worker leaves beside a control plane that stays": (
        "KUBERNETES_LEAVES_BESIDE",
        Node(name="gpu1", planes=("cp0",), files=WORKER, others={"cp0": True}),
        {"state": "absent"},
        "gpu1 is to leave the cluster, and cp0 of the same run to stay",
    ),
    "a worker whose control planes are silent leaves": (
        "KUBERNETES_CANNOT_LEAVE",
        Node(name="gpu1", planes=("cp2",), silent=("cp2",), files=WORKER),
        {"state": "absent"},
        "its control planes cp2 do not answer",
    ),
    "a relative kubeconfig": (
        "KUBERNETES_KUBECONFIG_RELATIVE",
        Node(kubeconfig=".kube/config"),
        {},
        "has the relative path .kube/config as kubegpu_kubeconfig, which would be a file in /collection/playbooks. "
        "Cause: the kubeconfig is shared by playbooks in several folders, so its path has to be absolute. "
        "Nothing was changed. Next: set kubegpu_kubeconfig to /here/.kube/config",
    ),
    "a node of k3s": (
        "KUBERNETES_OTHER_DISTRIBUTION",
        Node(clusters=(KUBELET_CONF, "/etc/rancher/k3s")),
        {},
        "cp1 belongs to a cluster of another distribution: it has /etc/rancher/k3s.",
    ),
    "a node of EKS": (
        "KUBERNETES_OTHER_DISTRIBUTION",
        Node(clusters=("/var/lib/kubelet/kubeconfig",)),
        {},
        "it has /var/lib/kubelet/kubeconfig.",
    ),
    "no control plane": ("KUBERNETES_NO_CONTROL_PLANE", Node(name="gpu1", planes=()), {}, "has 0 hosts"),
    "two control planes without an address": (
        "KUBERNETES_ENDPOINT_MISSING",
        Node(planes=("cp1", "cp2"), others={"cp2": False}),
        {},
        "kube_control_plane has 2 hosts",
    ),
    "a minor version": ("KUBERNETES_VERSION_UNFIT", BARE, {"version": "1.36"}, "kubernetes_version 1.36."),
    "an old release": ("KUBERNETES_VERSION_UNFIT", BARE, {"version": "1.33.9"}, "kubernetes_version 1.33.9."),
    "a node with another release": (
        "KUBERNETES_VERSION_DIFFERS",
        Node(files=CONTROL_PLANE, survey=PACKAGES),
        {},
        f"cp1 has Kubernetes 1.35.2, kubernetes_version is {RELEASE}",
    ),
    "a kubeconfig and no cluster": (
        "KUBERNETES_KUBECONFIG_OF_OTHER_CLUSTER",
        Node(has_kubeconfig=True),
        {},
        "cp1 is in no cluster, and /nowhere/kubeconfig on the controller is of one",
    ),
    "a worker beside silent control planes": (
        "KUBERNETES_CONTROL_PLANES_SILENT",
        SILENT,
        {},
        "new is in no cluster, and control planes that may have one do not answer: cp2",
    ),
    "an API server at the address": (
        "KUBERNETES_API_SERVER_EXISTS",
        Node(**SERVER_API),
        TWO,
        "cp1 is in no cluster and would create one, but an API server answers at k8s.example:6443",
    ),
    "a firewall before the API server": (
        "KUBERNETES_API_SERVER_UNREACHABLE",
        Node(survey={"api": TIMEOUT}),
        {},
        "would have its API server at 192.0.2.1:6443, which the controller does not reach (urlopen error timed out)",
    ),
    "a worker in kube_control_plane": (
        "KUBERNETES_WORKER_TO_CONTROL_PLANE",
        Node(files=WORKER),
        {},
        "cp1 is a worker of the cluster, and the inventory has it in kube_control_plane",
    ),
    "another subnet of pods": (
        "KUBERNETES_FIXED_FIELDS",
        Node(files=CONTROL_PLANE, applied=applied(networking=SUBNETS)),
        {},
        'networking is {"podSubnet": "10.9.0.0/16", "serviceSubnet": "10.96.0.0/12"}, wanted is '
        '{"podSubnet": "10.244.0.0/16", "serviceSubnet": "10.96.0.0/12"}',
    ),
    "another pod network": (
        "KUBERNETES_NETWORK_CHANGED",
        Node(files=CONTROL_PLANE, applied=applied()),
        {"cni": "cilium"},
        "has the pod network bridge, and kubernetes_cni is cilium",
    ),
    "another pod network than that of a worker": (
        "KUBERNETES_NETWORK_CHANGED",
        Node(
            name="gpu1", planes=("cp0",), elsewhere={"cp0": True}, files=WORKER, applied={"network": {"cni": "cilium"}}
        ),
        {"cni": "flannel"},
        "set kubernetes_cni: cilium",
    ),
    "another pod network than that of an earlier release, which has not recorded it": (
        "KUBERNETES_NETWORK_CHANGED",
        Node(files=(*CONTROL_PLANE, NETWORK_UNIT)),
        {"cni": "flannel"},
        "has the pod network bridge",
    ),
    "a feature gate that HPAs need": (
        "KUBERNETES_ZERO_ENDS",
        Node(files=CONTROL_PLANE, applied=applied(**ZERO), survey={"hpas": TO_ZERO}),
        {"cluster_config": gates("HPAScaleToZero=false")},
        "cp1 would turn the feature gate HPAScaleToZero of kube-apiserver and kube-controller-manager off, and HPAs "
        "have a minimum of 0: ml/chat",
    ),
    "a manifest without its network": (
        "KUBERNETES_MANIFEST_OPTIONS",
        BARE,
        {"cni_manifest": "/cni.yaml"},
        "kubernetes_cni bridge and kubernetes_cni_manifest /cni.yaml",
    ),
    "a network without its manifest": (
        "KUBERNETES_MANIFEST_OPTIONS",
        BARE,
        {"cni": "manifest"},
        "kubernetes_cni manifest and kubernetes_cni_manifest empty",
    ),
    "an address without a digest": (
        "KUBERNETES_MANIFEST_UNVERIFIED",
        BARE,
        {"cni": "manifest", "cni_manifest": URL},
        f"kubernetes_cni_manifest {URL} without a checksum",
    ),
    "IPv6 by the bridge": (
        "KUBERNETES_BRIDGE_IPV4",
        BARE,
        {"pod_subnet": "10.244.0.0/16,2001:db8::/56"},
        "kubernetes_node_ip empty",
    ),
    "flannel's file before the bridge's": (
        "KUBERNETES_OTHER_NETWORK",
        Node(files=(f"{CNI}/10-flannel.conflist",)),
        {},
        f"Next: on the server: `rm {CNI}/10-flannel.conflist`, if no cluster uses it any more",
    ),
    "swap": (
        "KUBERNETES_SWAP_ON",
        Node(swaps=("/swap.img", "/dev/sdb1")),
        {"swap": "refuse"},
        "cp1 swaps: /swap.img, /dev/sdb1",
    ),
    "zram": (
        "KUBERNETES_SWAP_AT_BOOT",
        Node(files=(f"{WANTS}/zramswap.service",)),
        {},
        "on the server: `systemctl disable --now zramswap.service`",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_rejected_before_a_change(name: str) -> None:
    finding, node, options, words = REFUSED[name]
    [refusal] = node.plan(**options)["refused"]

    assert words in refusal
    assert f"docs/doctor/kubernetes.md#{finding.lower()}" in refusal
    assert "Nothing was changed." in refusal


FOREIGN = ("KUBERNETES_FOREIGN_CLUSTER", "KUBERNETES_OTHER_DISTRIBUTION")


@pytest.mark.parametrize("name", REFUSED)
def test_the_doctor_gets_it_unless_the_cluster_is_not_ours(name: str) -> None:
    finding, node, options, _words = REFUSED[name]
    plan = node.plan(**options)

    assert plan["hop"] == "kubernetes"
    assert [found["id"] for found in plan["findings"]] == ([] if finding in FOREIGN else [finding])


def test_each_finding_before_a_change_happens() -> None:
    happened = {finding for finding, _node, _options, _words in REFUSED.values()}
    assert {kind.id for check in ALWAYS + BEFORE for kind in check.types} == happened


ALLOWED: dict[str, tuple[Node, dict[str, Any]]] = {
    "a CA that was prepared for kubeadm": (Node(clusters=("/etc/kubernetes/pki/ca.crt",)), {}),
    "a network where the role had installed none": (
        Node(files=CONTROL_PLANE, applied=applied() | {"network": {"cni": "none"}}),
        {"cni": "flannel"},
    ),
    "a bare server": (BARE, {}),
    "a bare worker": (GPU, {}),
    "a control plane of this cluster": (MEMBER, {}),
    "one that stays as it was": (Node(files=CONTROL_PLANE, applied=applied()), {}),
    "a worker of this cluster": (GPU_MEMBER, {}),
    "a control plane whose join was interrupted": (Node(files=(FOLDER, KUBELET_CONF)), {}),
    "a worker whose run was interrupted": (Node(name="gpu1", planes=("cp0",), files=(FOLDER,)), {}),
    "a worker that leaves by itself": (GPU_MEMBER, {"state": "absent"}),
    "all leave": (
        Node(name="gpu1", planes=("cp0",), files=WORKER, others={"cp0": True}, other_state="absent"),
        {"state": "absent"},
    ),
    "a bare server leaves beside one that stays": (
        Node(name="gpu1", planes=("cp0",), others={"cp0": True}),
        {"state": "absent"},
    ),
    "a worker leaves where the inventory has no control plane": (
        Node(name="gpu1", planes=(), files=WORKER),
        {"state": "absent"},
    ),
    "a worker leaves by another control plane": (
        Node(name="gpu1", planes=("cp1", "cp2"), silent=("cp2",), elsewhere={"cp1": True}, files=WORKER),
        {"state": "absent"},
    ),
    "a worker joins by another control plane": (
        Node(name="gpu1", planes=("cp1", "cp2"), silent=("cp2",), elsewhere={"cp1": True}),
        TWO,
    ),
    "a member of silent control planes": (
        Node(name="gpu1", planes=("cp1", "cp2"), silent=("cp1", "cp2"), files=WORKER),
        TWO,
    ),
    "a kubeconfig in the home folder": (Node(kubeconfig="~/.kube/config"), {}),
    "a kubeconfig of this cluster": (Node(files=CONTROL_PLANE, has_kubeconfig=True), {}),
    "a kubeconfig, and a worker that joins": (
        Node(name="gpu1", planes=("cp0",), elsewhere={"cp0": True}, has_kubeconfig=True),
        {},
    ),
    "two control planes with an address": (Node(planes=("cp1", "cp2"), others={"cp2": False}), TWO),
    "a node without the package": (Node(files=CONTROL_PLANE, survey={"packages": {"rc": 1, "stdout": ""}}), {}),
    "a node with this release": (
        Node(files=CONTROL_PLANE, survey={"packages": {"rc": 0, "stdout": f"kubelet {RELEASE}-1.1"}}),
        {},
    ),
    "nothing listens yet": (Node(survey={"api": CLOSED}), {}),
    "a load balancer that closes": (Node(survey={"api": CLOSED}), BEHIND),
    "a load balancer that is silent": (Node(survey={"api": TIMEOUT}), BEHIND),
    "a load balancer without servers": (Node(survey={"api": {"status": 503}}), BEHIND),
    "an API server that nobody has asked": (Node(survey={"api": {"skipped": True}}), {}),
    "other flags of the scheduler": (
        Node(files=CONTROL_PLANE, applied=applied()),
        {"cluster_config": {"scheduler": {"extraArgs": [{"name": "v", "value": "4"}]}}},
    ),
    "a node that was given something unknown": (Node(files=CONTROL_PLANE), {"pod_subnet": "10.9.0.0/16"}),
    "a digest": (BARE, {"cni": "manifest", "cni_manifest": URL, "cni_manifest_checksum": "sha256:1"}),
    "a manifest by its path": (BARE, {"cni": "manifest", "cni_manifest": "/cni.yaml"}),
    "IPv6 by cilium": (BARE, {"cni": "cilium", "pod_subnet": "10.244.0.0/16,2001:db8::/56"}),
    "flannel's file, and flannel": (Node(files=(f"{CNI}/10-flannel.conflist",)), {"cni": "flannel"}),
    "cilium's file, and cilium": (Node(files=(f"{CNI}/05-cilium.conflist",)), {"cni": "cilium"}),
    "podman's file": (Node(files=(f"{CNI}/87-podman-bridge.conflist",)), {}),
    "the bridge's own file": (Node(files=(f"{CNI}/10-kubegpu.conflist",)), {}),
    "a node, and another network's file": (Node(files=(*CONTROL_PLANE, f"{CNI}/05-cilium.conflist")), {}),
    "swap that the kubelet runs with": (Node(swaps=("/swap.img",)), {"swap": "allow"}),
    "swap that is turned off": (Node(swaps=("/swap.img",)), {}),
    "a node with swap": (Node(files=CONTROL_PLANE, swaps=("/swap.img",)), {"swap": "refuse"}),
    "zram that the kubelet runs with": (Node(files=(f"{WANTS}/zramswap.service",)), {"swap": "allow"}),
    "zram that is masked": (Node(files=("/etc/systemd/system/zramswap.service",)), {}),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_can_work_is_not_rejected(name: str) -> None:
    node, options = ALLOWED[name]
    assert node.plan(**options)["refused"] == []


@pytest.mark.parametrize("planes", [("cp1", "cp2", "new"), ("cp1", "cp2")], ids=["a control plane", "a worker"])
@pytest.mark.parametrize(
    ("silent", "elsewhere", "is_refused"),
    [(("cp1", "cp2"), {}, True), (("cp2",), {"cp1": False}, True), (("cp2",), {"cp1": True}, False)],
    ids=["all are silent", "the other has no cluster", "one has a cluster"],
)
def test_a_server_joins_by_any_control_plane_and_makes_no_cluster_beside_silent_ones(
    planes: tuple[str, ...], silent: tuple[str, ...], elsewhere: dict[str, bool], is_refused: bool
) -> None:
    new = Node(name="new", planes=planes, silent=silent, elsewhere=elsewhere)
    assert ("#kubernetes_control_planes_silent" in new.refused(**TWO)) == is_refused


MEMBERS = ("none", "healthy", "unhealthy", "down", "never started", "learner")


@pytest.mark.parametrize("of_the_run", [(), ("cp2",), ("cp2", "cp3")], ids=len)
@pytest.mark.parametrize("states", list(product(MEMBERS, repeat=2)), ids="-".join)
def test_a_cluster_ends_only_with_all_members_of_etcd(of_the_run: tuple[str, ...], states: tuple[str, str]) -> None:
    """The inventory names those of the run alone. The answer of etcd, which may be none, says who else is there."""
    others = dict(zip(("cp2", "cp3"), states, strict=True))
    known = {name: state for name, state in others.items() if state != "none"}
    listed_by_etcd = etcd(**known, cp1="healthy")
    for member in listed_by_etcd["etcd"]["json"]["members"]:
        if others.get(member["name"]) == "never started":
            member["name"] = ""
    for survey in (listed_by_etcd, {}):
        leaves = Node(
            planes=("cp1", *of_the_run), files=CONTROL_PLANE, survey=survey, others=dict.fromkeys(of_the_run, True),
            other_state="absent", addresses=("192.0.2.9",),
        ).plan(state="absent")  # fmt: skip
        outside = {name for name, state in known.items() if state != "never started"} - {*of_the_run}

        assert leaves["steps"]["ask_etcd"]
        assert leaves["etcd_at"] == "cp1"
        assert bool(leaves["leaving"]["refused"]) == bool(survey and outside)
        assert all(name in str(leaves["leaving"]["refused"]) for name in outside if survey)


@pytest.mark.parametrize("outside", list(product(("complete", "bare", "silent", "of the run"), repeat=2)))
def test_a_control_plane_ends_its_cluster_only_if_no_other_may_remain(outside: tuple[str, str]) -> None:
    """One that the run leaves out and that does not answer may still work, with a majority that this one is part of."""
    of = dict(zip(("cp2", "cp3"), outside, strict=True))
    leaves = Node(
        planes=("cp1", *of),
        files=CONTROL_PLANE,
        hosts=("cp1", *(name for name, kind in of.items() if kind == "of the run")),
        elsewhere={name: kind == "complete" for name, kind in of.items() if kind in ("complete", "bare")},
        silent=tuple(name for name, kind in of.items() if kind == "silent"),
    ).plan(state="absent")

    ends = leaves["steps"]["end_cluster"] and not leaves["refused"]
    assert ends == (not {"complete", "silent"} & {*outside})
    assert bool(leaves["refused"]) == ("silent" in outside and "complete" not in outside)


@pytest.mark.parametrize(
    ("hosts", "state", "is_refused"),
    [({"cp0": True}, "present", True), ({"cp0": True}, "absent", False), ({}, "present", False)],
    ids=["beside one that stays", "all leave", "by itself"],
)
def test_a_server_leaves_in_a_run_of_its_own(hosts: dict[str, bool], state: str, is_refused: bool) -> None:
    """Only a control plane that the run does not touch is asked to drain it and to forget it."""
    elsewhere = {} if hosts else {"cp0": True}
    gpu1 = Node(name="gpu1", planes=("cp0",), files=WORKER, others=hosts, other_state=state, elsewhere=elsewhere)
    assert ("#kubernetes_leaves_beside" in gpu1.refused(state="absent")) == is_refused


@pytest.mark.parametrize("path", ["kubeconfig", ".kube/config"])
def test_a_relative_kubeconfig_is_rejected_when_a_node_leaves_as_well(path: str) -> None:
    node = Node(kubeconfig=path)
    assert f"the relative path {path}" in node.refused(state="absent")


@pytest.mark.parametrize("status", [200, 401, 403])
def test_no_second_cluster_is_made_where_an_api_server_answers(status: int) -> None:
    said = Node(survey={"api": {"status": status}}).refused(**TWO)
    assert "an API server answers at k8s.example:6443" in said


@pytest.mark.parametrize(
    ("answer", "options", "asked"),
    [
        (NO_NAME, {"api_address": "api.example"}, "api.example:6443"),
        (NO_NAME, BEHIND, "k8s.example:8443"),
        ({"status": -1, "msg": "<urlopen error [Errno 113] No route to host>"}, {}, "192.0.2.1:6443"),
    ],
    ids=["a name", "a load balancer's name", "no route"],
)
def test_an_api_server_that_the_controller_will_not_reach_is_rejected(
    answer: dict[str, Any], options: dict[str, str], asked: str
) -> None:
    assert f"at {asked}, which the controller does not reach" in Node(survey={"api": answer}).refused(**options)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, "192.0.2.1:6443"),
        ({"node_ip": "2001:db8::10"}, "[2001:db8::10]:6443"),
        ({"node_ip": "192.0.2.5,2001:db8::10"}, "192.0.2.5:6443"),
        ({"node_ip": "192.0.2.5", "api_address": "2001:db8::a"}, "[2001:db8::a]:6443"),
        ({"control_plane_endpoint": "[2001:db8::2]:8443"}, "[2001:db8::2]:8443"),
        ({"control_plane_endpoint": "k8s.example"}, "k8s.example:6443"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_api_server_is_asked_for_by_an_address_that_a_url_takes(options: dict[str, str], asked: str) -> None:
    """The last digits of an IPv6 address are no port."""
    assert BARE.plan(**options)["api"]["asked"] == asked


def test_only_who_would_create_the_cluster_asks_for_the_api_server() -> None:
    second = Node(name="cp2", planes=("cp1", "cp2"), others={"cp1": False})

    assert BARE.plan()["steps"]["ask_api"]
    assert not MEMBER.plan()["steps"]["ask_api"]
    assert not second.plan(**TWO)["steps"]["ask_api"]
    assert not BARE.plan(state="absent")["steps"]["ask_api"]


def test_a_kubeconfig_has_an_ipv6_address_in_brackets() -> None:
    assert BARE.plan(api_address="2001:db8::a")["api"]["server"] == "[2001:db8::a]:6443"
    assert BARE.plan()["api"]["server"] == ""


@pytest.mark.parametrize("swaps", [("/swap.img",), ()])
def test_a_run_turns_off_the_swap_of_a_node_as_well(swaps: tuple[str, ...]) -> None:
    """Its kubelet would not start again."""
    node = Node(files=CONTROL_PLANE, swaps=swaps)

    assert node.plan()["steps"]["turn_swap_off"] is bool(swaps)
    assert not node.plan(swap="allow")["steps"]["turn_swap_off"]


# Steps.


def test_an_interrupted_run_goes_on() -> None:
    steps = Node(name="cp2", planes=("cp1", "cp2"), elsewhere={"cp1": True}, files=(FOLDER, KUBELET_CONF)).plan(**TWO)
    assert steps["steps"]["join_control_plane"]
    assert steps["is_ours"]
    assert steps["is_member"]
    assert not steps["is_complete"]


@pytest.mark.parametrize(
    ("node", "taken"),
    [
        (BARE, {"begin", "exchange_members", "settle"}),
        (GPU, {"begin", "exchange_members", "join", "record_identity", "settle"}),
        (
            Node(name="cp2", planes=("cp1", "cp2"), others={"cp1": True}),
            {"begin", "exchange_members", "forget", "join_control_plane", "record_identity", "settle"},
        ),
    ],
    ids=["the first control plane", "a worker", "a control plane that returns"],
)
def test_a_server_begins_joins_and_is_recorded(node: Node, taken: set[str]) -> None:
    steps = node.plan(**TWO)["steps"]
    named = {"begin", "exchange_members", "forget", "join", "join_control_plane", "record_identity", "settle"}
    assert {name for name in named if steps[name]} == taken


def test_a_node_that_is_as_wanted_has_nothing_to_do() -> None:
    """It was given these documents, and its file has just this text."""
    bare = MEMBER.plan()["kubeadm"]["applied"]
    steps = with_checksum(MEMBER, bare).plan()["steps"]
    idle = {"begin", "exchange_members", "join", "settle", "change", "write_patches", "tell_cluster", "read_applied"}
    assert [name for name in idle if steps[name]] == []


def with_checksum(node: Node, text: str) -> Node:
    """The same with this text as what it was given."""
    files = [{"path": path, "checksum": "0"} for path in node.files if path != APPLIED]
    files.append({"path": APPLIED, "checksum": sha1(text.encode()).hexdigest()})
    return replace(node, survey={**node.survey, "files": files})


def test_what_a_node_was_given_is_read_only_where_it_differs() -> None:
    assert Node(files=CONTROL_PLANE).plan()["steps"]["read_applied"]
    assert not Node(files=(FOLDER, INITIALISED, KUBELET_CONF)).plan()["steps"]["read_applied"]


def test_packages_are_listed_of_nodes_of_this_cluster_alone() -> None:
    assert MEMBER.plan()["steps"]["read_packages"]
    assert not BARE.plan()["steps"]["read_packages"]
    assert not Node(files=(KUBELET_CONF,)).plan()["steps"]["read_packages"]


def test_the_kubelet_is_enabled_once() -> None:
    assert BARE.plan()["steps"]["enable_kubelet"]
    assert not Node(files=(KUBELET_LINK,)).plan()["steps"]["enable_kubelet"]


# Changes.


LEADER = Node(files=CONTROL_PLANE, applied=applied())
CHANGES_OF = {
    "flags of the scheduler": (
        LEADER,
        {"cluster_config": {"scheduler": {"extraArgs": [{"name": "v", "value": "4"}]}}},
        ["cluster"],
        {"tell_cluster", "restart_control_plane"},
        ["upload-config kubeadm"],
    ),
    "the kubelet": (
        LEADER,
        {"kubelet_config": {"maxPods": 50}},
        ["kubelet"],
        {"tell_cluster", "configure_kubelet"},
        ["upload-config kubelet"],
    ),
    "kube-proxy": (
        LEADER,
        {"kubeproxy_config": {"mode": "nftables"}},
        ["kubeproxy"],
        {"tell_cluster", "restart_kube_proxy"},
        ["addon kube-proxy"],
    ),
    "patches": (
        LEADER,
        {"patches": {"kubeletconfiguration": {"maxPods": 50}}},
        ["patches"],
        {"write_patches", "restart_control_plane", "configure_kubelet"},
        [],
    ),
    "a worker's kubelet": (
        Node(
            name="gpu1",
            planes=("cp0",),
            elsewhere={"cp0": True},
            files=WORKER,
            applied=yaml.safe_load(GPU_MEMBER.plan()["kubeadm"]["applied"]),
        ),
        {"kubelet_config": {"maxPods": 50}, "pod_subnet": "10.9.0.0/16"},
        ["kubelet"],
        {"configure_kubelet"},
        [],
    ),
    "nothing known": (
        Node(files=CONTROL_PLANE),
        {},
        ["cluster", "kubelet", "kubeproxy", "patches"],
        {"tell_cluster", "restart_control_plane", "configure_kubelet", "restart_kube_proxy", "write_patches"},
        ["upload-config kubeadm", "upload-config kubelet", "addon kube-proxy"],
    ),
}


@pytest.mark.parametrize("name", CHANGES_OF)
def test_a_change_is_applied_where_it_works(name: str) -> None:
    node, options, documents, steps, phases = CHANGES_OF[name]
    plan = node.plan(**options)
    named = {"tell_cluster", "restart_kube_proxy", "restart_control_plane", "configure_kubelet", "write_patches"}

    assert plan["kubeadm"]["changed"] == documents
    assert {step for step in named if plan["steps"][step]} == steps
    assert plan["kubeadm"]["phases"] == phases
    assert plan["steps"]["change"]


WARNED = {
    "KUBERNETES_CHANGE_DEFERRED": ({"cluster_config": {"dns": {"imageTag": "v1"}}}, "cp1 keeps dns as before"),
    "KUBERNETES_CERTIFICATE_KEPT": ({"api_address": "api.example"}, "cp1 keeps its certificate of the API server"),
}


@pytest.mark.parametrize("finding", WARNED)
def test_what_a_change_does_not_do_at_once_is_reported(finding: str) -> None:
    options, words = WARNED[finding]
    [notice] = LEADER.plan(**options)["notices"]

    assert words in notice
    assert f"#{finding.lower()})" in notice


def test_each_finding_of_a_change_happens() -> None:
    assert {kind.id for check in CHANGES for kind in check.types} == {*WARNED}
    assert LEADER.plan()["notices"] == []


def test_an_unreadable_record_counts_as_unknown() -> None:
    broken = Node(files=CONTROL_PLANE, survey={"applied": {"content": encoded("a: [")}})
    assert broken.plan()["kubeadm"]["changed"] == ["cluster", "kubelet", "kubeproxy", "patches"]


# Packages.


def test_packages_come_from_the_repository_of_the_minor_version() -> None:
    apt = BARE.plan(version="1.36.3")["packages"]["apt"]

    assert apt["url"] == "https://pkgs.k8s.io/core:/stable:/v1.36/deb"
    assert apt["key_url"] == f"{apt['url']}/Release.key"
    assert (apt["suite"], apt["version"]) == ("/", "1.36.3-*")
    assert apt["packages"] == apt["pinned"] == ["kubelet", "kubeadm", "kubectl"]
    assert BARE.plan(version="1.36.3-1.1")["packages"]["apt"]["version"] == "1.36.3-1.1"


@pytest.mark.parametrize(("there", "extra"), [(True, []), (False, ["iptables"]), (None, [])])
def test_iptables_comes_where_it_is_missing(there: bool | None, extra: list[str]) -> None:
    asked = {} if there is None else {"iptables": {"stat": {"exists": there}}}
    packages = Node(survey=asked).plan()["packages"]

    assert packages["apt"]["extra"] == extra


def test_nothing_is_brought_to_a_server_that_leaves() -> None:
    assert BARE.plan(state="absent")["packages"]["sources"] == []
    assert [source["version"] for source in BARE.plan()["packages"]["sources"]] == [PIN]


# Removal.

REMOVAL = ("leave_others", "ask_etcd", "end_cluster", "drain")


@pytest.mark.parametrize(
    ("node", "taken"),
    [
        (GPU_MEMBER, {"leave_others", "drain"}),
        (
            Node(planes=("cp1", "cp2"), elsewhere={"cp2": True}, files=CONTROL_PLANE),
            {"leave_others", "ask_etcd", "drain"},
        ),
        (MEMBER, {"ask_etcd", "end_cluster"}),
        (Node(name="gpu1", planes=("cp0",), others={"cp0": True}, other_state="absent", files=WORKER), {"ask_etcd"}),
        (BARE, set()),
    ],
    ids=["a worker", "one control plane of two", "the only one", "a worker, and all leave", "a bare server"],
)
def test_a_server_is_drained_where_the_cluster_goes_on(node: Node, taken: set[str]) -> None:
    steps = node.plan(state="absent")["steps"]
    assert {name for name in REMOVAL if steps[name]} == taken


@pytest.mark.parametrize("ours", [True, False])
def test_what_others_have_in_folders_of_networks_stays(ours: bool) -> None:
    """k3s and RKE2 keep the logs of their pods where the kubelet does, so these paths are apart."""
    removed = Node(files=(FOLDER,) if ours else ()).plan(state="absent")["files"]["removed"]

    assert bool(removed["networks"]) is ours
    assert any(path.startswith("/etc/sysctl.d/") for path in removed["own"])
    assert not {"/etc/kubernetes", "/var/log/pods"} & {*removed["own"], *removed["networks"]}
    assert removed["shared"][-1] == "/etc/kubernetes", "the mark of ours: a run that ends before it is gone on with"


@pytest.mark.parametrize(("config", "removes"), [({}, True), ({"makeIPTablesUtilChains": False}, False)])
def test_chains_of_the_kubelet_go_where_it_made_them(config: dict[str, Any], removes: bool) -> None:
    assert MEMBER.plan(state="absent", kubelet_config=config)["steps"]["remove_firewall"] is removes


def test_kube_proxy_cleans_up_by_the_image_that_the_node_has() -> None:
    packages = Node(files=CONTROL_PLANE, survey=PACKAGES).plan(state="absent")["packages"]
    mirrored = MEMBER.plan(state="absent", cluster_config={"imageRepository": "mirror.example/k8s"})["packages"]

    assert (packages["image_repository"], packages["release"]) == ("registry.k8s.io", "1.35.2")
    assert (mirrored["image_repository"], mirrored["release"]) == ("mirror.example/k8s", RELEASE)


def test_findings_have_one_id_each() -> None:
    types = [kind for check in ALL for kind in check.types]
    assert len({kind.id for kind in types}) == len({id(kind) for kind in types})
    assert all(kind.before == "refuse" or kind.severity == "warning" for kind in types)


def test_a_plan_says_nothing_in_the_words_of_a_task() -> None:
    """What a result says by these names Ansible counts, prints or ends the host with."""
    assert not {"changed", "failed", "skipped", "msg", "invocation", "diff", "warnings"} & {*MEMBER.plan()}


STATUS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a certificate that expires soon": (
        {"certificates": {"apiserver": NOW + 90 * 86400, "admin.conf": NOW + 20 * 86400}},
        "KUBERNETES_CERTIFICATE_EXPIRES",
        "has the certificate admin.conf, which expires in 20 days",
    ),
    "a certificate that has expired": (
        {"certificates": {"apiserver": NOW - 86400}},
        "KUBERNETES_CERTIFICATE_EXPIRES",
        "has the certificate apiserver, which has expired",
    ),
    "an old backup": (
        {"backup": NOW - 50 * 3600},
        "KUBERNETES_BACKUP_OLD",
        "has had no backup of etcd for 50 hours",
    ),
}


def status(**content: Any) -> dict[str, Any]:
    return {"status": {"content": b64encode(json.dumps(content).encode()).decode()}}


@pytest.mark.parametrize("name", STATUS)
def test_the_doctor_warns_of_what_was_not_done_in_time(name: str) -> None:
    content, finding, words = STATUS[name]
    [found] = replace(MEMBER, survey=status(**content)).plan()["findings"]

    assert (found["id"], found["severity"]) == (finding, "warning")
    assert words in found["seen"]


def test_a_node_that_is_kept_up_has_no_finding() -> None:
    fresh = status(certificates={"apiserver": NOW + 90 * 86400}, backup=NOW - 3600)

    assert replace(MEMBER, survey=fresh).plan()["findings"] == []
    assert MEMBER.plan()["findings"] == []
    assert {kind.id for check in DOCTOR for kind in check.types} == {finding for _, finding, _ in STATUS.values()}


DAY2_REFUSED: dict[str, tuple[Node, dict[str, Any], str]] = {
    "a bare server": (BARE, {}, "is not a node that this role has joined"),
    "a worker": (replace(GPU_MEMBER, has_kubeconfig=True), {}, "is not in kube_control_plane, so it has no etcd"),
    "an external etcd": (
        replace(MEMBER, has_kubeconfig=True),
        {"cluster_config": {"etcd": {"external": {"endpoints": ["https://192.0.2.9:2379"]}}}},
        "with an external etcd",
    ),
}


@pytest.mark.parametrize("name", DAY2_REFUSED)
def test_what_has_no_etcd_of_kubeadm_is_not_backed_up(name: str) -> None:
    node, options, words = DAY2_REFUSED[name]
    [refused] = node.plan(**options)["upkeep"]["refused"]

    assert words in refused


def test_a_control_plane_of_the_role_can_be_backed_up() -> None:
    assert replace(MEMBER, has_kubeconfig=True).plan()["upkeep"]["refused"] == []


@pytest.mark.parametrize(
    ("before", "options", "ended"),
    [
        (gates("HPAScaleToZero=true"), {"version": "1.36.3-*"}, True),
        (gates("HPAScaleToZero=true"), {"cluster_config": gates("HPAScaleToZero=true,B=true")}, False),
        (gates("HPAScaleToZero=false"), {}, False),
        ({}, {"cluster_config": gates("B=true")}, False),
        # On by default from 1.37 on.
        ({}, {"version": "1.37.2-*", "cluster_config": gates("HPAScaleToZero=false")}, True),
        (gates("HPAScaleToZero=true"), {"version": "1.37.2-*", "cluster_config": gates("B=true")}, False),
    ],
)
def test_hpas_are_listed_only_before_their_feature_gate_ends(
    before: dict[str, Any], options: dict[str, Any], ended: bool
) -> None:
    node = Node(files=CONTROL_PLANE, applied=applied(**before), survey={"hpas": TO_ZERO})
    made = node.plan(**options)
    assert made["steps"]["read_hpas"] is ended
    assert ("KUBERNETES_ZERO_ENDS".lower() in "".join(made["refused"])) is ended


def test_a_gate_ends_where_no_hpa_needs_it() -> None:
    node = Node(files=CONTROL_PLANE, applied=applied(**ZERO), survey={"hpas": listed()})
    assert node.plan()["refused"] == []
    worker = Node(name="gpu1", planes=("cp0",), elsewhere={"cp0": True}, files=WORKER, applied={"kubelet": {}})
    assert not worker.plan()["steps"]["read_hpas"]
