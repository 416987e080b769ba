"""Recorded metrics: what an HPA reads stays, and what could not be listed is reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.record_metrics import record_metrics
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import (
    MONITORING,
    PART,
    metric_objects,
    read_metrics,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import marked
from fake_cluster import FakeTransport, refusal

OPTIONS = RuleOptions()
QUEUE = {"namespace": "ml", "name": "queue_depth", "scrape": {"port": "metrics"}}
USERS = {"namespace": "chat", "name": "users", "scrape": {"port": "metrics"}}
PLURALS = {"PrometheusRule": "prometheusrules", "PodMonitor": "podmonitors"}
HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"


def path(kind: str, namespace: str = "", name: str = "") -> str:
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{MONITORING}{place}/{PLURALS[kind]}{f'/{name}' if name else ''}"


def an_hpa(namespace: str, metric: str) -> dict[str, Any]:
    pods = {"metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": "20"}}
    return {
        "metadata": {"name": "theirs", "namespace": namespace},
        "spec": {"metrics": [{"type": "Pods", "pods": pods}]},
    }


def rerun(
    before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]], **answers: Any
) -> tuple[set[str], list[str]]:
    """Paths of what a run with the list `now` deletes after one with the list `before`, and its warnings."""
    made = [marked(one, OPTIONS.inventory, PART) for one in metric_objects(read_metrics(list(before)), OPTIONS)]
    found = {f"GET {path(kind)}": {"items": [one for one in made if one["kind"] == kind]} for kind in PLURALS}
    paths = [path(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in made]
    served = {"resources": [{"name": plural, "kind": kind} for kind, plural in PLURALS.items()]}
    transport = FakeTransport(
        {f"GET /apis/{MONITORING}": served, **{f"DELETE {one}": {} for one in paths}, f"GET {HPAS}": {"items": []}}
        | found
        | answers
    )
    outcome = Outcome()
    record_metrics(KubeClient(transport), read_metrics(list(now)), OPTIONS, outcome)
    assert not outcome.errors
    return {request.path for request in transport.requests if request.method == "DELETE"}, outcome.warnings


@pytest.mark.parametrize(
    ("hpas", "kept"),
    [
        ({"items": [an_hpa("ml", "queue_depth")]}, {"ml"}),
        ({"items": [an_hpa("ml", "queue_depth"), an_hpa("chat", "users")]}, {"ml", "chat"}),
        ({"items": [an_hpa("ml", "users"), an_hpa("other", "queue_depth")]}, set()),
        ({"items": []}, set()),
        (refusal(403, "forbidden"), {"ml", "chat"}),
    ],
)
@pytest.mark.parametrize("left", [[], [USERS]])
def test_what_an_hpa_reads_stays_with_a_warning(left: list[dict[str, Any]], hpas: Any, kept: set[str]) -> None:
    gone, warnings = rerun([QUEUE, USERS], left, **{f"GET {HPAS}": hpas})
    unwanted = {"ml", "chat"} - {entry["namespace"] for entry in left}
    assert {namespace for namespace in ("ml", "chat") if any(namespace in one for one in gone)} == unwanted - kept
    assert len(gone) == 2 * len(unwanted - kept)
    assert len(warnings) == bool(unwanted & kept)
    for namespace in unwanted & kept:
        assert f"PodMonitor {namespace}/kubegpu-metrics" in warnings[0]
        assert f"PrometheusRule monitoring/kubegpu.{namespace}." in warnings[0]


@pytest.mark.parametrize("kind", PLURALS)
@pytest.mark.parametrize("left", [[], [USERS]])
def test_without_the_right_to_list_the_cluster_removed_entries_are_named_as_unchecked(
    left: list[dict[str, Any]], kind: str
) -> None:
    forbidden = refusal(403, "forbidden")
    made = {one["kind"]: one for one in metric_objects(read_metrics([QUEUE]), OPTIONS)}
    names = {other: made[other]["metadata"]["name"] for other in PLURALS}
    every = [marked(one, OPTIONS.inventory, PART) for one in metric_objects(read_metrics([QUEUE, USERS]), OPTIONS)]
    lists = {
        f"GET {path(other, namespace)}": {
            "items": [one for one in every if (one["kind"], one["metadata"]["namespace"]) == (other, namespace)]
        }
        for other in PLURALS
        for namespace in ("monitoring", "chat", "ml")
    }
    gone, warnings = rerun([QUEUE, USERS], left, **{f"GET {path(kind)}": forbidden, **lists})
    if any(names[kind] in one and ("ml" in one) for one in gone):
        return
    [warning] = warnings
    assert "PrometheusRules and PodMonitors of entries that are no longer in metrics may remain" in warning
    assert warning.endswith("in namespaces other than chat, monitoring" if left else "in any namespace")
