"""RBAC permits a rule by its name. What a rule of one namespace may record is checked by its contents."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import all_rules
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    is_shared,
    recordings_of,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_specs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.health_report import health_report
from ansible_collections.kubegpu.autoscale.plugins.module_utils.marks import namespace_of
from clusters import Cluster
from every_spec import every_spec

FOUND = "RULE_OUTSIDE_NAMESPACE"
RULES: list[dict[str, Any]] = all_rules(read_specs([spec for _title, spec in every_spec("ml")]), RuleOptions())
RECORDINGS = [
    (rule, number) for rule in RULES if not is_shared(rule) for number, _recording in enumerate(recordings_of(rule))
]


def findings(*rules: dict[str, Any]) -> list[tuple[str, list[str]]]:
    state = Cluster().state()
    report = health_report(replace(state, rule_objects=[*state.rule_objects, *rules]))
    return [(finding["object"], finding["seen"]) for finding in report["findings"] if finding["id"] == FOUND]


def test_each_rule_that_the_collection_writes_for_a_namespace_records_it_alone() -> None:
    assert len(RECORDINGS) > 20
    assert findings(*RULES) == []
    assert {namespace_of(rule) for rule in RULES} == {"", "ml"}
    assert {is_shared(rule) for rule in RULES if not namespace_of(rule)} == {True}


@pytest.mark.parametrize("labels", [None, {}, {"namespace": "team-b"}], ids=["none", "empty", "another"])
@pytest.mark.parametrize(
    ("rule", "number"), RECORDINGS, ids=[f"{rule['metadata']['name']} {number}" for rule, number in RECORDINGS]
)
def test_a_rule_of_one_namespace_that_records_others_is_found(
    rule: dict[str, Any], number: int, labels: dict[str, str] | None
) -> None:
    edited = deepcopy(rule)
    recording = list(recordings_of(edited))[number]
    recording["labels"] = labels  # type: ignore[index]
    name = rule["metadata"]["name"]
    seen = f"records {recording['record']} without the label namespace: ml"
    assert findings(edited) == [(f"PrometheusRule monitoring/{name}", [seen])]
