"""Inventories share the rules of metrics: what another one's rule has and this one does not need is no difference."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import all_rules
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_specs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import INVENTORY
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.existing_autoscalers import lacks
from every_spec import every_spec

Rule = dict[str, Any]
OPTIONS = RuleOptions(selectors={"exporter": {"job": "dcgm-exporter"}}, evaluation_interval_s=2)
SPECS = [spec for _, spec in every_spec("ml")]
RULES = {rule["metadata"]["name"]: rule for rule in all_rules(read_specs(SPECS), OPTIONS)}
WITHOUT_LABELS = {rule["metadata"]["name"]: rule for rule in all_rules(read_specs(SPECS), replace(OPTIONS, labels={}))}


def of_another(rule: Rule) -> Rule:
    theirs = deepcopy(rule)
    theirs["metadata"]["labels"][INVENTORY] = "another"
    theirs["metadata"] |= {"uid": "1", "resourceVersion": "7"}
    return theirs


def with_label(rule: Rule) -> None:
    rule["metadata"]["labels"]["release"] = "kube-prometheus-stack"


def with_annotation(rule: Rule) -> None:
    rule["metadata"].setdefault("annotations", {})["meta.helm.sh/release-name"] = "ours"


def with_group(rule: Rule) -> None:
    rule["spec"]["groups"].insert(0, {"name": "alerts", "rules": [{"alert": "Down", "expr": "up == 0"}]})


def with_recording(rule: Rule) -> None:
    rule["spec"]["groups"][0]["rules"].append({"record": "namespace_pod:other:avg", "expr": "vector(1)"})


def with_shorter_interval(rule: Rule) -> None:
    rule["spec"]["groups"][0]["interval"] = "500ms"


@pytest.mark.parametrize("more", [with_label, with_annotation, with_group, with_recording, with_shorter_interval])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_another_inventory_that_has_more_is_shared(name: str, more: Callable[[Rule], None]) -> None:
    ours = WITHOUT_LABELS[name]
    theirs = of_another(ours)
    assert lacks(theirs, ours) == []
    more(theirs)
    assert lacks(theirs, ours) == []


@pytest.mark.parametrize("name", RULES)
def test_each_part_of_a_rule_that_another_lacks_is_named(name: str) -> None:
    ours = RULES[name]
    for part in ("labels", "annotations"):
        for key in (ours["metadata"].get(part) or {}).keys() - {INVENTORY}:
            theirs = of_another(ours)
            del theirs["metadata"][part][key]
            [seen] = lacks(theirs, ours)
            assert seen.startswith(f"the {part[:-1]} {key}: ")
    for number, group in enumerate(ours["spec"]["groups"]):
        for place, recording in enumerate(group["rules"]):
            theirs = of_another(ours)
            theirs["spec"]["groups"][number]["rules"][place]["expr"] += " * 2"
            assert lacks(theirs, ours) == [f"another query of {recording['record']}"]
        theirs = of_another(ours)
        theirs["spec"]["groups"][number]["interval"] = "1h"
        assert len(lacks(theirs, ours)) == 1
        del theirs["spec"]["groups"][number]["interval"]
        assert len(lacks(theirs, ours)) == 1
