"""No node is removed that works, and etcd keeps a majority of members that work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kubernetes_nodes import CONTROL_PLANE, Node, cluster_node, etcd, listed


def departures(
    nodes: Sequence[dict[str, Any]],
    known: dict[str, Any],
    lost: Sequence[str] = (),
    in_play: dict[str, str] | None = None,
    returned: Sequence[str] = (),
) -> dict[str, Any]:
    """What cp0, which is complete, plans. in_play: further hosts of the run, by their nodes."""
    server = Node(
        name="cp0",
        planes=("cp0", *returned),
        others={**dict.fromkeys((in_play or {}).values(), False), **dict.fromkeys(returned, False)},
        files=CONTROL_PLANE,
        survey={"nodes": listed(*nodes), **known},
    )
    gone: dict[str, Any] = server.plan(lost_nodes=[*lost])["gone"]
    return gone


def node(name: str, ready: str = "True") -> dict[str, Any]:
    return cluster_node(name, ready=ready)


def test_a_lost_control_plane_is_removed() -> None:
    known = etcd(cp1="healthy", cp2="down", cp3="healthy")
    found = departures([node("cp1"), node("cp2", "Unknown"), node("cp3")], known, lost=["cp2"])

    assert found == {
        "refused": [],
        "members": [{"ID": "id-cp2", "name": "cp2"}],
        "nodes": ["cp2"],
        "unproven": ["cp2"],
        "addresses": ["192.0.2.9"],
    }


@pytest.mark.parametrize(
    ("ready", "state", "in_play", "said"),
    [
        ("True", "healthy", {}, "that node is Ready at 192.0.2.9"),
        ("True", "down", {}, "that node is Ready"),
        ("Unknown", "healthy", {}, "its member of etcd answers"),
        ("Unknown", "unhealthy", {}, "its member of etcd answers"),
        ("Unknown", "down", {"cp2": "CP2"}, "is the node of CP2 in this run"),
    ],
)
def test_a_node_that_works_is_not_lost(ready: str, state: str, in_play: dict[str, str], said: str) -> None:
    known = etcd(cp1="healthy", cp2=state, cp3="healthy")
    found = departures([node("cp1"), node("cp2", ready), node("cp3")], known, lost=["cp2"], in_play=in_play)

    assert said in found["refused"][0]
    assert "Nothing was changed." in found["refused"][0]
    assert (found["members"], found["nodes"]) == ([], [])


@pytest.mark.parametrize(
    ("states", "lost", "is_refused"),
    [
        ({"cp1": "healthy", "cp2": "down", "cp3": "healthy"}, ["cp2"], False),
        ({"cp1": "healthy", "cp2": "down", "cp3": "down"}, ["cp2"], True),
        ({"cp1": "healthy", "cp2": "down"}, ["cp2"], True),
        ({"a": "healthy", "b": "healthy", "c": "healthy", "d": "down", "e": "down"}, ["d", "e"], False),
        ({"a": "healthy", "b": "healthy", "c": "healthy", "d": "down", "e": "down"}, ["d"], False),
        ({"cp1": "down"}, ["cp1"], True),
        ({"cp1": "healthy", "cp2": "never started", "cp3": "healthy"}, ["gpu9"], False),
        ({"cp1": "healthy", "cp2": "learner"}, ["cp2"], False),
    ],
)
def test_no_removal_leaves_etcd_without_a_majority(states: dict[str, str], lost: list[str], is_refused: bool) -> None:
    found = departures([node(name, "Unknown") for name in lost], etcd(**states), lost=lost)

    assert bool(found["refused"]) == is_refused, found
    assert all("majority" in text for text in found["refused"])


@pytest.mark.parametrize(
    ("states", "leaving", "is_refused"),
    [
        ({"cp1": "healthy", "cp2": "healthy", "cp3": "healthy"}, ["cp3"], False),
        ({"cp1": "healthy", "cp2": "healthy", "cp3": "healthy"}, ["cp2", "cp3"], False),
        ({"cp1": "healthy", "cp2": "healthy", "cp3": "down"}, ["cp2"], True),
        ({"cp1": "healthy", "cp2": "healthy", "cp3": "down"}, ["cp2", "cp3"], False),
        ({}, ["cp2"], False),
    ],
    ids=["one of three", "two of three", "beside one that is down", "with the one that is down", "an etcd outside"],
)
def test_a_control_plane_that_leaves_keeps_the_majority(
    states: dict[str, str], leaving: list[str], is_refused: bool
) -> None:
    first, *others = leaving
    server = Node(
        name=first,
        planes=("cp0", *leaving),
        others=dict.fromkeys(others, True),
        elsewhere={"cp0": True},
        files=CONTROL_PLANE,
        addresses=("192.0.2.9",),
        survey=etcd(**states),
    )
    refused = server.plan(state="absent")["leaving"]["refused"]

    assert bool(refused) == is_refused
    assert all("#kubernetes_etcd_majority" in text for text in refused)


def test_a_node_that_works_is_the_only_reason() -> None:
    """Whether etcd could do without it is another question, when it is lost."""
    [refusal] = departures([node("cp1"), node("cp2")], etcd(cp1="down", cp2="healthy"), lost=["cp2"])["refused"]
    assert "that node is Ready" in refusal


def test_a_bare_server_at_its_old_address_needs_no_confirmation() -> None:
    """It says itself that it is bare. Its node may still be Ready for some seconds, and its member half joined."""
    found = departures([node("cp2")], etcd(cp1="healthy", cp2="down", cp3="healthy"), returned=["cp2"])

    assert (found["refused"], found["nodes"], found["unproven"]) == ([], ["cp2"], [])


@pytest.mark.parametrize("lost", ["", "cp2, ", ["cp2", ""], ["cp2,"]], ids=repr)
def test_a_name_that_is_empty_is_no_member_that_never_started(lost: str | list[str]) -> None:
    """`-e kubernetes_lost_nodes=` gives one."""
    known = etcd(cp1="healthy", cp2="down", cp3="healthy", cp4="healthy")
    known["etcd"]["json"]["members"].append({"ID": "id-new"})
    server = Node(name="cp1", files=CONTROL_PLANE, survey={"nodes": listed(node("cp1")), **known})
    made = server.plan(lost_nodes=lost)

    names = [row["name"] for row in made["gone"]["members"]]
    assert (names, made["steps"]["forget"]) == ((["cp2"], True) if lost else ([], False))
    assert made["gone"]["unproven"] == names


def test_what_is_gone_already_needs_no_confirmation() -> None:
    found = departures([node("cp1")], etcd(cp1="healthy"), lost=["gpu9"])

    assert found == {"refused": [], "members": [], "nodes": [], "unproven": [], "addresses": []}
