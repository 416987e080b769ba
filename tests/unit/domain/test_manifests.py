from __future__ import annotations

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.domain import (
    PROFILES,
    Autoscaler,
    RuleOptions,
    manifests,
    metrics_of,
    prometheus_rule,
)
from golden import CASES, GOLDEN, texts


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    """After an intended change: python tests/golden.py, then read the difference."""
    for name, text in texts(case).items():
        assert (GOLDEN / name).read_text() == text


def test_each_profile_has_a_golden_rule() -> None:
    assert set(PROFILES) <= set(CASES)


def test_autoscalers_share_the_rule_of_their_metric() -> None:
    names = ("chat", "embed", "rank")
    metrics = ("gpu", "gpu_util", "gpu")
    autoscalers = [
        Autoscaler.from_params({"target": {"name": name}, "metric": metric, "max_replicas": 2})
        for name, metric in zip(names, metrics, strict=True)
    ]
    assert [metric.name for metric in metrics_of(autoscalers)] == ["gpu", "gpu_util"]
    made = [(each["kind"], each["metadata"]["name"]) for each in manifests(autoscalers, RuleOptions())]
    assert made == [
        ("PrometheusRule", "kubegpu-gpu"),
        ("PrometheusRule", "kubegpu-gpu-util"),
        *(("HorizontalPodAutoscaler", name) for name in names),
    ]


def test_a_rule_goes_where_prometheus_looks_for_it() -> None:
    options = RuleOptions(namespace="observability", labels={"team": "ml"}, evaluation_interval_s=5)
    rule = prometheus_rule(PROFILES["gpu"], options)
    assert rule["metadata"] == {
        "name": "kubegpu-gpu",
        "namespace": "observability",
        "labels": {
            "team": "ml",
            "app.kubernetes.io/managed-by": "kubegpu.autoscale",
            "kubegpu.autoscale/metric": "gpu",
        },
    }
    assert rule["spec"]["groups"][0]["interval"] == "5s"
