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
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import CHECKS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.rule import RULE_OUTSIDE_NAMESPACE
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.findings import results_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.marks import namespace_of
from clusters import Cluster
from every_spec import every_spec

RULES: list[dict[str, Any]] = all_rules(read_specs([spec for _title, spec in every_spec("ml")]), RuleOptions())
OWN_RULES = [rule for rule in RULES if not is_shared(rule)]
STATE = Cluster().state()
ASKED = [check for check in CHECKS if RULE_OUTSIDE_NAMESPACE in check.types]


def findings(*rules: dict[str, Any]) -> list[tuple[str, str]]:
    state = replace(STATE, rule_objects=[*STATE.rule_objects, *rules])
    return [(result.object, result.seen) for result in results_of(ASKED, state)]


def test_each_rule_that_the_collection_writes_for_a_namespace_records_it_alone() -> None:
    assert len(OWN_RULES) > 40
    assert findings(*RULES) == []
    assert {namespace_of(rule) for rule in RULES} == {"", "ml"}
    assert {is_shared(rule) for rule in RULES if not namespace_of(rule)} == {True}


@pytest.mark.parametrize("rule", OWN_RULES, ids=lambda rule: rule["metadata"]["name"])
def test_a_rule_of_one_namespace_that_records_others_is_found(rule: dict[str, Any]) -> None:
    """Each of its recordings without the label, and with that of another team."""
    title = f"PrometheusRule monitoring/{rule['metadata']['name']}"
    for number, recording in enumerate(recordings_of(rule)):
        for labels in (None, {}, {"namespace": "team-b"}):
            edited = deepcopy(rule)
            list(recordings_of(edited))[number]["labels"] = labels  # type: ignore[index]
            assert findings(edited) == [(title, f"records {recording['record']} without the label namespace: ml")]
