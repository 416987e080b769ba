"""Metrics that are recorded without an autoscaler: what is accepted, and the objects."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.argspecs import METRICS
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import unused_rules
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import (
    INFO_SERIES,
    PART,
    metric_objects,
    read_metrics,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import read_specs
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.labels import marked

GAUGE = {"namespace": "ml", "name": "queue_depth"}
SCRAPE = {"port": "metrics", "labels": {"app": "chat"}}
OPTIONS = RuleOptions(inventory="prod")


def objects(*given: dict[str, Any]) -> list[dict[str, Any]]:
    return metric_objects(read_metrics(list(given)), OPTIONS)


def test_a_gauge_is_recorded_unchanged_in_its_namespace_alone() -> None:
    [rule] = objects(GAUGE)
    [recording, info] = rule["spec"]["groups"][0]["rules"]
    assert recording["record"] == "namespace_pod:queue_depth:avg"
    assert "max by (namespace, pod) (queue_depth)" in recording["expr"]
    assert '"namespace", "ml"' in recording["expr"], "another namespace could write values"
    assert recording["labels"] == {"namespace": "ml", "job": ""}
    assert (info["record"], info["labels"]["metric_name"]) == (INFO_SERIES, "queue_depth")


def test_metrics_of_one_port_share_a_pod_monitor() -> None:
    more = {**GAUGE, "name": "slots", "query": "sum by (namespace, pod) (slots_total)"}
    made = objects(
        {**GAUGE, "scrape": SCRAPE}, {**more, "scrape": SCRAPE}, {"namespace": "ml", "scrape": {"port": "x"}}
    )
    assert [found["kind"] for found in made] == ["PrometheusRule"] * 2 + ["PodMonitor"] * 2
    assert made[2]["spec"] == {
        "selector": {"matchLabels": {"app": "chat"}},
        "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics", "interval": "5s"}],
    }
    assert made[3]["spec"]["selector"] == {"matchLabels": {}}
    assert made[2]["metadata"]["labels"] == dict(OPTIONS.labels), "a Prometheus selects monitors by labels"


def test_the_info_series_has_the_digest_of_what_is_recorded_alone() -> None:
    """Generated: each two versions of an entry."""
    queries = ("", "max by (namespace, pod) (queue_depth)", "min by (namespace, pod) (queue_depth)", "queue_length")
    digests = []
    for query, scrape in product(queries, ({}, SCRAPE)):
        given = {"query": query, "scrape": scrape}
        [rule, *_monitors] = objects({**GAUGE, **{option: value for option, value in given.items() if value}})
        digests.append(rule["spec"]["groups"][0]["rules"][-1]["labels"]["digest"])
    assert digests[:4] == [digests[0]] * 4, "the default is that query"
    assert len({*digests}) == 3


@pytest.mark.parametrize(
    ("wrong", "seen"),
    [
        ({}, "metrics[0].name is missing"),
        ({"name": "Queue"}, "metrics[0].name is wrong"),
        ({"name": "gpu"}, "name of a profile"),
        ({"name": "a" * 53}, "metrics[0].name is wrong"),
        ({"query": "up"}, "metrics[0].name is missing"),
        ({"name": "queue", "per": "workload"}, 'unknown option "per"'),
        ({"name": "queue", "namespace": "A/B"}, "metrics[0].namespace is"),
        ({"name": "queue", "scrape": {"path": "/m"}}, "metrics[0].scrape.port is missing"),
        ({"name": "queue", "scrape": {"port": "m", "interval": 0}}, "metrics[0].scrape.interval is 0"),
        ({"name": "queue", "scrape": {"port": "m", "labels": {"a b": "c"}}}, "has the label 'a b'"),
    ],
)
def test_a_wrong_entry_is_named_by_its_path(wrong: dict[str, Any], seen: str) -> None:
    with pytest.raises(HopError) as error:
        read_metrics([wrong])
    assert seen in str(error.value)


def test_all_wrong_entries_are_reported_together() -> None:
    with pytest.raises(HopError) as error:
        read_metrics([{"name": "Q"}, GAUGE, GAUGE, {"scrape": {}}])
    assert all(text in str(error.value) for text in ("metrics[0]", "metrics[3]", "2 entries for ml/queue_depth"))


def test_a_metric_of_an_autoscaler_is_not_recorded_twice() -> None:
    metric = {"name": "queue_depth", "query": "max by (namespace, pod) (queue_depth)"}
    spec = {"namespace": "ml", "target": {"name": "chat"}, "max_replicas": 2, "metric": metric, "target_value": 1}
    with pytest.raises(HopError, match="recorded for an autoscaler"):
        read_metrics([GAUGE], read_specs([spec]))
    assert read_metrics([{**GAUGE, "namespace": "other"}], read_specs([spec]))


def test_a_run_of_autoscalers_does_not_remove_the_rule() -> None:
    [rule] = objects(GAUGE)
    assert unused_rules([rule], []) == [rule]
    assert unused_rules([marked(rule, "prod", PART)], []) == []


def test_the_modules_accept_exactly_the_options_that_are_read() -> None:
    """Generated from the argument spec: each option is read, and no other is."""
    options = METRICS["metrics"]["options"]
    full: dict[str, Any] = {**GAUGE, "query": "queue", "scrape": {**SCRAPE, "path": "/m", "interval": 2}}
    assert options.keys() == full.keys()
    assert options["scrape"]["options"].keys() == full["scrape"].keys()
    read_metrics([full])
