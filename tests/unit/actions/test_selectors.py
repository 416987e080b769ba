"""The targets used for GPU metrics if the user selects none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.exporter_labels import with_exporter_labels
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.dcgm_fields import ANY_FIELD
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    prometheus_rules,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler

CHAT = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 8}
GPU = [Autoscaler.from_params(CHAT)]
UTIL = [Autoscaler.from_params({**CHAT, "metric": "gpu_util"})]
QUEUE = [Autoscaler.from_params({**CHAT, "metric": "llm"})]


def rules_of(labels: dict[str, str]) -> list[dict[str, Any]]:
    return prometheus_rules(GPU, RuleOptions(exporter_labels=labels))


@pytest.mark.parametrize(
    ("jobs", "live", "believed"),
    [
        ((), {}, {}),
        (("dcgm",), {}, {"job": "dcgm"}),
        (("dcgm", "evil"), {"job": "dcgm"}, {"job": "dcgm"}),
        ((), {"job": "dcgm"}, {"job": "dcgm"}),
        (("new",), {"job": "gone"}, {"job": "new"}),
        (("dcgm", "evil"), {"job": "dcgm", "cluster": "a"}, {"job": "dcgm", "cluster": "a"}),
    ],
    ids=[
        "no rows yet",
        "one job",
        "a rule keeps its job",
        "rows are away",
        "the exporter has another job",
        "more labels",
    ],
)
def test_a_rule_keeps_the_job_that_it_began_with(
    jobs: tuple[str, ...], live: dict[str, str], believed: dict[str, str]
) -> None:
    rules, warnings = with_exporter_labels(RuleOptions(), jobs, GPU, rules_of(live))
    assert rules.exporter_labels == believed
    assert warnings == []


def test_several_jobs_are_named() -> None:
    rules, (warning,) = with_exporter_labels(RuleOptions(), ("dcgm", "evil"), GPU, [])
    assert rules.exporter_labels == {}
    assert "jobs dcgm, evil report GPUs" in warning
    assert "prometheus.exporter_labels" in warning


def test_what_the_user_says_stands() -> None:
    told = RuleOptions(exporter_labels={"job": "mine"})
    assert with_exporter_labels(told, ("dcgm",), GPU, rules_of({"job": "dcgm"})) == (told, [])


def test_metrics_of_model_servers_need_no_exporter() -> None:
    assert with_exporter_labels(RuleOptions(), ("a", "b"), QUEUE, []) == (RuleOptions(), [])


@pytest.mark.parametrize("theirs", [{}, {"job": "dcgm"}])
def test_a_rule_of_another_inventory_stays_as_it_is(theirs: dict[str, str]) -> None:
    """Else this inventory would have to change it, which it may not."""
    live = prometheus_rules(GPU, RuleOptions(exporter_labels=theirs, inventory="staging"))
    live += prometheus_rules(QUEUE, RuleOptions(inventory="staging"))
    rules, warnings = with_exporter_labels(RuleOptions(inventory="prod"), ("new",), GPU, live)
    assert (rules.exporter_labels, warnings) == (theirs, [])
    own, _warnings = with_exporter_labels(RuleOptions(inventory="prod"), ("new",), UTIL, live)
    assert own.exporter_labels == {"job": "new"}


def test_an_annotation_that_others_have_changed_is_nothing() -> None:
    (rule,) = rules_of({"job": "dcgm"})
    rule["metadata"]["annotations"] = {"kubegpu.autoscale/exporter-labels": "["}
    assert with_exporter_labels(RuleOptions(), ("new",), GPU, [rule])[0].exporter_labels == {"job": "new"}


def test_each_selector_of_the_exporter_has_the_labels() -> None:
    (rule,) = rules_of({"job": 'a"b', "cluster": "here"})
    (group,) = rule["spec"]["groups"]
    parts = [recording["expr"] for recording in group["rules"] if recording["record"].startswith("namespace_pod_gpu:")]
    assert len(parts) == 2
    for expr in parts:
        selectors = len(re.findall(rf"\b{ANY_FIELD}\{{", expr))
        assert selectors
        assert selectors == expr.count('{job="a\\"b",cluster="here",')
