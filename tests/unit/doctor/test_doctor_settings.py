"""What people may well have set: it looks like a fault of a setting, and is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from clusters import Cluster, at, ids, metric
from test_doctor_checks import FAULTS, ratio, written_by


def a_manifest_that_was_applied_before_the_hpa_scaled(cluster: Cluster) -> None:
    cluster.hpa["status"]["lastScaleTime"] = at(3600)
    cluster.target["metadata"]["managedFields"] = [
        written_by("helm", 7200),
        written_by("kube-controller-manager", 3600, subresource="scale"),
    ]


def a_deployment_that_was_made_anew(cluster: Cluster) -> None:
    cluster.hpa["status"]["lastScaleTime"] = at(3600)
    cluster.target["metadata"] |= {"creationTimestamp": at(1800), "managedFields": [written_by("helm", 1800)]}


def a_workload_that_has_never_been_scaled(cluster: Cluster) -> None:
    cluster.target["metadata"]["managedFields"] = [written_by("kubectl-client-side-apply", 60)]


def an_upgrade_that_leaves_the_replicas_alone(cluster: Cluster) -> None:
    cluster.hpa["status"]["lastScaleTime"] = at(3600)
    fields = {"f:spec": {"f:template": {}}}
    cluster.target["metadata"]["managedFields"] = [{**written_by("helm", 60), "fieldsV1": fields}]


def somebody_who_scales_by_hand(cluster: Cluster) -> None:
    cluster.hpa["status"]["lastScaleTime"] = at(3600)
    cluster.target["metadata"]["managedFields"] = [written_by("kubectl", 60, subresource="scale")]


def a_ratio_that_is_made_percent(cluster: Cluster) -> None:
    ratio(cluster, "avg by (namespace, pod) (100 * DCGM_FI_PROF_GR_ENGINE_ACTIVE)")


def a_ratio_with_a_target_in_the_same_unit(cluster: Cluster) -> None:
    ratio(cluster, "avg by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)")
    cluster.metric = metric(name="duty", series="", target_value=0.6, values={"chat-0": 0.4, "chat-1": 0.98})


def a_sum_over_the_gpus_of_a_pod(cluster: Cluster) -> None:
    ratio(cluster, "sum by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)")


def profiling_on_one_node_for_a_metric_that_can_do_without(cluster: Cluster) -> None:
    """The metric gpu falls back on the utilisation."""
    cluster.prometheus["rows"] = [
        row
        for row in cluster.prometheus["rows"]
        if row.labels["instance"] == "10.0.0.2:9400" or "PROF" not in row.labels["__name__"]
    ]


HARMLESS: tuple[Callable[[Cluster], None], ...] = (
    a_manifest_that_was_applied_before_the_hpa_scaled,
    a_deployment_that_was_made_anew,
    a_workload_that_has_never_been_scaled,
    an_upgrade_that_leaves_the_replicas_alone,
    somebody_who_scales_by_hand,
    a_ratio_that_is_made_percent,
    a_ratio_with_a_target_in_the_same_unit,
    a_sum_over_the_gpus_of_a_pod,
    profiling_on_one_node_for_a_metric_that_can_do_without,
)


@pytest.mark.parametrize("change", HARMLESS, ids=lambda change: change.__name__)
def test_what_looks_like_a_fault_and_is_none(change: Callable[[Cluster], None]) -> None:
    cluster = Cluster()
    change(cluster)
    assert ids(cluster.report()) == []


@pytest.mark.parametrize(
    ("fault", "quote"),
    [
        ("WORKLOAD_REPLICAS_OWNED", "helm wrote spec.replicas at 2027-01-15 07:30:00Z"),
        ("HPA_RATIO_AS_PERCENT", "made by `avg by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)`"),
        ("EXPORTER_FIELD_MISSING", "no DCGM_FI_DEV_FB_USED or DCGM_FI_DEV_FB_FREE; exporter: dcgm-exporter:4.5.3"),
    ],
)
def test_a_finding_quotes_what_was_set(fault: str, quote: str) -> None:
    cluster = Cluster()
    FAULTS[fault](cluster)
    assert quote in cluster.report()["findings"][0]["seen"][0]


def test_a_metric_that_has_values_misses_no_field() -> None:
    cluster = Cluster()
    cluster.metric = metric(name="gpu_memory", sources=("DCGM_FI_DEV_FB_USED",))
    assert "EXPORTER_FIELD_MISSING" not in ids(cluster.report())
