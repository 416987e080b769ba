from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import (
    PROFILES,
    Metric,
    Profile,
    smoothed_evaluations,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.replicas import desired_replicas
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from collection import ROOT
from hypothesis import example, given
from hypothesis import strategies as st

METRICS = {metric.name: metric for profile in PROFILES.values() for metric in profile.metrics}
# The adapter's own pattern for names, and what Kubernetes allows as the name of an object.
ADAPTER = ROOT / "roles" / "prometheus_adapter" / "vars" / "main.yml"
COMMON = ROOT / "roles" / "_common" / "vars" / "main.yml"
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_by_its_name(name: str) -> None:
    assert Profile.from_params(name) is PROFILES[name]
    assert PROFILES[name].name == name


@pytest.mark.parametrize(
    ("given", "metric"),
    [
        ({"name": "queue", "query": " max(x)\n"}, Metric("queue", "max(x)")),
        ({"name": "queue", "query": "max(x)", "per": "workload"}, Metric("queue", "max(x)", per="workload")),
        ({"name": "queue", "query": "max(x)", "per": None, "selector": None}, Metric("queue", "max(x)")),
        (
            {"name": "lag", "selector": {"topic": "a", "group": 7}},
            Metric("lag", "", selector=(("group", "7"), ("topic", "a"))),
        ),
        ({"name": "a" * 52, "query": "x"}, Metric("a" * 52, "x")),
    ],
    ids=["text", "workload", "not given", "external", "long name"],
)
def test_a_metric_of_ones_own(given: dict[str, Any], metric: Metric) -> None:
    assert Profile.from_params(given) == Profile(metric.name, (metric,))


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("gpus", "metric 'gpus' is not a profile"),
        ("", "metric '' is not a profile"),
        (None, "metric None is not a profile"),
        (["gpu"], "is not a profile"),
        ({}, "is not complete"),
        ({"query": "x"}, "is not complete"),
        ({"name": "", "query": "x"}, "is not complete"),
        ({"name": "Queue", "query": "x"}, "is not complete"),
        ({"name": "queue-length", "query": "x"}, "is not complete"),
        ({"name": "queue_", "query": "x"}, "is not complete"),
        ({"name": "9lives", "query": "x"}, "is not complete"),
        ({"name": "a" * 53, "query": "x"}, "is not complete"),
        ({"name": "queue\n", "query": "x", "unit": "percent"}, "is not complete"),
        ({"name": "queue", "query": "x", "selector": ["a"]}, "is not complete"),
        ({"name": "queue", "query": "x", "per": "node"}, "has per: node"),
        ({"name": "gpu", "query": "x"}, "is the name of a profile"),
        ({"name": "llm", "query": "x"}, "is the name of a profile"),
        ({"name": "llm_kv_cache", "query": "x"}, "is the name of a profile"),
    ],
)
def test_what_is_no_metric(given: Any, seen: str) -> None:
    with pytest.raises(HopError, match=re.escape(seen)) as caught:
        Profile.from_params(given)
    assert caught.value.hop == "autoscaler spec"
    assert caught.value.fix


def test_the_fix_names_the_profiles() -> None:
    with pytest.raises(HopError) as caught:
        Profile.from_params("cpu")
    assert all(name in caught.value.fix for name in PROFILES)


def test_no_two_profiles_share_a_series_or_a_rule() -> None:
    metrics = [metric for profile in PROFILES.values() for metric in profile.metrics]
    assert len({metric.series for metric in metrics}) == len(metrics)
    assert len({profile.rule_name("ml") for profile in PROFILES.values()}) == len(PROFILES)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_profile_is_recorded_under_a_name_that_kubernetes_takes(profile: Profile) -> None:
    assert profile.recorded == profile.metrics
    assert OBJECT_NAME.fullmatch(profile.rule_name("ml"))


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_the_adapters_one_rule_serves_the_metric_under_its_name(metric: Metric) -> None:
    rule = yaml.safe_load(ADAPTER.read_text())["__prometheus_adapter_rules"][0]
    selected = re.search(r'__name__=~"([^"]+)"', rule["seriesQuery"])
    assert selected
    assert re.fullmatch(selected[1], metric.series)
    assert re.sub(rule["name"]["matches"], rule["name"]["as"].replace("$", "\\"), metric.series) == metric.name


def test_the_page_has_the_rules_that_an_adapter_of_somebody_else_needs() -> None:
    """All of ours: a demand is an Object metric, and without its rule the HPA would never scale down."""
    page = (ROOT / "docs" / "existing-clusters.md").read_text()
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(- seriesQuery.*?)```", page, re.DOTALL)]
    ours = yaml.safe_load(ADAPTER.read_text())
    assert shown == [ours["__prometheus_adapter_rules"], ours["__prometheus_adapter_external_rules"]]


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_the_row_is_whole(metric: Metric) -> None:
    assert metric.sources
    queries = "".join(query for _series, query in metric.recordings())
    assert all(source in queries for source in metric.sources)
    assert metric.unit in ("percent", "requests")
    if metric.name == "llm_in_flight":  # nobody but a load test knows what a pod can hold
        assert metric.target_value is None
    else:
        assert metric.target_value is not None
        assert 0 < metric.target_value <= 100
    assert metric.reporter in ("dcgm-exporter", "model server")


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_no_query_looks_at_the_nodes_name(metric: Metric) -> None:
    assert not [query for _series, query in metric.recordings() if "hostname" in query.lower()]


def test_the_role_exports_what_the_profiles_read() -> None:
    counters = yaml.safe_load(COMMON.read_text())["_common_gpu_counters"].splitlines()
    rows = [[part.strip() for part in row.split(",")] for row in counters]
    assert all(len(row) == 3 for row in rows)
    read = {source for metric in METRICS.values() if metric.reporter == "dcgm-exporter" for source in metric.sources}
    assert read <= {field for field, kind, _help in rows if kind == "gauge"}


def test_profiles_that_one_can_be_wrong_about_say_so() -> None:
    named = {name for name, profile in PROFILES.items() if profile.caveats}
    assert named == {"gpu_memory", "mig", "shared", "llm", "llm_in_flight"}


@pytest.mark.parametrize("caveat", [caveat for profile in PROFILES.values() for caveat in profile.caveats])
def test_a_caveat_is_one_short_sentence(caveat: str) -> None:
    assert len(caveat) <= 220
    assert not caveat.endswith(".")


@given(target=st.floats(34, 90))
@example(target=60)
@example(target=80)
def test_the_hpa_acts_on_a_gpu_that_turns_full_at_the_evaluation_that_is_counted(target: float) -> None:
    evaluations = smoothed_evaluations(target)
    smoothed = [0.0]
    for _ in range(evaluations):
        smoothed.append((smoothed[-1] + 100) / 2)
    wanted = [desired_replicas([value], target, current=1) for value in smoothed]
    assert wanted[-1] > 1
    assert wanted[-2] <= 1 or evaluations == 2


@pytest.mark.parametrize("target", [91, 100])
def test_a_target_that_no_gpu_exceeds_is_not_waited_for_without_end(target: float) -> None:
    assert smoothed_evaluations(target) == 7
