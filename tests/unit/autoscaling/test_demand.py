from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import AUTOSCALERS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import unused_rules
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.behavior_texts import describe_behaviors
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import (
    RuleOptions,
    autoscaler_of,
    horizontal_pod_autoscaler,
    prometheus_rules,
    recordings_of,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import ACTIVITIES, PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.pod_names import LONGEST_NAME
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.request_counters import COUNTERS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError

OWN = {"offered": "asked_total", "served": 'asked_total{code="200"}'}


def spec(**options: Any) -> dict[str, Any]:
    return {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 8, "demand": OWN, **options}


def recorded(autoscaler: Autoscaler) -> dict[str, str]:
    """Queries by series, of all rules."""
    rules = prometheus_rules([autoscaler], RuleOptions())
    return {recording["record"]: recording["expr"] for rule in rules for recording in recordings_of(rule)}


def test_the_hpa_follows_the_demand_at_the_target_of_the_metric() -> None:
    hpa = horizontal_pod_autoscaler(Autoscaler.from_params(spec(target_value=70)))
    pods, demand = hpa["spec"]["metrics"]
    assert pods["pods"] == {
        "metric": {"name": "gpu_sustained"},
        "target": {"type": "AverageValue", "averageValue": "70"},
    }
    assert demand["object"] == {
        "metric": {"name": "gpu_demand"},
        "describedObject": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
        "target": {"type": "AverageValue", "averageValue": "70"},
    }


def test_one_decision_may_go_to_all_that_is_asked_for() -> None:
    autoscaler = Autoscaler.from_params(spec())
    behavior = horizontal_pod_autoscaler(autoscaler)["spec"]["behavior"]["scaleUp"]
    assert behavior["policies"] == [{"type": "Pods", "value": 8, "periodSeconds": 15}]
    assert behavior["stabilizationWindowSeconds"] == 0
    (words,), _ = describe_behaviors([autoscaler])
    assert (words["demand"], words["scale_up"]) == (True, "8 pods in 15 s at once")


def test_the_users_own_pace_stays() -> None:
    policies = [{"type": "Pods", "value": 1, "period_seconds": 60}]
    assert Autoscaler.from_params(spec(scale_up={"policies": policies})).scale_up.policies[0].value == 1


def test_an_autoscaler_without_demand_takes_a_step_in_a_dead_time() -> None:
    (words,), _ = describe_behaviors([Autoscaler.from_params(spec(demand=None))])
    assert words["demand"] is False
    assert words["scale_up"] == "the larger of 2 pods in 60 s or 67 percent in 60 s at once"


def test_an_hpa_that_is_read_back_follows_the_demand() -> None:
    wanted = Autoscaler.from_params(spec())
    hpa = horizontal_pod_autoscaler(wanted)
    found = autoscaler_of(hpa, recorded(wanted))
    assert found.follows_demand
    assert horizontal_pod_autoscaler(found)["spec"] == hpa["spec"]


@pytest.mark.parametrize("type_", ["Object", "External"])
def test_a_total_of_the_gpus_stays_what_it_is(type_: str) -> None:
    hpa = horizontal_pod_autoscaler(Autoscaler.from_params(spec(metric_type=type_)))
    assert [entry[type_.lower()]["metric"]["name"] for entry in hpa["spec"]["metrics"][:1]] == ["gpu"]


def test_what_is_sustained_is_known_as_what_it_is_of() -> None:
    wanted = Autoscaler.from_params(spec(metric="mig"))
    found = autoscaler_of(horizontal_pod_autoscaler(wanted), recorded(wanted))
    assert found.metric == wanted.metric
    assert (found.metric.sources, found.metric.is_percent) == (("DCGM_FI_PROF_GR_ENGINE_ACTIVE",), True)


def test_the_rule_that_a_demand_reads_stays() -> None:
    """Its HPA names neither of the metrics that the rule of all records."""
    wanted = [Autoscaler.from_params(spec(metric="mig"))]
    rules = prometheus_rules(wanted, RuleOptions())
    hpas = {autoscaler.key: horizontal_pod_autoscaler(autoscaler) for autoscaler in wanted}
    assert len(rules) == 2
    assert unused_rules(rules, hpas.values()) == []
    assert unused_rules(rules, []) == rules


def test_each_workload_reads_its_own_series_alone() -> None:
    (_, busy), *rest = (
        (series, query) for series, query in recorded(Autoscaler.from_params(spec())).items() if "demand" in series
    )
    assert 'namespace="ml",pod=~"chat-' in busy
    own = [query for _, query in rest for part in query.split("namespace_workload:")[1:] if "}" in part]
    assert own
    for query in own:
        for part in query.split("namespace_workload:")[1:]:
            assert part.split("{", 1)[1].startswith('namespace="ml",deployment="chat"}')


@pytest.mark.parametrize("source", COUNTERS)
def test_a_source_counts_the_requests_of_the_target_or_of_a_name(source: str) -> None:
    by_target = Autoscaler.from_params(spec(demand={"source": source})).demand
    by_name = Autoscaler.from_params(spec(demand={"source": source, "name": "door"})).demand
    assert by_target
    assert by_name
    for selector in (*by_target.offered, *by_target.served):
        assert "chat" in selector
        assert "ml" in selector
        assert "$" not in selector
        assert "[^" not in selector, "Prometheus reads rules anew at each evaluation: such a class takes it 5 ms"
    assert all("door" in selector and "chat" not in selector for selector in by_name.offered)
    assert by_target.offered != by_target.served


@pytest.mark.parametrize(("source", "code"), [("istio", "|0"), ("envoy_gateway", ""), ("traefik", "|499")])
def test_an_aborted_request_has_the_code_that_the_proxy_gives_it(source: str, code: str) -> None:
    """Envoy counts none."""
    counter = COUNTERS[source]
    assert all(f'~"2..|504{code}"' in selector for selector in counter.served("ml", "chat"))
    assert all(f'~"2..|504|429|502|503|529{code}"' in selector for selector in counter.offered("ml", "chat"))


def test_the_options_offer_each_source() -> None:
    options = AUTOSCALERS["autoscalers"]["options"]["demand"]["options"]
    assert options["source"]["choices"] == list(COUNTERS)


def test_the_metrics_of_a_demand_are_profiles() -> None:
    assert set(ACTIVITIES) <= set(PROFILES)


def test_pods_of_a_name_with_dots_are_those_of_no_other() -> None:
    queries = recorded(Autoscaler.from_params(spec(target={"kind": "StatefulSet", "name": "chat.v2"})))
    assert 'pod=~"chat[.]v2-[0-9]+"' in queries["namespace_workload:gpu_demand:busy"]


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"demand": {"source": "haproxy"}}, "demand.source is 'haproxy'"),
        ({"demand": {"source": "istio", **OWN}}, "beside selectors"),
        ({"demand": {"source": "envoy_gateway", "name": "a.b"}}, "demand.name is 'a.b', and Envoy counts"),
        ({"target": {"name": "a.b"}, "demand": {"source": "envoy_gateway"}}, "demand.name is 'a.b', and Envoy counts"),
        ({"demand": {"offered": "asked_total"}}, "give source"),
        ({"demand": {**OWN, "name": "door"}}, "give source"),
        ({"demand": {**OWN, "offered": "rate(asked_total[1m])"}}, "not a selector"),
        ({"demand": {**OWN, "prior_gpu_seconds": 0}}, "prior_gpu_seconds is 0"),
        ({"demand": {**OWN, "prior_gpu_seconds": float("nan")}}, "prior_gpu_seconds is nan"),
        ({"demand": {**OWN, "cost": 1}}, 'demand: unknown option "cost"'),
        ({"metric": {"name": "gpu_demand", "query": "x"}, "target_value": 1}, "name of a profile"),
        ({"metric": "gpu_memory"}, "how busy a GPU is"),
        ({"metric": "llm"}, "how busy a GPU is"),
        ({"target": {"kind": "LeaderWorkerSet", "name": "chat"}}, "pods of a LeaderWorkerSet"),
        ({"target": {"name": "c" * (LONGEST_NAME + 1)}}, "such a long name"),
    ],
)
def test_what_a_demand_cannot_be(options: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError, match="(?s)" + seen.replace("(", r"\(")):
        Autoscaler.from_params(spec(**options))
