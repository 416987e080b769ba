"""GPUs that several autoscalers share: what each gets, and that all of it fits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.gpu_shares import Claimant, divide
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.capacity import gpus_of, replicas_that_fit
from hypothesis import given
from hypothesis import strategies as st

GPU = "nvidia.com/gpu"
NONE: dict[str, int] = {}


def node(gpus: int, name: str = "gpu1", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "8", **({GPU: str(gpus)} if gpus else {})}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"allocatable": allocatable}}


def claimant(name: str, most: int, floor: int = 1, priority: int = 0, gpus: int = 1, **more: Any) -> Claimant:
    return Claimant(name, more.pop("pod", {}), {GPU: gpus}, floor, most, priority=priority, **more)


def with_limits(one: Claimant) -> dict[str, Any]:
    """The pod's spec, as replicas_that_fit reads it."""
    return {**one.pod, "containers": [{"resources": {"limits": one.gpus}}]}


@pytest.mark.parametrize(
    ("claimants", "gpus", "maxima"),
    [
        pytest.param([claimant("a", 3), claimant("b", 4)], [8], [3, 4], id="enough for all"),
        pytest.param([claimant("a", 8), claimant("b", 8)], [8], [4, 4], id="equals get equal shares"),
        pytest.param([claimant("a", 8), claimant("b", 8)], [4, 3], [4, 3], id="the first of equals gets the odd one"),
        pytest.param([claimant("a", 8), claimant("b", 2)], [8], [6, 2], id="what one does not want the other gets"),
        pytest.param([claimant("a", 8), claimant("b", 8, priority=1)], [8], [1, 7], id="priority"),
        pytest.param([claimant("a", 8, floor=3), claimant("b", 8, priority=1)], [8], [3, 5], id="floors come first"),
        pytest.param(
            [claimant("a", 8, priority=-1), claimant("b", 8), claimant("c", 8, priority=7)], [8], [1, 1, 6], id="three"
        ),
        pytest.param([claimant("a", 4, gpus=4), claimant("b", 8)], [4, 4], [1, 4], id="large pods keep a whole node"),
        pytest.param([claimant("a", 3, gpus=3), claimant("b", 8)], [4, 4], [2, 2], id="no GPU is lost on fragments"),
        pytest.param([claimant("a", 1, pods=3), claimant("b", 8)], [8], [1, 5], id="groups of pods"),
        pytest.param([claimant("a", 5, pods=3, priority=1), claimant("b", 8)], [8], [2, 2], id="a group or none"),
    ],
)
def test_what_each_gets(claimants: list[Claimant], gpus: list[int], maxima: list[int]) -> None:
    nodes = [node(number, f"gpu{place}") for place, number in enumerate(gpus)]
    assert divide(claimants, nodes, NONE) == maxima


def test_pods_share_the_nodes_that_they_may_run_on() -> None:
    nodes = [node(4, "gpu1", {"pool": "a"}), node(4, "gpu2", {"pool": "b"})]
    on_a = claimant("a", 8, pod={"nodeSelector": {"pool": "a"}})
    assert divide([on_a, claimant("b", 8, priority=1)], nodes, NONE) == [1, 7]
    assert divide([replace(on_a, priority=2), claimant("b", 8)], nodes, NONE) == [4, 4]


def test_devices_stand_for_gpus_that_a_class_turns_into_claims() -> None:
    assert divide([claimant("a", 8), claimant("b", 8)], [node(0)], {"gpu1": 4}) == [2, 2]
    assert divide([claimant("a", 8), claimant("b", 8)], [node(2)], {"gpu1": 4}) == [1, 1]


@pytest.mark.parametrize(
    "spec",
    [
        {"unschedulable": True},
        {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
    ],
    ids=["cordoned", "drained", "away"],
)
def test_maintenance_of_a_node_shrinks_no_workload(spec: dict[str, Any]) -> None:
    assert divide([claimant("a", 8)], [node(4), node(4, "gpu2", **spec)], NONE) == [8]
    tainted = node(4, "gpu2", taints=[{"key": "team", "value": "b", "effect": "NoSchedule"}])
    assert divide([claimant("a", 8)], [node(4), tainted], NONE) == [4]


def test_minima_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(HopError) as raised:
        divide([claimant("ml/a", 8, floor=3), claimant("ml/b", 8, floor=2)], [node(4)], NONE)
    assert raised.value.seen == (
        "divide_gpus: the minima together need 5 nvidia.com/gpu, and the nodes have 4 (minima: ml/a 3, ml/b 2)"
    )
    assert raised.value.fix == "lower min_replicas, add nodes, or set divide_gpus to false"


def test_minima_that_fit_in_number_but_on_no_node_are_an_error() -> None:
    with pytest.raises(HopError, match=r"no node is left for a pod of ml/a with 4 nvidia\.com/gpu"):
        divide([claimant("ml/a", 8, gpus=4)], [node(3), node(3, "gpu2")], NONE)


_CLAIMANTS = st.lists(
    st.builds(
        lambda gpus, floor, more, pods, priority, pool: Claimant(
            "", {"nodeSelector": {"pool": pool}} if pool else {}, {GPU: gpus}, floor, floor + more, pods, priority
        ),
        st.sampled_from([1, 2, 3, 4, 8]),
        st.integers(1, 3),
        st.integers(0, 20),
        st.sampled_from([1, 1, 1, 2]),
        st.integers(-2, 2),
        st.sampled_from(["", "", "a", "b"]),
    ),
    min_size=1,
    max_size=5,
).map(lambda found: [replace(one, name=f"ml/{place}") for place, one in enumerate(found)])
_NODES = st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["a", "b"])), min_size=1, max_size=6).map(
    lambda found: [node(gpus, f"gpu{place}", {"pool": pool}) for place, (gpus, pool) in enumerate(found)]
)


@given(_CLAIMANTS, _NODES)
def test_all_maxima_together_fit(claimants: list[Claimant], nodes: list[dict[str, Any]]) -> None:
    try:
        maxima = divide(claimants, nodes, NONE)
    except HopError:  # what it is for is said above
        return
    used: Counter[str] = Counter()
    for one, most in zip(claimants, maxima, strict=True):
        assert one.floor <= most <= one.most
        assert most * one.pods <= replicas_that_fit(with_limits(one), nodes)
        used[GPU] += most * one.pods * one.gpus[GPU]
    assert used[GPU] <= gpus_of(nodes).get(GPU, 0)


@given(_CLAIMANTS, _NODES)
def test_no_gpu_is_left_that_somebody_wants(claimants: list[Claimant], nodes: list[dict[str, Any]]) -> None:
    """With single GPUs, where each one that is free can be used."""
    claimants = [replace(one, gpus={GPU: 1}, pods=1, pod={}) for one in claimants]
    offered = gpus_of(nodes).get(GPU, 0)
    if sum(one.floor for one in claimants) > offered:
        with pytest.raises(HopError, match="minima together need"):
            divide(claimants, nodes, NONE)
        return
    maxima = divide(claimants, nodes, NONE)
    assert sum(maxima) == min(offered, sum(one.most for one in claimants))
    short = [one for one, most in zip(claimants, maxima, strict=True) if most < one.most]
    for one, most in zip(claimants, maxima, strict=True):
        # Above its floor is only who is not below anybody who wants more.
        if most > one.floor:
            assert all(other.priority <= one.priority for other in short)
    for one, most in zip(claimants, maxima, strict=True):
        for other, others in zip(claimants, maxima, strict=True):
            if one.priority == other.priority and most < one.most:
                assert others <= max(other.floor, most + 1)


@given(_CLAIMANTS, _NODES, st.integers(1, 4))
def test_more_gpus_take_nothing_away(claimants: list[Claimant], nodes: list[dict[str, Any]], more: int) -> None:
    claimants = [replace(one, gpus={GPU: 1}, pods=1, pod={}) for one in claimants]
    if sum(one.floor for one in claimants) <= gpus_of(nodes).get(GPU, 0):
        before = divide(claimants, nodes, NONE)
        after = divide(claimants, [*nodes, node(more, "added")], NONE)
        assert all(was <= now for was, now in zip(before, after, strict=True))
