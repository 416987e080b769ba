"""The device plugin's configurations for pools of nodes, and which nodes get a label."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import FilterModule
from ansible_collections.kubegpu.autoscale.plugins.module_utils.components.plugin_pools import plugin_pools

shares_gpus = FilterModule().filters()["shares_gpus"]

POOL = {"name": "dev", "nodes": {"pool": "dev"}}
ADMIN = {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}


def node(name: str, labels: dict[str, str], **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}}


def shared(key: str, replicas: int) -> dict[str, Any]:
    resources = [{"name": "nvidia.com/gpu", "replicas": replicas}]
    return {"version": "v1", "sharing": {key: {"resources": resources}}}


@pytest.mark.parametrize(("strategy", "key"), [("time-slicing", "timeSlicing"), ("mps", "mps")])
def test_all_nodes_share_by_a_word(strategy: str, key: str) -> None:
    found = plugin_pools({"sharing": strategy, "replicas": "8"})["configurations"]
    assert {name: yaml.safe_load(text) for name, text in found.items()} == {"default": shared(key, 8)}


def test_a_pool_has_its_own_configuration_and_the_other_nodes_the_default() -> None:
    pool = {**POOL, "sharing": "time-slicing", "replicas": "4", "config": {"flags": {"migStrategy": "single"}}}
    found = plugin_pools({"pools": [pool]})["configurations"]
    assert found["default"] == "version: v1\n"
    assert yaml.safe_load(found["dev"]) == {**shared("timeSlicing", 4), "flags": {"migStrategy": "single"}}
    assert plugin_pools({})["configurations"] == {}


def test_a_configuration_of_the_pool_wins_over_its_replicas() -> None:
    given = shared("mps", 3)
    pool = {**POOL, "sharing": "mps", "replicas": 4, "config": {"sharing": given["sharing"]}}
    assert yaml.safe_load(plugin_pools({"pools": [pool]})["configurations"]["dev"]) == given


def test_a_pool_of_numbers_and_truths_finds_its_nodes() -> None:
    """Labels are text. Without this the pool's configuration applied to no node, and no error said so."""
    nodes = [node("a", {"shared": "true", "tier": "1"}), node("b", {"shared": "false", "tier": "1"})]
    found = plugin_pools({"pools": [{"name": "dev", "nodes": {"shared": True, "tier": 1}}]}, nodes)
    assert [(row["node"], row["config"]) for row in found["labels"]] == [("a", "dev")]
    (command,) = found["commands"]
    assert command == ("kubectl label nodes --selector shared=true,tier=1 nvidia.com/device-plugin.config=dev")


OURS = {"kubegpu.autoscale/device-plugin-config": "default"}
LABELLED = {"pool": "dev", "nvidia.com/device-plugin.config": "by-hand"}


def test_a_label_of_a_person_is_a_conflict_and_stays_without_a_pool() -> None:
    nodes = [node("a", LABELLED)]
    conflict = plugin_pools({"pools": [POOL]}, nodes)["conflict"]
    assert "a needs configuration dev, but has by-hand, which was not set for this inventory" in conflict
    assert "No label was changed. Next: " in conflict
    assert plugin_pools({}, nodes)["labels"] == []


def test_a_label_of_another_inventory_is_a_conflict_and_stays_without_a_pool() -> None:
    nodes = [node("a", LABELLED, **OURS)]
    assert "was not set for this inventory" in plugin_pools({"pools": [POOL], "inventory": "b"}, nodes)["conflict"]
    assert plugin_pools({"inventory": "b"}, nodes)["labels"] == []


def test_a_label_of_an_earlier_pool_is_replaced_and_removed() -> None:
    nodes = [node("a", LABELLED, **OURS)]
    replaced, removed = plugin_pools({"pools": [POOL]}, nodes), plugin_pools({}, nodes)
    assert [(row["config"], row["is_own"]) for row in replaced["labels"]] == [("dev", True)]
    assert replaced["conflict"] == ""
    assert [row["config"] for row in removed["labels"]] == [None]


def test_a_node_of_two_pools_has_the_first_and_is_left_alone_once_labelled() -> None:
    pools = [POOL, {**POOL, "name": "other"}]
    labelled = {"pool": "dev", "nvidia.com/device-plugin.config": "dev"}
    assert plugin_pools({"pools": pools}, [node("a", labelled, **OURS)])["labels"] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pools": [{**POOL, "name": "default"}]}, "has the names default."),
        ({"pools": [{**POOL, "name": "Dev_1"}]}, "has the names Dev_1."),
        ({"pools": [POOL, POOL]}, "has the names dev, dev."),
        ({"sharing": "mps"}, "nvidia_device_plugin_sharing has mps with 1 replicas."),
        ({"pools": [{**POOL, "sharing": "time-slicing", "replicas": 1}]}, "pool dev has time-slicing with 1 replicas."),
        ({"sharing": "mps", "replicas": 2, "feature_discovery": False}, "MPS needs nvidia_device_plugin_feature_disc"),
        ({"pools": [{**POOL, "sharing": "mps", "replicas": 2}], "feature_discovery": False}, "MPS needs"),
    ],
)
def test_what_the_plugin_would_not_take_is_a_fault(options: dict[str, Any], said: str) -> None:
    (fault,) = plugin_pools(options)["faults"]
    assert said in fault
    assert "Nothing was changed. Next: " in fault


def test_what_fits_is_no_fault_and_replicas_have_to_be_numbers() -> None:
    assert (
        plugin_pools({"pools": [{**POOL, "sharing": "mps", "replicas": 2}], "feature_discovery": True})["faults"] == []
    )
    with pytest.raises(ValueError, match="whole numbers"):
        plugin_pools({"sharing": "mps", "replicas": "many"})


@pytest.mark.parametrize(
    ("pools", "sharing", "expected"),
    [
        ([], "none", False),
        ([], "mps", True),
        ([{"name": "dev"}], "none", False),
        ([{"name": "dev", "sharing": "none"}], "none", False),
        ([{"name": "dev", "sharing": "time-slicing"}], "none", True),
        ([{"name": "dev", "config": {"sharing": {}}}], "none", True),
        ([{"name": "dev", "config": None}], "none", False),
    ],
)
def test_a_pool_is_enough_for_gpus_to_be_shared(pools: list[dict[str, Any]], sharing: str, expected: bool) -> None:
    assert shares_gpus(pools, sharing) is expected


def test_the_chart_gets_configurations_where_there_are_some() -> None:
    found = plugin_pools({"sharing": "mps", "replicas": 2})
    assert found["chart_values"] == {"config": {"map": found["configurations"], "default": "default"}, **ADMIN}
    assert plugin_pools({})["chart_values"] == ADMIN
    # With this value, the chart makes the plugin privileged.
    assert plugin_pools({"values": {"compatWithCPUManager": True}})["chart_values"] == {}


CONTEXTS = {
    "none": ({}, True),
    "privileged": ({"securityContext": {"privileged": True}}, True),
    "more capabilities": ({"securityContext": {"capabilities": {"drop": ["ALL"]}}}, True),
    "for the CPU manager": ({"compatWithCPUManager": True}, True),
    "other capabilities": ({"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}, False),
    "the chart's default": ({"securityContext": None}, False),
}


@pytest.mark.parametrize("unrequested", ["auto", "deny", "allow"])
@pytest.mark.parametrize(("values", "works"), CONTEXTS.values(), ids=CONTEXTS)
def test_a_plugin_that_finds_gpus_by_the_variable_alone_fails(
    values: dict[str, Any], works: bool, unrequested: str
) -> None:
    found = plugin_pools({"values": values, "unrequested": unrequested})["faults"]

    assert bool(found) is not (works or unrequested == "allow")
    assert all("Nothing was changed. Next: add SYS_ADMIN, or set kubegpu_unrequested_gpus" in text for text in found)


@pytest.mark.parametrize("strategy", ["envvar", "volume-mounts", "cdi-cri", "envvar,cdi-cri"])
@pytest.mark.parametrize("given", ["option", "values"])
def test_a_strategy_by_the_variable_contradicts_its_denial(strategy: str, given: str) -> None:
    options = {"strategy": strategy} if given == "option" else {"values": {"deviceListStrategy": strategy}}
    found = {wanted: plugin_pools({**options, "unrequested": wanted})["faults"] for wanted in ("auto", "deny", "allow")}

    assert {wanted: bool(texts) for wanted, texts in found.items()} == {
        "auto": False,
        "deny": "cdi" not in strategy,
        "allow": False,
    }
