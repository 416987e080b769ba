"""Which workloads of the inventory exist, and what is asked, made and proven because of that."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.roles import autoscaled_workloads

CHAT: dict[str, Any] = {"namespace": "ml", "target": {"name": "chat"}}
ROLLOUT: dict[str, Any] = {"namespace": "web", "name": "front", "target": {"kind": "Rollout", "name": "shop"}}
BOTH = [CHAT, ROLLOUT]
EXISTS, GONE = [{"kind": "Deployment"}], list[Any]()


def test_each_target_is_asked_for_where_its_kind_is_served() -> None:
    own = {"target": {"kind": "Serving", "api_version": "example.org/v1", "name": "own"}}
    assert autoscaled_workloads([*BOTH, own])["queries"] == [
        {"kind": "Deployment", "api_version": "apps/v1", "namespace": "ml", "name": "chat"},
        {"kind": "Rollout", "api_version": "argoproj.io/v1alpha1", "namespace": "web", "name": "shop"},
        {"kind": "Serving", "api_version": "example.org/v1", "namespace": "default", "name": "own"},
    ]


@pytest.mark.parametrize(
    ("found", "missing", "wanted"),
    [
        ([EXISTS, EXISTS], [], BOTH),
        ([EXISTS, GONE], ["Rollout web/shop"], [CHAT]),
        ([GONE, GONE], ["Deployment ml/chat", "Rollout web/shop"], []),
        ([], [], BOTH),
    ],
    ids=["both exist", "one is missing", "none exists", "nothing was asked"],
)
def test_an_autoscaler_waits_for_its_workload(found: list[Any], missing: list[str], wanted: list[Any]) -> None:
    told = autoscaled_workloads(BOTH, found)
    assert (told["missing"], told["wanted"], told["to_prove"]) == (missing, wanted, wanted)


def test_the_hpa_of_a_workload_that_is_gone_is_proven_too() -> None:
    """Its proof fails, with the reason."""
    hpa = {"metadata": {"namespace": "web", "name": "front", "uid": "u"}}
    told = autoscaled_workloads(BOTH, [EXISTS, GONE], [hpa])
    assert told["hpa_queries"] == [
        {"kind": "HorizontalPodAutoscaler", "api_version": "autoscaling/v2", "namespace": "web", "name": "front"}
    ]
    assert told["to_prove"] == [CHAT, {"namespace": "web", "name": "front"}]


@pytest.mark.parametrize("autoscaler", [{}, {"target": {}}, {"target": "chat"}, {"target": None}])
def test_what_names_no_target_is_left_to_the_module(autoscaler: dict[str, Any]) -> None:
    told = autoscaled_workloads([autoscaler], [])
    assert (told["queries"], told["wanted"]) == ([], [autoscaler])


def test_namespaces_are_those_of_all_autoscalers() -> None:
    assert autoscaled_workloads([*BOTH, CHAT, {}], [GONE, GONE, GONE])["namespaces"] == ["ml", "web", "default"]


def named(namespace: str, name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}}


@pytest.mark.parametrize(
    ("target", "there"),
    [
        ({"namespace": "mll", "target": {"name": "chat"}}, "Deployment ml/chat, StatefulSet web/chat"),
        (
            {"namespace": "ml", "target": {"kind": "deployment", "name": "chat"}},
            "Deployment ml/chat, StatefulSet web/chat",
        ),
        ({"namespace": "ml", "target": {"name": "Chat"}}, "Deployment ml/chat, StatefulSet web/chat"),
        ({"namespace": "ml", "target": {"name": "inferense"}}, "Deployment ml/inference"),
        ({"namespace": "ml", "target": {"name": "shop"}}, ""),
    ],
)
def test_a_missing_target_is_searched_under_other_kinds_namespaces_and_spellings(
    target: dict[str, Any], there: str
) -> None:
    found = [[named("ml", "chat"), named("ml", "inference")], [named("web", "chat")]]
    told = autoscaled_workloads([target], [GONE], (), found)
    assert [query["kind"] for query in told["search"]] == ["Deployment", "StatefulSet"]
    assert told["missing_texts"] == [f"{told['missing'][0]} does not exist" + (f" (found: {there})" if there else "")]
    assert autoscaled_workloads([target], [EXISTS])["search"] == []
