"""No node is removed that works, and etcd keeps a majority of members that work."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.departures import FilterModule

departures = FilterModule().filters()["departures"]


def member(name: str) -> dict[str, Any]:
    return {"ID": f"id-{name}", "name": name, "clientURLs": [f"https://{name}:2379"]}


def etcd(**states: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Members by their state, and what each said: healthy, without a majority, down, never started."""
    answers = {
        "healthy": {"status": 200, "content": '{"health":"true","reason":""}'},
        "unhealthy": {"status": 503, "content": '{"health":"false","reason":"RAFT NO LEADER"}'},
        "down": {"status": -1, "msg": "Connection refused"},
    }
    members = [{**member(name), "isLearner": state == "learner"} for name, state in states.items()]
    health = [{"item": known, **answers[state]} for known in members if (state := states[known["name"]]) in answers]
    return {"members": members}, health


def node(name: str, ready: str = "True") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def test_a_lost_control_plane_is_removed() -> None:
    known = etcd(cp1="healthy", cp2="down", cp3="healthy")
    found = departures([node("cp1"), node("cp2", "Unknown"), node("cp3")], *known, lost=["cp2"])

    assert found == {
        "refused": [],
        "members": [{"ID": "id-cp2", "name": "cp2"}],
        "nodes": ["cp2"],
        "confirmed_by_name": ["cp2"],
    }


@pytest.mark.parametrize(
    ("ready", "state", "in_play", "said"),
    [
        ("True", "healthy", {}, "that node is Ready"),
        ("True", "down", {}, "that node is Ready"),
        ("Unknown", "healthy", {}, "its member of etcd answers"),
        ("Unknown", "unhealthy", {}, "its member of etcd answers"),
        ("Unknown", "down", {"cp2": "server-2"}, "is the node of server-2 in this run"),
    ],
)
def test_a_node_that_works_is_not_lost(ready: str, state: str, in_play: dict[str, str], said: str) -> None:
    known = etcd(cp1="healthy", cp2=state, cp3="healthy")
    found = departures([node("cp1"), node("cp2", ready), node("cp3")], *known, lost=["cp2"], in_play=in_play)

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
    found = departures([node(name, "Unknown") for name in lost], *etcd(**states), lost=lost)

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
    assert bool(departures([], *etcd(**states), leaving=leaving)["refused"]) == is_refused


def test_a_bare_server_under_an_old_name_needs_no_confirmation() -> None:
    """Its node may still be Ready for some seconds, and its member half joined."""
    found = departures([node("cp2")], *etcd(cp1="healthy", cp2="down", cp3="healthy"), returned=["cp2"])

    assert (found["refused"], found["nodes"], found["confirmed_by_name"]) == ([], ["cp2"], [])


def test_what_is_gone_already_needs_no_confirmation() -> None:
    found = departures([node("cp1")], *etcd(cp1="healthy"), lost=["gpu9"])

    assert found == {"refused": [], "members": [], "nodes": [], "confirmed_by_name": []}
