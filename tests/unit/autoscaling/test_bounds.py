"""What the API server would reject is one error, which names the option by its path."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import AUTOSCALERS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling import spec
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.rule_options import rule_options
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import (
    Autoscaler,
    autoscaler_key,
    read_keys,
    read_specs,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError

CHAT = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4}
POLICY = {"type": "Pods", "value": 1, "period_seconds": 30}
QUEUE = {"name": "queue", "query": "max(queue_length)", "per": "workload"}
SELECTORS = {"offered": "asked_total", "served": "served_total"}


def cpu(**target: Any) -> dict[str, Any]:
    return {"extra_metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}


def up(**rules: Any) -> dict[str, Any]:
    return {"scale_up": rules}


def policy(**changes: Any) -> dict[str, Any]:
    return up(policies=[POLICY, {**POLICY, **changes}])


REJECTED: dict[str, tuple[Any, str]] = {
    # Ended in errors of Python.
    "a list in place of a mapping of values": (
        {"extra_metrics": [{"metric": "gpu_util", "target_values": ["gpu_util"]}]},
        "autoscalers[0].extra_metrics[0].target_values is ['gpu_util'], not a mapping",
    ),
    "numbers in place of metrics": ({"target_values": {1: 2}}, 'autoscalers[0].target_values: unknown option "1"'),
    "a number as an option": (
        {"extra_metrics": [{"metric": "gpu_util", "x": 1, 2: 3}]},
        'autoscalers[0].extra_metrics[0]: unknown option "x"',
    ),
    "a number as an option of the autoscaler": ({7: 1}, 'autoscalers[0]: unknown option "7"'),
    "no number": (up(tolerance=float("nan")), "autoscalers[0].scale_up.tolerance is nan"),
    "a tolerance beyond quantities": (up(tolerance=1e308), "autoscalers[0].scale_up.tolerance is 1e+308"),
    "a value beyond quantities": ({"target_value": 1e308}, "autoscalers[0].target_value is 1e+308"),
    "a value beyond doubles": ({"target_value": 10**400}, "autoscalers[0].target_value is 1000"),
    "infinitely many": ({"min_replicas": float("inf")}, "autoscalers[0].min_replicas is inf"),
    "a number as the target": ({"target": 1}, "autoscalers[0].target is 1, not a mapping"),
    "a number as rules": ({"scale_down": 5}, "autoscalers[0].scale_down is 5, not a mapping"),
    "text as policies": (up(policies="fast"), "autoscalers[0].scale_up.policies is 'fast', not a list"),
    "text as a policy": (up(policies=["fast"]), "autoscalers[0].scale_up.policies[0] is 'fast', not a mapping"),
    "text as an extra metric": ({"extra_metrics": ["cpu"]}, "autoscalers[0].extra_metrics[0] is 'cpu'"),
    "a number as extra metrics": ({"extra_metrics": 3}, "autoscalers[0].extra_metrics is 3, not a list"),
    "a list as a demand": ({"demand": ["istio"]}, "autoscalers[0].demand is ['istio'], not a mapping"),
    # Were cut without a word.
    "a part of a replica": ({"min_replicas": 1.9}, "autoscalers[0].min_replicas is 1.9"),
    "a part of a replica as text": ({"max_replicas": "1.9"}, "autoscalers[0].max_replicas is '1.9'"),
    "a part of a second": ({"dead_time_seconds": 30.5}, "autoscalers[0].dead_time_seconds is 30.5"),
    "true replicas": ({"max_replicas": True}, "autoscalers[0].max_replicas is True"),
    # Were rejected by the API server, after other objects had been written.
    "a policy of nothing": (policy(value=0), "autoscalers[0].scale_up.policies[1].value is 0"),
    "a policy below nothing": (policy(value=-1), "autoscalers[0].scale_up.policies[1].value is -1"),
    "no period": (policy(period_seconds=0), "autoscalers[0].scale_up.policies[1].period_seconds is 0"),
    "a long period": (policy(period_seconds=1801), "autoscalers[0].scale_up.policies[1].period_seconds is 1801"),
    "a type of policies": (policy(type="Nodes"), "autoscalers[0].scale_up.policies[1].type is 'Nodes'"),
    "a policy without a type": (policy(type=None), "autoscalers[0].scale_up.policies[1].type is missing"),
    "a long window": (
        up(stabilization_window_seconds=3601),
        "autoscalers[0].scale_up.stabilization_window_seconds is 3601",
    ),
    "a window before now": (
        up(stabilization_window_seconds=-1),
        "autoscalers[0].scale_up.stabilization_window_seconds is -1",
    ),
    "a tolerance below 0": (up(tolerance=-1), "autoscalers[0].scale_up.tolerance is -1"),
    "a way to choose": (up(select_policy="max"), "autoscalers[0].scale_up.select_policy is 'max'"),
    "too many replicas": ({"max_replicas": 2**31}, "autoscalers[0].max_replicas is 2147483648"),
    "a long name": ({"name": "n" * 254}, "autoscalers[0].name is 'nnn"),
    "a name in capitals": ({"name": "Chat"}, "autoscalers[0].name is 'Chat'"),
    "a name with a line end": ({"name": "chat\n"}, "autoscalers[0].name is 'chat\\n'"),
    "a list as a name": ({"name": ["chat"]}, "autoscalers[0].name is ['chat'], not text"),
    "a name of the target": ({"target": {"name": 'x"'}, "name": "x"}, "autoscalers[0].target.name is 'x\"'"),
    "a kind": ({"target": {"kind": "De/ployment", "name": "x"}}, "autoscalers[0].target.kind is 'De/ployment'"),
    "an API": (
        {"target": {"kind": "Fleet", "name": "x", "api_version": "a/b/c"}},
        "autoscalers[0].target.api_version is 'a/b/c'",
    ),
    "an API without a group": (
        {"target": {"kind": "ReplicationController", "name": "x", "api_version": "v1"}},
        "autoscalers[0].target.api_version is 'v1'",
    ),
    "a resource that no container has": (
        {
            "extra_metrics": [
                {
                    "type": "ContainerResource",
                    "containerResource": {"name": "pods", "container": "x", "target": {"type": "Value"}},
                }
            ]
        },
        "autoscalers[0].extra_metrics[0].containerResource.name is 'pods'",
    ),
    "a namespace with quotes": ({"namespace": 'ml"'}, "autoscalers[0].namespace is 'ml\"'"),
    "a namespace with a dot": ({"namespace": "ml.a"}, "autoscalers[0].namespace is 'ml.a'"),
    "a long namespace": ({"namespace": "n" * 64}, "autoscalers[0].namespace is 'nnn"),
    "a rule with a long name": (
        {"namespace": "n" * 63, "name": "a" * 182, "metric_type": "Object"},
        "autoscalers[0].name makes the name of the PrometheusRule kubegpu-nnnnnnnnnnnnnnnnnnnnnn... 254",
    ),
    "a label's value that is too long": (
        {"target": {"name": "a" * 64}, "metric_type": "External"},
        "autoscalers[0].metric_type is External, which selects by a label",
    ),
    "a selector that no label has": (
        {"metric": {"name": "lag", "selector": {"a": "b c"}}, "metric_type": "External", "target_value": 1},
        "autoscalers[0].metric is wrong: metric 'lag' has the selector a: 'b c'",
    ),
    "a query that is a list": ({"metric": {**QUEUE, "query": ["x"]}, "target_value": 1}, "is not complete"),
    "a demand of whatever": (
        {"demand": {"source": "istio", "name": 'x"} or vector(1e6) or up{a="'}},
        "autoscalers[0].demand.name is",
    ),
    "a demand of all": ({"demand": {"source": "istio", "name": ".*"}}, "autoscalers[0].demand.name is '.*'"),
    "two selectors in one": (
        {"demand": {**SELECTORS, "offered": 'a{b="c"} or d{e="f"}'}},
        "autoscalers[0].demand.offered is",
    ),
    "a quote that does not end": ({"demand": {**SELECTORS, "served": 'a{b="c}'}}, "autoscalers[0].demand.served is"),
    "an escape that Go does not know": (
        {"demand": {**SELECTORS, "served": r'a{b="\d"}'}},
        "autoscalers[0].demand.served is",
    ),
    "neither adopted nor not": ({"adopt": "perhaps"}, "autoscalers[0].adopt is 'perhaps'"),
    # Entries as in an HPA.
    "an extra metric without a type": (
        {"extra_metrics": [{"resource": {"name": "cpu"}}]},
        "autoscalers[0].extra_metrics[0].type is missing",
    ),
    "no target": (
        {"extra_metrics": [{"type": "Resource", "resource": {"name": "cpu"}}]},
        "autoscalers[0].extra_metrics[0].resource.target is missing",
    ),
    "a percentage as text": (
        cpu(type="Utilization", averageUtilization="80"),
        "autoscalers[0].extra_metrics[0].resource.target.averageUtilization is '80'",
    ),
    "no percentage": (
        cpu(type="Utilization", averageUtilization=0),
        "autoscalers[0].extra_metrics[0].resource.target.averageUtilization is 0",
    ),
    "no quantity": (
        cpu(type="AverageValue", averageValue="much"),
        "autoscalers[0].extra_metrics[0].resource.target.averageValue is 'much'",
    ),
    "a value of a resource": (
        cpu(type="Value", value=3),
        "autoscalers[0].extra_metrics[0].resource.target.averageUtilization is missing",
    ),
    "both": (
        cpu(type="AverageValue", averageValue="1", averageUtilization=3),
        "autoscalers[0].extra_metrics[0].resource.target.averageValue is set beside averageUtilization",
    ),
    "a section of another type": (
        {"extra_metrics": [{"type": "Pods", "resource": {}}]},
        "autoscalers[0].extra_metrics[0].resource is set, but type is Pods",
    ),
    "an unknown field": (cpu(type="Utilization", averageUtilisation=3), 'unknown option "averageUtilisation"'),
}


@pytest.mark.parametrize(("changes", "seen"), REJECTED.values(), ids=REJECTED)
def test_an_error_names_the_option(changes: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError) as raised:
        read_specs([{**CHAT, **changes}])
    assert seen in raised.value.seen
    assert raised.value.fix


def test_the_path_has_the_place_in_the_list() -> None:
    with pytest.raises(HopError, match=r"autoscaler spec: autoscaler b: autoscalers\[1\].min_replicas is -1\n  fix: "):
        read_specs([CHAT, {**CHAT, "name": "b", "min_replicas": -1}])


ACCEPTED: dict[str, dict[str, Any]] = {
    "text of numbers": {"min_replicas": "1", "max_replicas": "4", "target_value": "60", "dead_time_seconds": "30"},
    "whole floats": {"max_replicas": 4.0},
    "a name of digits": {"name": 123},
    "words for truth": {"adopt": "yes"},
    "what is not given": dict.fromkeys(("name", "metric", "scale_up", "demand", "extra_metrics", "adopt")),
    "the largest": {"max_replicas": 2**31 - 1},
    "bounds of rules": up(
        stabilization_window_seconds=3600,
        tolerance=0,
        policies=[{**POLICY, "value": 2**31 - 1, "period_seconds": 1800}],
    ),
    "a long name": {"namespace": "n" * 63, "name": "a" * 181, "metric_type": "Object"},
    "a dot in a name": {"name": "chat.v2"},
    "a brace in a value": {"demand": {**SELECTORS, "offered": 'a{path="/v1/{id}", code!~"5..", x=\'{\', y=`}`,}'}},
    "an escaped quote": {"demand": {**SELECTORS, "offered": r'a{path="\"}\\"}'}},
    "no matcher": {"demand": {**SELECTORS, "offered": " job:asked:sum { } "}},
    "cpu": cpu(type="AverageValue", averageValue="500m"),
}


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_legal_is_accepted(changes: dict[str, Any]) -> None:
    assert len(read_specs([{**CHAT, **changes}])) == 1


def test_each_documented_option_is_known() -> None:
    assert set(spec._OPTIONS) == set(AUTOSCALERS["autoscalers"]["options"])


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({"target": 1}, "autoscalers[0].target is 1, not a mapping"),
        ({"target": {"name": []}}, "autoscalers[0].target.name is [], not text"),
        ({"name": "A"}, "autoscalers[0].name is 'A'"),
        ({"name": "a", "namespace": "b/c"}, "autoscalers[0].namespace is 'b/c'"),
        ("chat", "autoscalers[0] is 'chat', not a mapping"),
        ({}, "autoscalers[0]: an autoscaler has neither a name nor a target"),
    ],
)
def test_what_is_removed_or_read_has_a_name(given: Any, seen: str) -> None:
    with pytest.raises(HopError) as raised:
        read_keys([given])
    assert seen in raised.value.seen


def test_a_key_of_an_autoscaler_that_is_incomplete() -> None:
    assert autoscaler_key({"name": "a", "max_replicas": "many"}) == ("default", "a")


@pytest.mark.parametrize("specs", [None, 5, "chat", {"name": "chat"}])
def test_autoscalers_are_a_list(specs: Any) -> None:
    with pytest.raises(HopError, match=r"autoscalers is (missing|.*, not a list)"):
        read_specs(specs)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({"rule_namespace": "a b"}, "prometheus.rule_namespace is 'a b'"),
        ({"rule_labels": ["a"]}, "prometheus.rule_labels is ['a'], not a mapping"),
        ({"rule_labels": {"a b": "c"}}, "prometheus.rule_labels has the label 'a b'"),
        ({"rule_labels": {"a": "c/d"}}, "prometheus.rule_labels.a is 'c/d'"),
        ({"rule_labels": {"a": 1}}, "prometheus.rule_labels.a is 1"),
        ({"selectors": {"exporter": ["a"]}}, "prometheus.selectors.exporter is ['a'], not a mapping"),
        ({"selectors": {"dcgm": {}}}, 'prometheus.selectors: unknown option "dcgm"'),
        (
            {"selectors": {"exporter": {"app.kubernetes.io/name": "a"}}},
            "prometheus.selectors.exporter has the label 'app.kubernetes.io/name'",
        ),
        ({"selectors": {"exporter": {"job": 1}}}, "prometheus.selectors.exporter.job is 1"),
        ({"selectors": {"istio": {"job": ["a", 1]}}}, "prometheus.selectors.istio.job is ['a', 1]"),
        ({"selectors": {"istio": {"job": []}}}, "prometheus.selectors.istio.job is []"),
        ({"evaluation_interval": 0}, "prometheus.evaluation_interval is 0"),
        ({"evaluation_interval": 1.5}, "prometheus.evaluation_interval is 1.5"),
    ],
)
def test_where_rules_cannot_go(given: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError) as raised:
        rule_options(given, "prometheus")
    assert seen in raised.value.seen


def test_a_target_value_of_a_metric_that_leads_is_no_others() -> None:
    autoscaler = Autoscaler.from_params(
        {**CHAT, "metric": "llm", "target_value": 3, "target_values": {"llm_kv_cache": 70}}
    )
    assert [metric_target.value for metric_target in autoscaler.metric_targets] == [3, 70]
