"""Recorded metrics: what an HPA reads stays, and what could not be listed is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, count, product, repeat
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.outcome import Outcome
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.record_metrics import (
    record_metrics,
    verify_metrics,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.wait import Deadline
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import (
    INFO_SERIES,
    MONITORING,
    PART,
    metric_objects,
    read_metrics,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import marked
from fake_cluster import FakeTransport, refusal

OPTIONS = RuleOptions(inventory="prod")
TEAMS = RuleOptions()
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


def paths_of(entries: Sequence[dict[str, Any]]) -> set[str]:
    made = metric_objects(read_metrics(list(entries)), OPTIONS)
    return {path(one["kind"], one["metadata"]["namespace"], one["metadata"]["name"]) for one in made}


def rerun(
    before: Sequence[dict[str, Any]],
    now: Sequence[dict[str, Any]],
    *,
    options: RuleOptions = OPTIONS,
    is_removal: bool = False,
    **answers: Any,
) -> tuple[set[str], list[str]]:
    """Paths of what a run with the list `now` deletes after one with the list `before`, and its warnings."""
    made = [marked(one, options.inventory, PART) for one in metric_objects(read_metrics(list(before)), options)]
    found = {
        f"GET {path(kind, namespace)}": {
            "items": [one for one in made if one["kind"] == kind and namespace in ("", one["metadata"]["namespace"])]
        }
        for kind in PLURALS
        for namespace in ("", "monitoring", "ml", "chat")
    }
    paths = paths_of(before) | paths_of(now)
    served = {"resources": [{"name": plural, "kind": kind} for kind, plural in PLURALS.items()]}
    transport = FakeTransport(
        {f"GET /apis/{MONITORING}": served, f"GET {HPAS}": {"items": []}}
        | {f"DELETE {one}": {} for one in paths}
        | {f"PATCH {one}": {"kind": "", "metadata": {"name": one}} for one in paths}
        | {f"GET {one}": refusal(404, "not found") for one in paths}
        | found
        | answers
    )
    outcome = Outcome()
    record_metrics(KubeClient(transport), read_metrics(list(now)), options, outcome, is_removal=is_removal)
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


VARIANTS = [
    {"namespace": "ml", "name": name, **({"scrape": scrape} if scrape else {})}
    for name in ("queue_depth", "users")
    for scrape in ({}, {"port": "metrics"}, {"port": "http"})
]


SCRAPES = [
    [{**QUEUE, "scrape": {"port": "metrics", **more}}]
    for more in ({}, {"port": "http"}, {"interval": 2}, {"labels": {"app": "chat"}})
]
WITHOUT = {"namespace": "ml", "name": "queue_depth"}
ALONE = [[WITHOUT, {"namespace": "ml", "scrape": one["scrape"]}] for [one] in SCRAPES]


@pytest.mark.parametrize("options", [OPTIONS, TEAMS], ids=["inventory", "none"])
@pytest.mark.parametrize("reads", [[], ["users"], ["queue_depth"]])
def test_a_pod_monitor_stays_while_an_hpa_reads_a_metric_that_has_no_other(
    reads: list[str], options: RuleOptions
) -> None:
    """Generated: each change of the scrape of an entry, and of one beside it without a name."""
    hpas = {f"GET {HPAS}": {"items": [an_hpa("ml", name) for name in reads]}}
    for before, now in product([*SCRAPES, *ALONE], [*SCRAPES, *ALONE, [WITHOUT]]):
        if options is TEAMS and before in ALONE:
            continue  # an entry without a name may be that of another team
        gone, warnings = rerun(before, now, options=options, **hpas)
        leaving = paths_of(before) - paths_of(now)
        kept = leaving if now == [WITHOUT] and "queue_depth" in reads else set()
        assert gone == leaving - kept, (before, now)
        assert len(warnings) == bool(kept)
        assert all(one.rpartition("/")[2] in warnings[0] for one in kept)


@pytest.mark.parametrize("is_removal", [False, True])
def test_runs_without_an_inventory_keep_entries_that_they_do_not_name(is_removal: bool) -> None:
    """Generated: each two entries of two teams, and each list of the first team's next run."""
    for mine, theirs, now in product(VARIANTS, VARIANTS, [[], *([one] for one in VARIANTS), [QUEUE, USERS]]):
        if mine["name"] == theirs["name"] or theirs["name"] in {one["name"] for one in now if one["namespace"] == "ml"}:
            continue
        gone, warnings = rerun([mine, theirs], now, options=TEAMS, is_removal=is_removal)
        is_named = mine["name"] in {one["name"] for one in now}
        leaving = paths_of([mine]) - (set() if is_removal else paths_of(now)) if is_named else set()
        leaving |= paths_of(now) & paths_of([mine, theirs]) if is_removal else set()
        assert (gone, warnings) == (leaving - paths_of([theirs]), []), (mine, theirs, now)


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


CUSTOM = "/apis/custom.metrics.k8s.io"
PODS = {"chat-0": 30.0004, "chat-1": 0.0}


DEPTH = {"namespace": "ml", "name": "queue_depth"}
# Versions of one entry: the query differs, or the pods' port.
VERSIONS = [
    {**DEPTH, **({"query": query} if query else {}), "scrape": {"port": port}}
    for query in ("", "max by (namespace, pod) (queue_length)")
    for port in ("metrics", "http")
]


def verified(
    served: dict[str, float],
    recorded: dict[str, list[float]],
    *,
    entry: dict[str, Any] = DEPTH,
    seen: Callable[[], dict[str, Any]] | None = None,
    seconds: int = 0,
) -> tuple[dict[str, Any], list[str], list[str]]:
    """The entry, errors and warnings of a metric that the query returns for PODS.

    seen: the version of the entry whose rule and PodMonitor Prometheus has at this moment.
    """

    def prometheus(path: str, query: dict[str, str], **_options: Any) -> dict[str, Any]:
        [there] = read_metrics([seen() if seen else entry])
        if query.get("query") == INFO_SERIES:
            return {"status": "success", "data": {"result": [{"metric": there.info, "value": [130, "1"]}]}}
        if query.get("query", "").startswith("up{") and f'"{there.job}"' not in query["query"]:
            return {"status": "success", "data": {"result": []}}
        if path.endswith("/rules"):
            return {"status": "success", "data": {"groups": []}}
        if query["query"] == "time()":
            return {"status": "success", "data": {"resultType": "scalar", "result": [130, "130"]}}
        labels = {"namespace": "ml"}
        if query["query"].startswith("namespace_pod:queue_depth:avg"):
            found = [
                {
                    "metric": {**labels, "pod": pod},
                    "values": [[100 + at, str(value)] for at, value in enumerate(values)],
                }
                for pod, values in recorded.items()
            ]
        else:
            found = [{"metric": {**labels, "pod": pod}, "value": [130, str(value)]} for pod, value in PODS.items()]
        return {"status": "success", "data": {"resultType": "", "result": found}}

    items = [
        {"describedObject": {"kind": "Pod", "namespace": "ml", "name": pod}, "value": f"{int(1000 * value)}m"}
        | {"metricName": "queue_depth", "timestamp": "2026-01-01T00:00:00Z"}
        for pod, value in served.items()
    ]
    answers = {
        f"GET {CUSTOM}": {"versions": [{"version": "v1beta2"}], "preferredVersion": {"version": "v1beta2"}},
        f"GET {CUSTOM}/v1beta2": {"resources": [{"name": "pods/queue_depth"}]},
        f"GET {CUSTOM}/v1beta2/namespaces/ml/pods/*/queue_depth": {"items": items},
    }
    outcome = Outcome()
    kube, client = KubeClient(FakeTransport(answers)), PrometheusClient.at("http://prometheus", prometheus)
    ticks = count()
    deadline = Deadline(seconds, clock=lambda: next(ticks), sleep=lambda _seconds: None)
    verify_metrics(kube, client, read_metrics([entry]), deadline, outcome)
    [found] = outcome.result["recorded"]
    return found, [str(error) for error in outcome.errors], outcome.warnings


ONCE = {pod: [value] for pod, value in PODS.items()}


@pytest.mark.parametrize(
    ("served", "recorded"),
    [(PODS, ONCE), (PODS, {"chat-0": [10.0, 25.0], "chat-1": [0.0, 0.0]})],
    ids=["rounded", "changing"],
)
def test_a_metric_is_verified_by_the_values_of_its_recorded_series(served: Any, recorded: Any) -> None:
    entry, errors, warnings = verified(served, recorded)
    assert (entry["verified"], entry["missing"], entry["disagreeing"], errors, warnings) == (True, [], [], [], [])
    assert entry["pod_values"] == {"chat-0": 30.0, "chat-1": 0.0}


@pytest.mark.parametrize(
    ("served", "recorded", "seen"),
    [
        (PODS, {}, "namespace_pod:queue_depth:avg has no value of pod chat-0, chat-1"),
        (PODS, {"chat-0": [30]}, "namespace_pod:queue_depth:avg has no value of pod chat-1"),
        ({pod: 2 * value for pod, value in PODS.items()}, ONCE, "of pod chat-0 60 instead of 30.0004"),
        ({"chat-0": 30, "chat-1": 0.1}, ONCE, "of pod chat-1 0.1 instead of 0"),
        ({"chat-0": 30}, ONCE, "no value of pod chat-1"),
        ({}, ONCE, "queue_depth"),
    ],
    ids=["no rule", "no rule for a pod", "twice the value", "another value of zero", "not served", "none served"],
)
def test_a_metric_is_not_verified(served: Any, recorded: Any, seen: str) -> None:
    entry, [error], _warnings = verified(served, recorded)
    assert entry["verified"] is False
    assert entry["missing"] or entry["disagreeing"]
    assert seen in error


@pytest.mark.parametrize(("before", "now"), list(product(VERSIONS, VERSIONS)))
def test_a_changed_entry_is_verified_once_prometheus_has_its_rule_and_scrapes_its_pods(before: Any, now: Any) -> None:
    """Generated: the values of all versions are equal, so that they show nothing."""
    entry, errors, _warnings = verified(PODS, ONCE, entry=now, seen=lambda: before)
    assert entry["verified"] is (before == now)
    assert len(errors) == (before != now)
    if before.get("query") != now.get("query"):
        assert "Prometheus has not loaded PrometheusRule kubegpu.ml.queue-depth" in errors[0]
    elif before != now:
        assert "Prometheus does not scrape pod chat-0, chat-1 by PodMonitor ml/kubegpu-" in errors[0]
    loading = chain([before] * 12, repeat(now))
    entry, errors, _warnings = verified(PODS, ONCE, entry=now, seen=lambda: next(loading), seconds=60)
    assert (entry["verified"], errors) == (True, []), "it is waited for"


def test_values_of_the_old_rule_prove_nothing_about_the_new_one() -> None:
    """The values of the old rule agreed, and those of the new one do not."""
    now = VERSIONS[-1]
    versions = chain([VERSIONS[0]] * 12, repeat(now))
    recorded = {pod: list(values) for pod, values in ONCE.items()}

    def seen() -> dict[str, Any]:
        version = next(versions)
        if version == now:
            recorded.update({"chat-0": [99.0], "chat-1": [99.0]})
        return version

    entry, [error], _warnings = verified(PODS, recorded, entry=now, seen=seen, seconds=60)
    assert (entry["verified"], entry["disagreeing"]) == (False, ["chat-0", "chat-1"])
    assert "another value" in error
