"""A proven autoscaler stands for the hops of its own metrics alone, in each subset of the kinds of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.metrics import PROFILES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import (
    ADAPTER,
    EXTERNAL,
    KEDA,
    OBJECT,
    PODS,
    read_specs,
)
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.health_report import health_report
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.metric import MetricState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.state.prometheus import PrometheusState
from ansible_collections.kubegpu.autoscale.plugins.module_utils.hops import CHAIN, Hop
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.change_reader import _metric
from ansible_collections.kubegpu.autoscale.plugins.module_utils.report.doctor_texts import headline
from clusters import Cluster, rows
from every_spec import OWN, every_spec

CPU = "CPU"
PODS_OF_CHAT = ("chat-0", "chat-1")
# Hops of dcgm-exporter. Model servers are scraped, too, so their series name pods.
OF_GPUS = CHAIN[: CHAIN.index(Hop.LABELS)]


@cache
def kinds() -> dict[str, tuple[MetricState, ...]]:
    """Metrics of each spec that is accepted, and of an HPA on CPU."""
    found: dict[str, tuple[MetricState, ...]] = {CPU: ()}
    for title, spec in every_spec("ml"):
        (autoscaler,) = read_specs([spec])
        found[title] = tuple(_metric(autoscaler, target) for target in autoscaler.metric_targets)
    return found


def first_hop(metric: MetricState) -> Hop:
    """Where a value comes from: GPUs, series that name pods, a rule of the user, or another server of metrics."""
    if any("DCGM_" in source for source in metric.sources):
        return Hop.NODE
    return Hop.LABELS if metric.sources else Hop.RULE if metric.series else Hop.METRICS_API


@cache
def representatives() -> tuple[str, ...]:
    """One kind for each combination of sources."""
    return tuple({frozenset(map(first_hop, metrics)): name for name, metrics in reversed(kinds().items())}.values())


def proven(metric: MetricState) -> MetricState:
    values = dict.fromkeys(PODS_OF_CHAT if metric.type == PODS else ("chat",), 5.0)
    recorded = {name: (value,) for name, value in values.items()} if metric.series else {}
    return replace(metric, expected_objects=frozenset(values), values=values, recorded=recorded, listed=True)


def report(names: Sequence[str], *, gpus: bool) -> dict[str, Any]:
    """Of a cluster whose autoscalers all work; gpus: whether GPUs, device plugin and exporter are visible."""
    state = Cluster().state()
    (first,) = state.autoscalers
    metrics = [proven(metric) for name in names for metric in kinds()[name]]
    autoscalers = [replace(first, metrics=[proven(metric) for metric in kinds()[name]]) for name in names]
    sources = {source for metric in metrics for source in metric.sources if gpus or "DCGM_" not in source}
    own = rows({f"ml/{name}": "10.1.0.1:8000" for name in PODS_OF_CHAT}, tuple(sorted(sources)), layout="")
    (of_gpu,) = (state.prometheus.rules or {})[Cluster().rule["name"]]
    rules = {metric.series: [{**of_gpu, "name": metric.series}] for metric in metrics if metric.series}
    prometheus = replace(state.prometheus, rules=rules, rows=own if not gpus else [*state.prometheus.rows, *own])
    if not gpus:
        prometheus = PrometheusState(state.prometheus.name, rules=rules, rows=own, pods=state.prometheus.pods)
        state = replace(state, nodes=[], daemon_sets=[], component_pods=[], facts={})
    return health_report(replace(state, autoscalers=autoscalers, prometheus=prometheus))


def covered(name: str) -> set[Hop]:
    """Hops that a working autoscaler of this kind depends on."""
    return {hop for metric in kinds()[name] for hop in CHAIN[CHAIN.index(first_hop(metric)) :]}


SUBSETS = [
    *((name,) for name in kinds()),
    *(subset for size in range(len(representatives()) + 1) for subset in combinations(representatives(), size)),
]


def test_the_kinds_cover_each_profile_type_backend_and_demand() -> None:
    words = {word for title in kinds() for word in title.split()}
    assert words >= {*PROFILES, *OWN, PODS, OBJECT, EXTERNAL, ADAPTER, KEDA, "demand", CPU}
    assert {first_hop(metric) for name in representatives() for metric in kinds()[name]} == {
        Hop.NODE,
        Hop.LABELS,
        Hop.RULE,
        Hop.METRICS_API,
    }


@pytest.mark.parametrize("gpus", [True, False])
@pytest.mark.parametrize("names", SUBSETS, ids=" + ".join)
def test_hops_outside_of_the_proven_paths_are_unchecked(names: tuple[str, ...], gpus: bool) -> None:
    found = report(names, gpus=gpus)
    unknown = {hop["id"] for hop in found["hops"] if hop["status"] == "unknown"}
    assert gpus or unknown >= set(OF_GPUS)
    outside = unknown - {str(hop) for name in names for hop in covered(name)}
    assert set(found["unchecked_hops"]) == outside
    assert found["verdict"] != "ok" or not found["unchecked_hops"]
    if found["verdict"] == "partial":
        assert headline(found).startswith("No errors found, but some hops were not checked: ")
    elif outside and names:
        assert found["verdict"] in ("broken", "unknown")


def test_a_queue_alone_is_partial_and_names_the_hops_of_the_gpus() -> None:
    (name,) = (title for title in kinds() if title == f"existing {EXTERNAL} {ADAPTER}")
    found = report([name], gpus=False)
    assert found["verdict"] == "partial"
    assert found["autoscalers"][0]["verified"]
    assert found["unchecked_hops"] == [*CHAIN[: CHAIN.index(Hop.METRICS_API)]]


def test_an_hpa_on_cpu_proves_nothing() -> None:
    found = report([CPU], gpus=True)
    assert not found["autoscalers"][0]["verified"]
    assert found["verdict"] == "partial"
