"""What a manifest of Helm says is in the cluster."""

from __future__ import annotations

from ansible_collections.kubegpu.autoscale.plugins.modules.chart_release import read_manifest

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
