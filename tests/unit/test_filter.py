from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_autoscaler_manifests import FilterModule
from ansible_collections.kubegpu.autoscale.plugins.filter.gpu_loadtest_stages import gpu_loadtest_stages
from ansible_collections.kubegpu.autoscale.plugins.modules import gpu_autoscaler

manifests = FilterModule().filters()["gpu_autoscaler_manifests"]

CHAT = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 4}


def test_a_rule_for_each_metric_then_the_hpas() -> None:
    made = manifests([CHAT, {**CHAT, "name": "twin"}, {**CHAT, "name": "third", "metric": "gpu_util"}])
    assert [(manifest["kind"], manifest["metadata"]["name"]) for manifest in made] == [
        ("PrometheusRule", "kubegpu-gpu"),
        ("PrometheusRule", "kubegpu-gpu-util"),
        ("HorizontalPodAutoscaler", "chat"),
        ("HorizontalPodAutoscaler", "twin"),
        ("HorizontalPodAutoscaler", "third"),
    ]


def test_options_go_to_the_rules() -> None:
    rule = manifests([CHAT], rule_namespace="observability", rule_labels={"team": "ml"}, evaluation_interval=6)[0]
    assert rule["metadata"]["namespace"] == "observability"
    assert rule["metadata"]["labels"]["team"] == "ml"
    assert rule["spec"]["groups"][0]["interval"] == "3s"


def test_a_scaled_object_for_each_autoscaler_of_keda() -> None:
    prometheus = {"namespace": "observability", "service": "prometheus-k8s", "path_prefix": "/prom/"}
    both = [CHAT, {**CHAT, "name": "twin", "backend": "adapter"}]
    made = manifests(both, metrics_backend="keda", prometheus=prometheus)
    assert [manifest["kind"] for manifest in made[-2:]] == ["ScaledObject", "HorizontalPodAutoscaler"]
    assert {trigger["metadata"]["serverAddress"] for trigger in made[-2]["spec"]["triggers"]} == {
        "http://prometheus-k8s.observability.svc:9090/prom"
    }


@pytest.mark.parametrize(
    "prometheus",
    [
        {"url": "https://metrics.example", "bearer_token": "abc"},
        {"url": "https://user:word@metrics.example"},
        {"url": "https://metrics.example", "ca_cert": "/etc/ca.crt"},
    ],
    ids=["token", "login", "CA"],
)
def test_keda_gets_no_login(prometheus: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError, match="a login or a CA, which ScaledObjects do not get"):
        manifests([CHAT], metrics_backend="keda", prometheus=prometheus)
    assert manifests([CHAT], prometheus=prometheus)


def test_numbers_may_be_text_as_templates_make_them() -> None:
    assert manifests([{**CHAT, "max_replicas": "4", "target_value": "60"}]) == manifests([CHAT])


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"max_replica": 4}, "max_replica"),
        ({"scale_up": {"policies": [{"type": "Nodes", "value": 1, "period_seconds": 60}]}}, "Nodes"),
        ({"metric": "gpu_speed"}, "is not a profile"),
    ],
    ids=["unknown option", "unknown choice", "refused by the domain"],
)
def test_what_the_module_refuses_the_filter_refuses(changes: dict[str, Any], seen: str) -> None:
    with pytest.raises(AnsibleFilterError, match=seen):
        manifests([{**CHAT, **changes}])


OWN = {**CHAT, "metric": {"name": "queue", "query": "queue_of_chat"}, "target_value": 5}


@pytest.mark.parametrize(
    ("other", "seen"),
    [
        (CHAT, "2 autoscalers are called ml/chat"),
        ({**OWN, "name": "twin", "metric": {"name": "queue", "query": "queue_of_twin"}}, "metric queue has 2 queries"),
    ],
)
def test_a_list_that_contradicts_itself_is_refused(other: dict[str, Any], seen: str) -> None:
    """Of two objects of one name a repository would have both, and Flux then applies nothing of it."""
    with pytest.raises(AnsibleFilterError, match=seen):
        manifests([OWN, other])


EXAMPLES = [task["kubegpu.autoscale.gpu_autoscaler"] for task in yaml.safe_load(gpu_autoscaler.EXAMPLES)]


@pytest.mark.parametrize("options", [options for options in EXAMPLES if options.get("state") != "absent"])
def test_the_modules_examples_are_accepted(options: dict[str, Any]) -> None:
    hpas = [manifest for manifest in manifests(options["autoscalers"]) if manifest["kind"] == "HorizontalPodAutoscaler"]
    assert len(hpas) == len(options["autoscalers"])


def test_a_load_that_is_not_held_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_loadtest_hold is 0"):
        gpu_loadtest_stages("ramp", 1, 40, 30, 300, hold=0)
    assert [stage["name"] for stage in gpu_loadtest_stages("step", 1, 40, 30, 300, hold="7")][1] == "load"
