"""What a manifest of Helm says is in the cluster, and in what values differ."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.modules.chart_release import read_manifest, shown_differences

MANIFEST = """
---
# Source: exporter/templates/service.yaml
kind: Service
metadata:
  name: exporter
  annotations:
spec:
  ports: [{name: metrics, nodePort: null}]
---
# A document that a condition left empty.
---
kind: PrometheusRule
metadata: {name: rules}
spec: {operators: [=, "!="]}
"""


def test_empty_documents_and_fields_without_a_value_are_left_out() -> None:
    service, _ = read_manifest(MANIFEST)
    assert service == {"kind": "Service", "metadata": {"name": "exporter"}, "spec": {"ports": [{"name": "metrics"}]}}


def test_a_bare_equals_sign_is_text() -> None:
    *_, rule = read_manifest(MANIFEST)
    assert rule["spec"]["operators"] == ["=", "!="]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"grafana": {"enabled": True}}, {}, [("grafana.enabled", "true", "not set")]),
        ({"retention": "10d"}, {"retention": "24h"}, [("retention", '"10d"', '"24h"')]),
        ({"replicas": 2}, {"replicas": {"min": 2}}, [("replicas", "2", '{"min": 2}')]),
        ({}, {"affinity": {}}, [("affinity", "not set", "{}")]),
        ({"same": [1]}, {"same": [1]}, []),
    ],
)
def test_each_value_that_differs_is_named(before: Any, after: Any, shown: list[tuple[str, str, str]]) -> None:
    assert list(shown_differences(before, after)) == shown


PLANTED: dict[str, dict[str, Any]] = {
    "password": {"grafana": {"adminPassword": "s3cret"}},
    "login in a list": {
        "remoteWrite": [{"url": "https://me:s3cret@metrics.example", "basicAuth": {"password": "s3cret"}}]
    },
    "webhook": {"receivers": [{"slack_configs": [{"api_url": "https://chat.example/s3cret"}]}]},
    "variable": {"env": [{"name": "DB_PASSWORD", "value": "s3cret"}]},
    "address": {"GF_DATABASE_URL": "postgres://u:s3cret@db/grafana"},
    "argument": {"extraArguments": ["--password=s3cret"]},
}


@pytest.mark.parametrize("values", PLANTED.values(), ids=PLANTED.keys())
@pytest.mark.parametrize("theirs", [True, False], ids=["of their release", "of ours"])
def test_a_secret_is_not_shown_on_either_side(values: dict[str, Any], theirs: bool) -> None:
    [(path, before, after)] = shown_differences(values if theirs else {}, {} if theirs else values)
    assert path.partition(".")[0] in values
    assert "s3cret" not in before + after
    assert "not set" in (before, after)


def test_a_secret_that_changes_is_a_difference() -> None:
    before, after = ({"grafana": {"adminPassword": word}} for word in ("first", "second"))
    assert list(shown_differences(before, after)) == [("grafana.adminPassword", "set", "set")]
