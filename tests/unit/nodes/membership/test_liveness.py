"""What is alive is not lost, whichever way it would go: one table of all that can be seen x all ways to lose a node."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.membership.etcd_members import members_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.nodes.membership.liveness import Known
from collection import ROOT
from kubernetes_nodes import CONTROL_PLANE, Node, cluster_node, etcd, listed
from planned import plan_of

OWN, OTHER = "192.0.2.9", "192.0.2.77"
Verdict = Literal["refused", "confirmed by name", "goes"]


@dataclass(frozen=True)
class Seen:
    """What is seen of cp2. address: where all of it is, beside the server's own, OWN."""

    ready: str
    kubelet: bool
    member: str
    address: str

    @property
    def is_alive(self) -> bool:
        return self.ready == "True" or self.kubelet or self.member in ("healthy", "unhealthy")

    @property
    def survey(self) -> dict[str, Any]:
        known = etcd(cp0="healthy", cp1="healthy", cp3="healthy", **({"cp2": self.member} if self.member else {}))
        for member in known["etcd"]["json"]["members"]:
            if member["name"] == "cp2":
                member["clientURLs"] = [f"https://{self.address}:2379"]
        return {"nodes": listed(*self.nodes), "kubelets": self.kubelets, **known}

    @property
    def nodes(self) -> list[dict[str, Any]]:
        return [cluster_node("cp1", "192.0.2.1"), cluster_node("cp2", self.address, self.ready)]

    @property
    def kubelets(self) -> list[dict[str, Any]]:
        return [{"item": self.address, "status": 401 if self.kubelet else -1}]


SEEN = [
    Seen(*cell)
    for cell in product(("True", "False", "Unknown"), (True, False), ("", "down", "unhealthy", "healthy"), (OWN, OTHER))
]


def _gone(seen: Seen, lost: list[str], returned: list[str]) -> Verdict:
    server = Node(
        name="cp0",
        planes=("cp0", "cp1", *returned),
        elsewhere={"cp1": True},
        others=dict.fromkeys(returned, False),
        files=CONTROL_PLANE,
        other_addresses=(OWN,),
        survey=seen.survey,
    )
    gone = server.plan(lost_nodes=lost)["gone"]
    assert not (gone["refused"] and (gone["members"] or gone["nodes"])), "what is refused is not removed"
    if gone["refused"]:
        assert all("Nothing was changed." in text for text in gone["refused"])
        return "refused"
    return "confirmed by name" if "cp2" in gone["unproven"] else "goes"


def lost(seen: Seen) -> Verdict:
    """kubernetes_lost_nodes"""
    return _gone(seen, ["cp2"], [])


def returned(seen: Seen) -> Verdict:
    """A bare server comes under the name."""
    return _gone(seen, [], ["cp2"])


def leaving(seen: Seen) -> Verdict:
    """The state absent, which absent.yml has confirmed in any case."""
    server = Node(
        name="cp2", planes=("cp0", "cp2"), elsewhere={"cp0": True}, files=CONTROL_PLANE, addresses=(OWN,),
        survey=seen.survey,
    )  # fmt: skip
    return "refused" if server.plan(state="absent")["leaving"]["refused"] else "confirmed by name"


def _outside(seen: Seen, run: dict[str, tuple[str, ...]]) -> Verdict:
    survey = seen.survey
    kubelets = [row["item"] for row in seen.kubelets if row["status"] > 0]
    known = Known(seen.nodes, members_of(survey["etcd"]["json"], survey["etcd_health"]), kubelets)
    others = dict.fromkeys(("cp0", "cp1", "cp3"), ("192.0.2.1", OWN))
    return "refused" if known.outside(others | run) else "confirmed by name"


def restored(seen: Seen) -> Verdict:
    """A restore with the server in its run: what lives outside the run would go on with the old data."""
    return _outside(seen, {"cp2": (OWN,)})


def restored_without_it(seen: Seen) -> Verdict:
    """As above, while the inventory does not name the server."""
    return _outside(seen, {})


def turn(seen: Seen, own: tuple[str, ...] = (OWN,), **other: Any) -> list[str]:
    survey = seen.survey
    params = {
        "node": "cp2",
        "inventory": "one",
        "addresses": [*own],
        "batch": ["cp2"],
        "nodes": seen.nodes,
        "apis": [{"item": node, "status": 200} for node in seen.nodes],
        "etcd": survey["etcd"],
        "etcd_health": survey["etcd_health"],
        **other,
    }
    refused: list[str] = plan_of("kubernetes.turn", params)["refused"]
    return refused


def taken(seen: Seen) -> Verdict:
    """maintain, and the upgrades of driver and Kubernetes: no kubelet is asked, as the node is no candidate to go."""
    return "refused" if turn(seen) else "goes"


WAYS: tuple[Callable[[Seen], Verdict], ...] = (lost, returned, leaving, restored, restored_without_it, taken)


def expected(way: Callable[[Seen], Verdict], seen: Seen) -> Verdict:
    """Silence is no evidence, and life at another address is another machine's."""
    others = seen.address == OTHER
    if way is taken:
        speaks = seen.ready == "True" or seen.member in ("healthy", "unhealthy")
        return "refused" if speaks and others else "goes"
    if way in (lost, restored_without_it):
        return "refused" if seen.is_alive else "confirmed by name"
    if seen.is_alive and others:
        return "refused"
    return "goes" if way is returned and not others else "confirmed by name"


def cells() -> list[Any]:
    return [
        pytest.param(way, seen, id=f"{way.__name__}-{'-'.join(map(str, vars(seen).values()))}")
        for way, seen in product(WAYS, SEEN)
    ]


@pytest.mark.parametrize(("way", "seen"), cells())
def test_what_is_alive_is_not_lost(way: Callable[[Seen], Verdict], seen: Seen) -> None:
    assert way(seen) == expected(way, seen)


HEALTHY = Seen("True", False, "healthy", OWN)


@pytest.mark.parametrize("state", ["healthy", "unhealthy", "down", "never started", "learner"])
@pytest.mark.parametrize("ready", [True, False])
def test_no_second_control_plane_is_taken(state: str, ready: bool) -> None:
    """While one does not work, no other is drained, rebooted or upgraded. A learner has no vote."""
    known = etcd(cp1=state, cp2="healthy", cp3="healthy")
    apis = [{"item": node, "status": 200 if ready or node["metadata"]["name"] == "cp2" else -1}
            for node in HEALTHY.nodes]  # fmt: skip
    refused = turn(HEALTHY, apis=apis, **known)

    assert bool(refused) == (state not in ("healthy", "learner") or not ready)
    for text in refused:
        assert ("the etcd member cp1 is not healthy" in text) == (state not in ("healthy", "learner"))
        assert ("the API server of cp1 is not ready" in text) == (not ready)
        assert "Nothing more was changed on gpu1." in text


@pytest.mark.parametrize("state", ["healthy", "unhealthy", "down"])
def test_the_one_that_is_broken_may_be_mended(state: str) -> None:
    apis = [{"item": node, "status": 200 if node["metadata"]["name"] == "cp1" else -1} for node in HEALTHY.nodes]
    assert turn(HEALTHY, apis=apis, **etcd(cp1="healthy", cp2=state, cp3="healthy")) == []


def test_control_planes_are_taken_one_at_a_time() -> None:
    """Also one that the inventory has among its workers."""
    assert "gpu2 would be changed at the same time" in turn(HEALTHY, batch=["gpu1", "gpu2"])[0]


def test_the_kubelet_of_a_new_node_at_an_old_address_is_not_the_lost_ones() -> None:
    nodes = [cluster_node("gpu2", OTHER, "Unknown"), cluster_node("gpu3", OTHER)]
    assert Known(nodes, kubelets=[OTHER]).life("gpu2") is None
    assert Known(nodes[:1], kubelets=[OTHER]).life("gpu2")


def test_a_server_whose_addresses_are_unknown_takes_no_place() -> None:
    """It may be the clone as well as the lost one itself."""
    known = etcd(cp0="healthy", cp1="healthy", cp3="healthy")
    server = Node(
        name="cp0", planes=("cp0", "cp1", "cp2"), elsewhere={"cp1": True}, others={"cp2": False}, files=CONTROL_PLANE,
        other_addresses=(), survey={"nodes": listed(*HEALTHY.nodes), **known},
    )  # fmt: skip
    assert "not one of (none known)" in server.plan()["gone"]["refused"][0]


MARKS = sorted(
    {
        mark
        for folder, kind in (("roles", "*.yml"), ("plugins", "*.py"))
        for path in (ROOT / folder).rglob(kind)
        for mark in re.findall(r"kubegpu[.]autoscale/cordoned-for-[a-z]+", path.read_text())
    }
)


@pytest.mark.parametrize("place", ["cp1", "cp2", "cp3"])
@pytest.mark.parametrize("mark", [*MARKS, "someone.example/cordoned", ""])
@pytest.mark.parametrize("ready", ["True", "False", "Unknown"])
@pytest.mark.parametrize("inventory", ["one", "two", ""])
def test_no_control_plane_is_taken_beside_one_that_a_run_takes(
    place: str, mark: str, ready: str, inventory: str
) -> None:
    """Its own mark, of its own inventory, is that of this run, or of one that it continues."""
    assert len(MARKS) > 2
    nodes = [cluster_node(name, OWN if name == "cp2" else "192.0.2.1") for name in ("cp1", "cp2", "cp3")]
    for node in nodes:
        if node["metadata"]["name"] == place:
            node["metadata"]["annotations"] = {mark: inventory} if mark else None
            node["status"]["conditions"][0]["status"] = ready
    refused = turn(HEALTHY, nodes=nodes, apis=[{"item": node, "status": 200} for node in nodes])

    is_taken = mark in MARKS and (place, inventory) != ("cp2", "one")
    assert bool(refused) == (is_taken or (place != "cp2" and ready != "True"))
    assert any(f"for inventory {inventory}, takes it" in text for text in refused) == is_taken
    assert all(place in text and "Nothing more was changed" in text for text in refused)


@pytest.mark.parametrize("missing", ["cp1", "cp2"])
def test_a_turn_is_never_given_for_want_of_evidence(missing: str) -> None:
    """A list of nodes without the server itself may lack the others, too."""
    seen = Seen("True", kubelet=True, member="healthy", address=OWN)
    nodes = [node for node in seen.nodes if node["metadata"]["name"] != missing]
    refused = turn(seen, nodes=nodes, etcd={}, etcd_health=[])
    assert bool(refused) == (missing == "cp2")
    assert turn(seen, nodes=[], etcd={}, etcd_health=[])
