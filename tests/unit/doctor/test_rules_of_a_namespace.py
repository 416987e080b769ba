"""RBAC permits a rule by its name. What a rule of one namespace may record is checked by its contents."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import all_rules
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    is_shared,
    recordings_of,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import (
    metric_objects,
    read_metrics,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_specs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import CHECKS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.rule import RULE_OUTSIDE_NAMESPACE
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.findings import results_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import namespace_of
from clusters import Cluster
from every_spec import every_spec

RULES: list[dict[str, Any]] = all_rules(read_specs([spec for _title, spec in every_spec("ml")]), RuleOptions())
RULES += metric_objects(read_metrics([{"namespace": "ml", "name": "queue_depth"}]), RuleOptions())
OWN_RULES = [rule for rule in RULES if not is_shared(rule)]
# Names of all series that the rules read, and none of their own: selected by name, or by a pattern of names.
_NAMES = re.compile(r"\b[A-Za-z_][\w:]*(?=\{)|(?<=__name__=~\")[^\"]+")
RAW = sorted(
    {
        name
        for rule in RULES
        for recording in recordings_of(rule)
        for names in _NAMES.findall(recording["expr"])
        for name in names.split("|")
    }
    - {recording["record"] for rule in RULES for recording in recordings_of(rule)}
)
FROM_POD = {"pod": "chat-0", "job": "dcgm-exporter"}
LAYOUTS = [
    {"namespace": "ml", "exported_namespace": "team-b", "exported_pod": "chat-0"},
    {"namespace": "ml", "exported_namespace": "team-b", **FROM_POD},
    {"namespace": "team-b", **FROM_POD},
    {"namespace": "ml", **FROM_POD},
    {},
]
NOT_ITS_OWN = "not as series of one namespace, labelled namespace: ml"
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
            assert findings(edited) == [(title, f"records {recording['record']}, {NOT_ITS_OWN}")]


def added(rule: dict[str, Any], name: str, labels: dict[str, str]) -> dict[str, Any]:
    edited = deepcopy(rule)
    edited["spec"]["groups"].append(
        {"name": "more", "rules": [{"record": name, "expr": "vector(100)", "labels": labels}]}
    )
    return edited


def test_the_series_that_rules_read_are_known() -> None:
    assert len(RAW) > 20
    assert {"DCGM_FI_DEV_GPU_UTIL", "kube_pod_owner", "up"} < set(RAW)


@pytest.mark.parametrize("rule", OWN_RULES, ids=lambda rule: rule["metadata"]["name"])
def test_a_series_that_a_rule_of_one_namespace_is_not_made_for_is_found(rule: dict[str, Any]) -> None:
    """Each series that any rule reads, in each layout of labels: the rules read `exported_namespace` first."""
    title = f"PrometheusRule monitoring/{rule['metadata']['name']}"
    for name, labels in product(RAW, LAYOUTS):
        assert findings(added(rule, name, labels)) == [(title, f"records {name}, {NOT_ITS_OWN}")]
