"""Objects of a part: requests, and objects that do not change. test_alerts_role.py uses a real API server."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.objects import make_objects
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import labels as labels_of
from fake_cluster import FakeTransport, refusal

KINDS = [{"api_version": "v1", "kind": "ConfigMap"}]
LABELS = {**labels_of("prod"), "app.kubernetes.io/part-of": "boards"}
SERVED = {"GET /api/v1": {"resources": [{"name": "configmaps", "kind": "ConfigMap"}]}}
PATH = "/api/v1/namespaces/monitoring/configmaps"


def config_map(name: str, text: str = "{}", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "monitoring", "labels": labels},
        "data": {"a.json": text},
    }


def listed(*objects: dict[str, Any]) -> dict[str, Any]:
    """In a list the server leaves out what they are."""
    return {"items": [{key: manifest[key] for key in ("metadata", "data")} for manifest in objects]}


def made(
    there: list[dict[str, Any]], wanted: list[dict[str, Any]], *, dry_run: bool = False, **answers: Any
) -> tuple[dict[str, str], FakeTransport]:
    """What became of each object, by name."""
    transport = FakeTransport({**SERVED, "GET /api/v1/configmaps": listed(*there), **answers})
    outcome = make_objects(KubeClient(transport, dry_run=dry_run), "boards", KINDS, wanted, "prod")
    assert not outcome.errors
    return {entry["name"]: entry["action"] for entry in outcome.result["objects"]}, transport


def test_only_what_differs_is_sent_and_what_is_not_wanted_goes() -> None:
    there = [config_map(name, **LABELS) for name in ("same", "edited", "old")]
    wanted = [config_map("same"), config_map("edited", "[]"), config_map("new")]
    answers = {
        f"GET {PATH}/new": refusal(404, "not found"),
        f"PATCH {PATH}/edited": config_map("edited", "[]", **LABELS),
        f"PATCH {PATH}/new": config_map("new", **LABELS),
        f"DELETE {PATH}/old": {},
    }
    actions, transport = made(there, wanted, **answers)

    assert actions == {"same": "unchanged", "edited": "changed", "new": "created", "old": "deleted"}
    assert f"PATCH {PATH}/same" not in transport.asked
    sent = [request.body["metadata"]["labels"] for request in transport.requests if request.method == "PATCH"]
    assert sent == [LABELS, LABELS]


@pytest.mark.parametrize("namespaces", [["monitoring"], []])
def test_of_equal_names_in_two_namespaces_one_stays(namespaces: list[str]) -> None:
    """Its owner may have no right elsewhere: nothing is asked of the whole cluster."""
    elsewhere = config_map("board", **LABELS)
    elsewhere["metadata"]["namespace"] = "of-others"
    there = listed(config_map("board", **LABELS), config_map("old", **LABELS), elsewhere)
    answers = {"GET /api/v1/configmaps": there, f"DELETE {PATH}/board": {}, f"DELETE {PATH}/old": {}}
    transport = FakeTransport({**SERVED, **answers})
    wanted = [] if namespaces else [config_map("board")]
    made = make_objects(KubeClient(transport), "boards", KINDS, wanted, "prod", namespaces=namespaces)
    gone = {"board", "old"} if namespaces else {"old"}
    deleted = {(entry["namespace"], entry["name"]) for entry in made.result["objects"] if entry["action"] == "deleted"}
    assert deleted == {("monitoring", name) for name in gone}
    assert "GET /api/v1/configmaps" not in transport.asked


def test_without_a_namespace_nothing_is_looked_for() -> None:
    made = make_objects(KubeClient(FakeTransport(SERVED)), "boards", KINDS, [], "prod", namespaces=[])
    assert (made.changed, made.result) == (False, {"objects": []})


def test_an_object_of_somebody_else_is_refused_before_anything_is_sent() -> None:
    transport = FakeTransport(
        {**SERVED, "GET /api/v1/configmaps": listed(), f"GET {PATH}/theirs": config_map("theirs")}
    )
    with pytest.raises(HopError, match="ConfigMap monitoring/theirs is not managed by this collection"):
        make_objects(KubeClient(transport), "boards", KINDS, [config_map("ours"), config_map("theirs")], "prod")
    assert {request.method for request in transport.requests} == {"GET"}


def test_a_kind_that_nobody_serves_is_refused_and_in_check_mode_awaited() -> None:
    rules = [{"api_version": "monitoring.coreos.com/v1", "kind": "PrometheusRule"}]
    rule = {**config_map("rule"), "kind": "PrometheusRule"}
    with pytest.raises(HopError, match="no PrometheusRule is served"):
        make_objects(KubeClient(FakeTransport({})), "alerts", rules, [rule], "prod")

    outcome = make_objects(KubeClient(FakeTransport({}), dry_run=True), "alerts", rules, [rule], "prod")
    assert outcome.changed
    assert outcome.warnings == ["no PrometheusRule is served yet, so it cannot be checked"]
    assert not make_objects(KubeClient(FakeTransport({})), "alerts", rules, [], "prod").changed


def test_check_mode_takes_a_namespace_that_is_still_to_come_as_given() -> None:
    actions, _ = made([], [config_map("new")], dry_run=True)
    assert actions == {"new": "created"}


def test_a_refusal_of_the_server_is_an_error_of_that_object_alone() -> None:
    transport = FakeTransport(
        {
            **SERVED,
            "GET /api/v1/configmaps": listed(),
            f"PATCH {PATH}/a": refusal(403, "forbidden"),
            f"PATCH {PATH}/b": config_map("b", **LABELS),
        }
    )
    outcome = make_objects(KubeClient(transport), "boards", KINDS, [config_map("a"), config_map("b")], "prod")
    assert [entry["action"] for entry in outcome.result["objects"]] == ["failed", "created"]
    assert [error.status for error in outcome.errors] == [403]


def test_what_another_inventory_made_is_neither_changed_nor_removed() -> None:
    theirs = {**labels_of("staging"), "app.kubernetes.io/part-of": "boards"}
    old, board = config_map("old", **theirs), config_map("board", **theirs)
    transport = FakeTransport({**SERVED, "GET /api/v1/configmaps": listed(), f"GET {PATH}/board": board})
    with pytest.raises(HopError) as caught:
        make_objects(KubeClient(transport), "boards", KINDS, [config_map("board")], "prod")
    assert caught.value.seen.startswith(
        "ConfigMap monitoring/board belongs to inventory staging, and this run is for inventory prod."
    )
    hand_over = "kubectl -n monitoring label --overwrite configmap board kubegpu.autoscale/inventory=prod"
    assert caught.value.fix.endswith(hand_over)

    in_namespace = FakeTransport({**SERVED, "GET /api/v1/configmaps": listed(old)})
    assert not make_objects(KubeClient(in_namespace), "boards", KINDS, [], "prod", namespaces=["monitoring"]).changed
    assert {request.method for request in (*transport.requests, *in_namespace.requests)} == {"GET"}


def test_what_was_not_there_is_not_forced() -> None:
    """It may have come meanwhile, and be somebody else's."""
    answers = {
        f"PATCH {PATH}/edited": config_map("edited", "[]", **LABELS),
        f"PATCH {PATH}/new": config_map("new", **LABELS),
    }
    _actions, transport = made(
        [config_map("edited", **LABELS)], [config_map("edited", "[]"), config_map("new")], **answers
    )
    forced = {request.path: "force" in request.query for request in transport.requests if request.method == "PATCH"}
    assert forced == {f"{PATH}/edited": True, f"{PATH}/new": False}
