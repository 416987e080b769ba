"""Which nodes get the label of a GPU, and which lose it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.node_labels import (
    LABEL,
    Server,
    gpu_node_labels,
    label_changes,
    label_removal,
    offers_gpus,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import GPU_PRESENT, RELEASE
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import labels as labels_of


def node(name: str, gpus: str = "", *, owner: str = "", **labels: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": labels}
    if owner:
        metadata |= {"labels": {**labels, LABEL: "true"}, "annotations": {GPU_PRESENT: owner}}
    return {"metadata": metadata, "status": {"allocatable": {"nvidia.com/gpu": gpus} if gpus else {}}}


FOUND, NONE, UNSEEN = Server("gpu1", "gpu1", True), Server("cp1", "cp1", False), Server("gpu2", "gpu2", None)


def test_nodes_with_a_gpu_are_labelled_once() -> None:
    nodes = [node("cp1"), node("gpu1"), node("cloud", **{"cloud.google.com/gke-accelerator": "l4"}), node("dra", "2")]
    changes = label_changes([FOUND, NONE], nodes, {})
    assert (changes.add, changes.remove, changes.refused, changes.warning) == (("gpu1", "cloud", "dra"), (), "", "")
    again = [node("cp1"), *(node(name, owner="default") for name in changes.add)]
    assert label_changes([FOUND, NONE], again, {}).add == ()


def test_a_pool_of_numbers_keeps_its_label_and_other_nodes_lose_theirs() -> None:
    """Labels are text: without that all nodes would lose the label that plugin and exporter select."""
    nodes = [node("a", owner="default", tier="1"), node("b", owner="default", tier="2"), node("c", "1", tier="1")]
    changes = label_changes([], nodes, {"tier": 1})
    assert (changes.add, changes.remove) == (("c",), ("b",))
    assert label_changes([], nodes, {}).remove == ()


def test_a_label_of_another_inventory_stays() -> None:
    nodes = [node("a", owner="default", tier="2"), node("b", owner="another", tier="2"), node("c", tier="2")]
    found = gpu_node_labels(nodes, pool={"tier": 1})
    assert (found["remove"], found["owned"]) == (("a",), ["a"])
    assert gpu_node_labels(nodes, inventory="another")["owned"] == ["b"]
    assert gpu_node_labels(nodes, inventory="true")["owned"] == []


@pytest.mark.parametrize(
    ("servers", "seen", "following"),
    [
        ([NONE], "1 of 1 servers in kube_control_plane", "Next: run the playbook"),
        ([NONE, UNSEEN], "1 of 2 servers", "Next: run this without --limit, to survey gpu2; run the playbook"),
    ],
)
def test_servers_without_a_gpu_are_an_error_that_counts_those_surveyed(
    servers: list[Server], seen: str, following: str
) -> None:
    refused = label_changes(servers, [node("cp1")], {}).refused
    assert f"Seen: {seen}" in refused
    assert following in refused


def test_a_server_with_a_gpu_has_to_be_a_node() -> None:
    changes = label_changes([FOUND], [node("cp1", "1")], {})
    assert changes.refused.startswith("GPU -> node: gpu1 has a GPU and is not a node of the cluster. Nodes: cp1.")
    assert changes.add == ()


def test_a_cluster_whose_pool_is_at_zero_is_a_warning() -> None:
    changes = label_changes([], [node("cp1")], {})
    assert "none of 1 nodes has a GPU now" in changes.warning
    assert changes.refused == ""


@pytest.mark.parametrize(("gpus", "expected"), [("", False), ("0", False), ("8", True)])
def test_a_plugin_that_was_removed_offers_none(gpus: str, expected: bool) -> None:
    assert offers_gpus(node("a", gpus)) is expected


def daemon_set(name: str, pod: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "gpus", "name": name, "labels": labels}, "spec": {"template": {"spec": pod}}}


def required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    selected = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selected}}}


IS_TRUE = {"key": LABEL, "operator": "In", "values": ["true"]}
BY_CLOUD = {"key": "cloud", "operator": "Exists"}


@pytest.mark.parametrize(
    ("pod", "is_kept"),
    [
        ({"nodeSelector": {LABEL: "true"}}, True),
        (required([IS_TRUE]), True),
        (required([BY_CLOUD], [IS_TRUE]), True),
        (required([{"key": "tier", "operator": "Exists"}], [IS_TRUE]), False),
        ({"nodeSelector": {LABEL: "true", "tier": "9"}}, False),
        (required([{"key": LABEL, "operator": "DoesNotExist"}]), False),
        ({}, False),
    ],
    ids=["selector", "affinity", "one of two terms", "another label too", "another node", "its absence", "all nodes"],
)
def test_a_label_stays_while_a_daemon_set_loses_the_node_without_it(pod: dict[str, Any], is_kept: bool) -> None:
    nodes = [node("a", owner="one", tier="1"), node("b", owner="one", tier="2")]
    nodes[0]["spec"] = {"unschedulable": True}
    found = label_removal(["a"], nodes, [daemon_set("exporter", pod)], "one", others_only=True)
    assert found["remove"] == ([] if is_kept else ["a"])
    assert ("is kept on a," in found["warning"]) is is_kept
    assert ("gpus/exporter" in found["warning"]) is is_kept


def test_daemon_sets_of_the_inventory_keep_a_label_only_if_they_remain() -> None:
    """A narrowed pool moves them, and in check mode they still exist."""
    pod = {"nodeSelector": {LABEL: "true"}}
    release = {RELEASE: "exporter"}
    own = [
        daemon_set("exporter", pod, **labels_of("one"), **release),
        daemon_set("older", pod, **release),
        daemon_set("puller", pod, **labels_of("one")),
    ]
    nodes = [node("a", owner="one")]
    assert label_removal(["a"], nodes, own, "one", others_only=True) == {"remove": ["a"], "warning": ""}
    assert label_removal(["a"], nodes, own, "one", others_only=False)["remove"] == []
    theirs = daemon_set("plugin", pod, **labels_of("two"), **release)
    found = label_removal(["a"], nodes, [*own, theirs], "one", others_only=True)
    assert found["remove"] == []
    assert "gpus/plugin" in found["warning"]
    assert "exporter" not in found["warning"]
