"""Specs of each kind of autoscaler that is accepted: profile or custom metric, type, backend and demand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.backends import BACKENDS, check_backends
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.manifests import RuleOptions
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import (
    EXTERNAL,
    OBJECT,
    PODS,
    read_specs,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.errors import HopError

TYPES = (PODS, OBJECT, EXTERNAL)
# A team's own metrics: by a query, in total, and one that another server of metrics has.
OWN: dict[str, dict[str, Any]] = {
    "queue": {"name": "queue", "query": "sum by (namespace, pod) (waiting)"},
    "total": {"name": "total", "query": "sum by (namespace, deployment) (waiting)", "per": "workload"},
    "existing": {"name": "sqs"},
}
_DEMANDS: tuple[dict[str, Any], ...] = ({}, {"demand": {"source": "istio"}})


def every_spec(namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Title and spec of each; each has a target of its own, so all of them fit into one run."""
    metrics = {**{name: name for name in PROFILES}, **OWN}
    for (name, metric), type_, backend, demand in product(metrics.items(), TYPES, BACKENDS, _DEMANDS):
        words = (name, type_, backend, *demand)
        target = "-".join(words).replace("_", "-").lower()
        row = {"namespace": namespace, "target": {"name": target}, "metric": metric, "max_replicas": 4}
        spec = {**row, "target_value": 5, "metric_type": type_, "backend": backend, **demand}
        try:
            check_backends(read_specs([spec]), RuleOptions())
        except HopError:
            continue
        yield " ".join(words), spec
