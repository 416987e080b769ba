"""What a manifest of Helm says is in the cluster, and in what values differ."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.modules.chart_release import differences, hidden, read_manifest

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
    assert list(differences(before, after)) == shown


@pytest.mark.parametrize(
    "values", [{"grafana": {"adminPassword": "s3cret"}}, {"remoteWrite": [{"basicAuth": {"password": "s3cret"}}]}]
)
def test_a_value_that_is_secret_by_its_name_is_not_shown(values: dict[str, Any]) -> None:
    [(_path, before, after)] = differences(values, {})
    assert (before, after) == ("set", "not set")


def test_the_parameters_that_are_logged_have_no_secret() -> None:
    values = {
        "grafana": {"adminPassword": "s3cret", "replicas": 1},
        "remoteWrite": [{"basicAuth": {"password": "s3cret"}}],
    }

    assert hidden(values) == {
        "grafana": {"adminPassword": "(hidden)", "replicas": 1},
        "remoteWrite": [{"basicAuth": "(hidden)"}],
    }
