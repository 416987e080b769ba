"""Which servers are in the cluster: who leads it, who joins, who is gone and who has another's name."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes_nodes import CONTROL_PLANE, INITIALISED, Node, cluster_node, listed

PLANES = ("cp1", "cp2", "cp3")
TWO = {"control_plane_endpoint": "k8s.example:6443"}


def plan(name: str, complete: tuple[str, ...], **node: Any) -> dict[str, Any]:
    """For one of three control planes in a run of all of them."""
    others = {other: other in complete for other in PLANES if other != name}
    files = CONTROL_PLANE if name in complete else ()
    return Node(name=name, planes=PLANES, others=others, files=files, **node).plan(**TWO)


@pytest.mark.parametrize(
    ("complete", "leader", "gone"),
    [
        ((), "cp1", False),
        (("cp1",), "cp1", True),
        (("cp2", "cp3"), "cp2", True),
        (PLANES, "cp1", False),
    ],
)
def test_only_a_control_plane_that_is_complete_leads_a_cluster(
    complete: tuple[str, ...], leader: str, gone: bool
) -> None:
    """A bare server in the first one's place joins: had it led, it would have made a second cluster."""
    plans = {name: plan(name, complete) for name in PLANES}

    assert {name: made["control_plane"] for name, made in plans.items()} == dict.fromkeys(PLANES, leader)
    assert [name for name, made in plans.items() if made["leads"]] == [leader]
    assert {made["steps"]["forget"] for made in plans.values()} == {gone}


def test_control_planes_that_are_bare_again_are_gone() -> None:
    nodes = listed(*(cluster_node(name) for name in PLANES))
    gone = plan("cp1", ("cp1",), survey={"nodes": nodes})["gone"]

    assert (gone["refused"], gone["members"], gone["nodes"], gone["unproven"]) == ([], [], ["cp2", "cp3"], [])


def test_what_an_earlier_play_found_does_not_count() -> None:
    """Of control planes that a play leaves out, what they are now is asked; they may have left or joined meanwhile."""
    node = Node(
        name="cp3",
        planes=PLANES,
        hosts=("cp3",),
        files=CONTROL_PLANE,
        others={"cp1": True, "cp2": False},
        elsewhere={"cp1": False, "cp2": True},
    )
    assert node.plan(**TWO)["control_plane"] == "cp2"


def test_a_control_plane_that_does_not_answer_does_not_lead() -> None:
    node = Node(name="cp3", planes=PLANES, hosts=("cp3",), files=CONTROL_PLANE, others={"cp1": True}, silent=("cp1",))

    assert node.plan(**TWO)["control_plane"] == "cp3"
    assert node.plan(**TWO)["staying"] == []


def test_those_that_the_run_leaves_out_stay() -> None:
    node = Node(name="cp3", planes=PLANES, files=CONTROL_PLANE, elsewhere={"cp1": True, "cp2": False})
    assert node.plan(state="absent")["staying"] == ["cp1"]


@pytest.mark.parametrize(
    ("ready", "address", "addresses", "is_refused"),
    [
        ("True", "192.0.2.1", ("192.0.2.2", "2001:db8::2"), True),
        ("Unknown", "192.0.2.1", ("192.0.2.2",), False),
        ("True", "192.0.2.2", ("192.0.2.2",), False),
        ("True", "2001:db8::2", ("192.0.2.2", "2001:db8::2"), False),
        ("True", "192.0.2.1", (), True),
    ],
    ids=["a clone of it", "in place of a lost one", "itself, half joined", "itself, by IPv6", "addresses unknown"],
)
def test_a_server_does_not_take_the_place_of_a_control_plane_that_works(
    ready: str, address: str, addresses: tuple[str, ...], is_refused: bool
) -> None:
    nodes = listed(cluster_node("cp2", address, ready))
    node = Node(name="cp2", planes=PLANES, others={"cp1": True}, addresses=addresses, survey={"nodes": nodes})
    said = "\n".join(node.plan(**TWO)["gone"]["refused"])

    assert ("cp2 has the name of node cp2, and that node is Ready at 192.0.2.1, not one of" in said) == is_refused
    assert ("#kubernetes_namesake" in said) == is_refused


def test_a_run_that_was_told_so_forgets_nodes_by_any_spelling_of_a_list() -> None:
    node = Node(files=(INITIALISED,), survey={"nodes": listed(cluster_node("gpu3", ready="Unknown"))})
    for given in (["cp2", "gpu3"], "cp2,gpu3"):
        made = node.plan(lost_nodes=given)
        assert made["steps"]["forget"]
        assert made["gone"]["nodes"] == made["gone"]["unproven"] == ["gpu3"]
