"""Which nodes the role gpu_mig partitions, by which labels, and what it rejects before it drains a node."""

from __future__ import annotations

from typing import Any

import pytest
from planned import plan_of

CONFIG, STATE, STRATEGY = "nvidia.com/mig.config", "nvidia.com/mig.config.state", "nvidia.com/mig.strategy"
BEFORE, CORDON = "kubegpu.autoscale/mig-before", "kubegpu.autoscale/cordoned-for-mig"
INVENTORY, OURS = "kubegpu.autoscale/mig-inventory", {"kubegpu.autoscale/mig-inventory": "one"}
SMALL = "all-1g.10gb"
PRESENT = {"state": "present", "profile": SMALL, "inventory_id": "one"}
ABSENT = {"state": "absent", "inventory_id": "one"}


def node(name: str = "h1", *, cordoned: bool = False, annotations: Any = None, **labels: str) -> dict[str, Any]:
    named = {CONFIG: labels.get("config"), STATE: labels.get("state"), STRATEGY: labels.get("strategy")}
    named |= {"nvidia.com/gpu.deploy.mig-manager": labels.get("managed", "true")}
    given = {key: value for key, value in named.items() if value is not None}
    metadata = {"name": name, "labels": given, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"unschedulable": True} if cordoned else {}}


def changes(request: dict[str, Any], *nodes: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plan_of("gpu_mig", {"nodes": nodes, "strategy": ""}, **request)["changes"]
    return found


def test_a_node_with_another_profile_is_partitioned() -> None:
    [change] = changes(PRESENT, node(config="all-disabled", state="success"))
    assert (change["name"], change["has"], change["wanted"]) == ("h1", "all-disabled", SMALL)
    assert (change["applied"], change["cordoned"]) == (False, False)
    assert change["start"] == {"labels": {CONFIG: SMALL, STATE: None}, "annotations": {BEFORE: "all-disabled", **OURS}}
    assert change["end"] == {"labels": {}, "annotations": {CORDON: None}}


@pytest.mark.parametrize("state", [None, "pending", "failed"])
def test_a_profile_that_the_manager_has_not_applied_is_waited_for(state: str | None) -> None:
    [change] = changes(PRESENT, node(config=SMALL, **({"state": state} if state else {})))
    assert change["applied"] is False


def test_a_node_with_the_profile_is_left_alone() -> None:
    assert changes(PRESENT, node(config=SMALL, state="success")) == []


def test_an_interrupted_run_goes_on() -> None:
    """Only the role's own cordon is left. It is no cordon that was set by hand."""
    [change] = changes(PRESENT, node(config=SMALL, state="success", cordoned=True, annotations={CORDON: "one"}))
    assert (change["applied"], change["cordoned"]) == (True, False)


def test_a_cordon_that_was_set_by_hand_is_known() -> None:
    assert changes(PRESENT, node(cordoned=True))[0]["cordoned"] is True


def test_a_second_profile_keeps_what_was_there_before_the_first() -> None:
    [change] = changes(
        PRESENT, node(config="all-3g.40gb", state="success", annotations={BEFORE: "all-2g.20gb", **OURS})
    )
    assert change["start"]["annotations"] == {BEFORE: "all-2g.20gb", **OURS}


@pytest.mark.parametrize(
    ("before", "wanted", "labels"),
    [("all-2g.20gb", "all-2g.20gb", {}), ("", "all-disabled", {CONFIG: None, STATE: None})],
    ids=["a profile", "no profile"],
)
def test_a_removal_gives_back_what_there_was(before: str, wanted: str, labels: dict[str, Any]) -> None:
    [change] = changes(ABSENT, node(config=SMALL, state="success", annotations={BEFORE: before, **OURS}))
    assert change["wanted"] == wanted
    assert change["end"] == {"labels": labels, "annotations": {CORDON: None, BEFORE: None, INVENTORY: None}}


def test_a_removal_leaves_the_profiles_of_others() -> None:
    assert changes(ABSENT, node(config=SMALL, state="success")) == []


def test_a_removal_leaves_the_profiles_of_other_inventories() -> None:
    theirs = {BEFORE: "", INVENTORY: "two", CORDON: "two"}
    assert changes(ABSENT, node(config=SMALL, state="success", cordoned=True, annotations=theirs)) == []


def test_a_profile_of_another_inventory_is_not_changed() -> None:
    theirs = {BEFORE: "", INVENTORY: "two"}
    [said] = refusals(node(config="all-3g.40gb", annotations=theirs))
    assert "the profile of h1 (two) was set for another inventory, and this one is one." in said
    assert refusals(node(config=SMALL, annotations=theirs)) == []


def refusals(*nodes: dict[str, Any], strategy: str = "", **options: Any) -> list[str]:
    said: list[str] = plan_of("gpu_mig", {"nodes": nodes, "strategy": strategy}, **PRESENT | options)["refused"]
    return said


@pytest.mark.parametrize(
    ("profile", "label", "strategy", "is_refused"),
    [
        ("all-balanced", "single", "", True),
        ("all-balanced", "mixed", "", False),
        ("all-balanced", None, "", False),
        (SMALL, "single", "", False),
        ("all-balanced", None, "single", True),
        ("all-balanced", "single", "mixed", False),
    ],
    ids=["single", "mixed", "not labelled", "of one size", "by our chart", "changed by our chart"],
)
def test_instances_of_several_sizes_need_the_strategy_that_offers_them(
    profile: str, label: str | None, strategy: str, is_refused: bool
) -> None:
    """By `single` the plugin offers none: "more than one MIG device type present on node"."""
    said = refusals(node(**({"strategy": label} if label else {})), profile=profile, strategy=strategy)

    assert bool(said) is is_refused
    assert all("Next: gpu_operator_values: {mig: {strategy: mixed}}" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("nodes", "request_", "words"),
    [
        ([node()], {"profile": ""}, "gpu_mig_profile is empty. Nothing was changed."),
        ([], {}, "no node has the label nvidia.com/mig.capable=true. Nothing was changed."),
        ([], {"gpu_node_selector": {"tier": "a"}}, '=true, of the pool {"tier": "a"}.'),
        ([node("h1"), node("h2", managed="false")], {}, "MIG: h2 has no MIG manager. Nothing was changed."),
    ],
    ids=["no profile", "no node", "no node of the pool", "no manager"],
)
def test_what_cannot_work_is_rejected(nodes: list[Any], request_: dict[str, Any], words: str) -> None:
    [said] = refusals(*nodes, **request_)
    assert words in said
    assert "Next: " in said


def test_a_removal_is_not_rejected() -> None:
    assert refusals(state="absent", profile="") == []
