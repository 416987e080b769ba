"""The targets of each input of the rules, if the user selects none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.actions.scrape_selectors import detect_selectors
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import all_rules, inputs_read
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.dcgm_fields import ANY_FIELD
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.inputs import INPUTS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions, recordings_of
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.request_counters import COUNTERS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError

CHAT = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 8}
GPU = [Autoscaler.from_params(CHAT)]
UTIL = [Autoscaler.from_params({**CHAT, "metric": "gpu_util"})]
QUEUE = [Autoscaler.from_params({**CHAT, "metric": "llm"})]
DCGM = {"job": "dcgm"}
# One workload for each input that rules can read.
READERS = {
    "exporter": GPU,
    "kube_state_metrics": [Autoscaler.from_params({**CHAT, "backend": "keda"})],
    "model_servers": QUEUE,
    **{source: [Autoscaler.from_params({**CHAT, "demand": {"source": source}})] for source in COUNTERS},
}


def rules_of(labels: dict[str, str], inventory: str = "default") -> list[dict[str, Any]]:
    return all_rules(GPU, RuleOptions(selectors={"exporter": labels}, inventory=inventory))


def test_each_input_has_a_reader() -> None:
    assert set(READERS) == set(INPUTS)
    assert all(name in inputs_read(readers) for name, readers in READERS.items())


@pytest.mark.parametrize(
    ("rows", "live", "used"),
    [
        ([], {}, {}),
        ([DCGM], {}, DCGM),
        ([{**DCGM, "cluster": "a"}], {}, {**DCGM, "cluster": "a"}),
        ([DCGM, {"job": "evil"}], DCGM, DCGM),
        ([], DCGM, DCGM),
        ([{"job": "new"}], {"job": "gone"}, {"job": "new"}),
        ([DCGM, {"job": "evil"}], {**DCGM, "team": "a"}, {**DCGM, "team": "a"}),
    ],
    ids=[
        "no rows yet",
        "one job",
        "one job of one cluster",
        "a rule keeps its job",
        "rows are away",
        "the exporter has another job",
        "labels that are not looked for",
    ],
)
def test_a_rule_keeps_the_targets_that_it_began_with(
    rows: list[dict[str, str]], live: dict[str, str], used: dict[str, str]
) -> None:
    rules = detect_selectors(RuleOptions(), {"exporter": rows}, GPU, rules_of(live))
    assert rules.selectors["exporter"] == used


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("live", [{}, {"cluster": "gone"}], ids=["no rule", "a rule of a target that is gone"])
def test_two_candidates_fail_for_each_input(name: str, live: dict[str, str]) -> None:
    """Never all of them, and never with a warning only."""
    label = INPUTS[name].by[0]
    rows = [{label: "mine"}, {label: "evil"}]
    before = all_rules(READERS[name], RuleOptions(selectors={name: live}))
    with pytest.raises(HopError) as raised:
        detect_selectors(RuleOptions(), {name: rows}, READERS[name], before)
    assert '"mine"' in raised.value.seen
    assert '"evil"' in raised.value.seen
    assert "Nothing was changed" in raised.value.seen
    assert f"prometheus.selectors.{name}" in raised.value.fix
    pinned = RuleOptions(selectors={name: rows[0]})
    assert detect_selectors(pinned, {name: rows}, READERS[name], []).selectors[name] == rows[0]


def test_a_job_that_appears_in_a_second_cluster_fails() -> None:
    """The rule would read both of them."""
    rows = [{**DCGM, "cluster": cluster} for cluster in "ab"]
    with pytest.raises(HopError):
        detect_selectors(RuleOptions(), {"exporter": rows}, GPU, rules_of(DCGM))


@pytest.mark.parametrize("theirs", [{}, DCGM])
def test_a_rule_of_another_inventory_stays_as_it_is(theirs: dict[str, str]) -> None:
    """Else this inventory would have to change it, which it may not."""
    live = rules_of(theirs, "staging") + all_rules(QUEUE, RuleOptions(inventory="staging"))
    rows = {"exporter": [{"job": "new"}, {"job": "newer"}]}
    rules = detect_selectors(RuleOptions(inventory="prod"), rows, GPU, live)
    assert rules.selectors["exporter"] == theirs
    rows = {"exporter": [{"job": "new"}]}
    assert detect_selectors(RuleOptions(inventory="prod"), rows, UTIL, live).selectors["exporter"] == {"job": "new"}


@pytest.mark.parametrize("text", ["[", "[]", '{"exporter": []}', "null"])
def test_an_annotation_that_others_have_changed_is_nothing(text: str) -> None:
    (rule,) = rules_of(DCGM)
    rule["metadata"]["annotations"] = {"kubegpu.autoscale/selectors": text}
    used = detect_selectors(RuleOptions(), {"exporter": [{"job": "new"}]}, GPU, [rule]).selectors
    assert used["exporter"] == {"job": "new"}


def every_rule() -> list[dict[str, Any]]:
    options = RuleOptions(selectors={name: {"job": ["right.1", "b"], "cluster": "here"} for name in INPUTS})
    users = [
        Autoscaler.from_params({**CHAT, "metric": profile, "metric_type": type_, "target_value": 5, "backend": backend})
        for profile in PROFILES
        for type_, backend in (("Pods", "adapter"), ("Object", "adapter"), ("Pods", "keda"))
    ]
    return all_rules([*users, *(user for readers in READERS.values() for user in readers)], options)


def test_no_rule_reads_a_scraped_series_without_the_labels_of_its_input() -> None:
    """Generated from the rules: names that no rule records have a selector with the labels."""
    expressions = [recording["expr"] for rule in every_rule() for recording in recordings_of(rule)]
    selectors = {
        found
        for expression in expressions
        for found in re.findall(r"([A-Za-z_:][\w:]*)?\{((?:[^}\"]|\"(?:\\.|[^\"\\])*\")*)\}", expression)
        if not re.match(r"(namespace|instance|external)\w*:", found[0])
    }
    assert len(selectors) > 80
    assert not [name for name, matchers in selectors if 'cluster="here"' not in matchers or "job=~" not in matchers]
    # And nothing is read without a selector.
    bare = {
        name for expression in expressions for name in re.findall(rf"\b(?:{ANY_FIELD}|kube_\w+)\b(?!\{{)", expression)
    }
    assert not {name for name in bare if not any(f'"{name}"' in expression for expression in expressions)}
