"""Whole clusters, most of others' making, from what their API server and Prometheus answer to the report."""

from __future__ import annotations

import re

import pytest
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_autoscaler_manifests import gpu_autoscaler_manifests
from replay import CASES, CLUSTERS, Replay


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_healthy_cluster_has_no_finding(name: str) -> None:
    live = Replay(name)
    report = live.examine()
    assert [(finding["id"], finding["seen"]) for finding in report["findings"]] == []
    assert {hop["id"]: hop["status"] for hop in report["hops"] if hop["status"] != "ok"} == dict.fromkeys(
        live.cluster["unknown"], "unknown"
    )
    assert [unchecked["check"] for unchecked in report["not_checked"]] == live.cluster["not_checked"]
    assert [autoscaler["verified"] for autoscaler in report["autoscalers"]] == [True]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_what_changes_in_it_is_found_and_nothing_else(name: str, case: str) -> None:
    live = Replay(name, case)
    report = live.examine()
    found = [{key: finding[key] for key in ("id", "object", "seen")} for finding in report["findings"]]
    assert found == live.cluster["cases"][case]["findings"]


@pytest.mark.parametrize(("name", "case"), [*((name, "") for name in CLUSTERS), *CASES])
def test_each_answer_is_asked_for(name: str, case: str) -> None:
    """The file has nothing that nobody asks for any more. A query that has changed is answered anew."""
    live = Replay(name, case)
    live.examine()
    expected = live.cluster["cases"][case].get("unasked", []) if case else []
    assert live.unasked == set(expected)


@pytest.mark.parametrize("name", CLUSTERS)
def test_each_says_where_its_answers_are_from(name: str) -> None:
    assert CLUSTERS[name]["origin"] in ("written", "captured")


@pytest.mark.parametrize(("name", "case"), [*((name, "") for name in CLUSTERS), *CASES])
def test_one_of_a_kind_is_not_plural(name: str, case: str) -> None:
    summaries = [hop["summary"] for hop in Replay(name, case).examine()["hops"]]
    assert [
        text for text in summaries if re.search(r"(?<![\w.])1 (GPU )?(pods|nodes|metrics|autoscalers)\b", text)
    ] == []


def test_the_lab_was_captured_with_the_rules_of_today() -> None:
    """If this fails: `make demo`, `make site`, then `make capture` into answers/lab.json."""
    [made, _hpa] = gpu_autoscaler_manifests(
        [{"name": "sample", "namespace": "gpu-workload", "target": {"name": "sample"}, "max_replicas": 8}],
        evaluation_interval=1,
        selectors={"exporter": {"job": "dcgm-exporter"}, "kube_state_metrics": {"job": "kube-state-metrics"}},
    )
    [listed] = [body for path, body in CLUSTERS["lab"]["answers"].items() if path.endswith("/prometheusrules")]
    [captured] = [rule for rule in listed["items"] if rule["metadata"]["name"] == made["metadata"]["name"]]
    assert captured["spec"] == made["spec"]
