"""The periods as they really are: what is read, what is seen, and what is assumed where neither is possible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.reaction_budget import Period
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.spec import Autoscaler
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.kube import KubeClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.cluster.prometheus_client import PrometheusClient
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.objects import Manifest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.reading.intervals import Intervals
from fake_cluster import FakeTransport, refusal

PROXY = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1"
EXPORTERS = "GET /apis/apps/v1/daemonsets"
MANAGERS = "GET /api/v1/namespaces/kube-system/pods"
GPU = Autoscaler.from_params({"target": {"name": "chat"}, "max_replicas": 1}).metric_targets[0]
BUSY = replace(GPU, value=80)
OF_A_WORKLOAD = replace(GPU, type="Object")
QUEUE = Autoscaler.from_params(
    {"target": {"name": "chat"}, "metric": {"name": "queue", "query": "q"}, "target_value": 1, "max_replicas": 1}
).metric_targets[0]


def exporter(image: str = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5", **container: Any) -> Manifest:
    """Found by its image or its variables, whatever it is called."""
    containers = [{"name": "main", "image": image, **container}]
    return {"metadata": {"name": "gpu-metrics"}, "spec": {"template": {"spec": {"containers": containers}}}}


def interval(milliseconds: str) -> list[dict[str, str]]:
    return [{"name": "DCGM_EXPORTER_INTERVAL", "value": milliseconds}]


def manager(*arguments: str) -> Manifest:
    return {"spec": {"containers": [{"command": ["kube-controller-manager", *arguments]}]}}


def samples(*times: float) -> dict[str, Any]:
    found = {"metric": {"__name__": "x", "UUID": 'GPU-"a"'}, "values": [[time, "1"] for time in times]}
    return {"status": "success", "data": {"result": [found]}}


def rules(seconds: float, *series: str) -> dict[str, Any]:
    group = {"interval": seconds, "rules": [{"name": name} for name in series or ("namespace_pod:gpu:avg",)]}
    return {"status": "success", "data": {"groups": [group]}}


def budget(metric_target: Any = GPU, written_s: int | None = None, **answers: Any) -> Any:
    everything = {
        EXPORTERS: {"items": [exporter(env=interval("1000"))]},
        MANAGERS: {"items": [manager("--horizontal-pod-autoscaler-sync-period=5s")]},
        f"GET {PROXY}/query": samples(100, 102, 104.1, 106),
        f"GET {PROXY}/rules": rules(2),
    }
    transport = FakeTransport({**everything, **answers})
    kube = KubeClient(transport)
    prometheus = PrometheusClient(kube.get_raw, namespace="monitoring", service="prometheus", port=9090)
    return Intervals(kube, prometheus, written_s).budget(metric_target)


def test_what_is_configured_and_what_is_seen() -> None:
    found = budget()
    assert (found.collect, found.evaluate, found.sync) == (Period(1), Period(2), Period(5))
    assert (found.scrape.seconds, found.scrape.source) == (pytest.approx(2, abs=0.01), "seen")


SMOOTHED = "namespace_pod:gpu:now", "namespace_pod:gpu:avg"


@pytest.mark.parametrize(("series", "seconds"), [(SMOOTHED, 2), (SMOOTHED[1:], 1)], ids=["ours", "an older one"])
def test_a_smoothed_series_shows_a_step_after_two_evaluations(series: tuple[str, ...], seconds: float) -> None:
    assert budget(**{f"GET {PROXY}/rules": rules(1, *series)}).evaluate == Period(seconds)


@pytest.mark.parametrize(
    ("recorded", "seconds"), [(SMOOTHED, 5), ((), 3)], ids=["of its pods and of itself", "of itself alone"]
)
def test_what_is_recorded_of_a_workload_waits_for_what_is_recorded_of_its_pods(
    recorded: tuple[str, ...], seconds: float
) -> None:
    answer = rules(3, "namespace_workload:gpu:avg")
    answer["data"]["groups"] += rules(1, *recorded)["data"]["groups"] if recorded else []
    assert budget(OF_A_WORKLOAD, **{f"GET {PROXY}/rules": answer}).evaluate == Period(seconds)


@pytest.mark.parametrize(
    ("written_s", "metric_target", "seconds"),
    [
        (2, GPU, 2),
        (5, GPU, 6),
        (1, GPU, 2),
        (5, QUEUE, 5),
        (1, QUEUE, 1),
        (2, BUSY, 4),
        (2, OF_A_WORKLOAD, 4),
        (5, OF_A_WORKLOAD, 11),
        (2, replace(QUEUE, type="Object"), 4),
        (2, replace(QUEUE, metric=replace(QUEUE.metric, query=""), type="External"), 2),
    ],
)
def test_of_a_rule_that_is_about_to_be_written(written_s: int, metric_target: Any, seconds: float) -> None:
    assert budget(metric_target, written_s=written_s).evaluate == Period(seconds)


COLLECT: dict[str, tuple[list[Manifest], Period]] = {
    "by variable": ([exporter(env=interval("10000"))], Period(10)),
    "by short flag": ([exporter(args=["-f", "x.csv", "-c", "500"])], Period(0.5)),
    "by long flag": ([exporter(command=["dcgm-exporter", "--collect-interval", "2000"])], Period(2)),
    "by long flag with =": ([exporter(args=["--collect-interval=3000"])], Period(3)),
    "a flag wins over the variable": ([exporter(args=["-c", "500"], env=interval("10000"))], Period(0.5)),
    "the slowest of two": ([exporter(env=interval("1000")), exporter(env=interval("30000"))], Period(30)),
    "one whose image has another name": ([exporter("mirror/gpu@sha256:00", env=interval("1000"))], Period(1)),
    "another DaemonSet": ([exporter("prom/node-exporter:1", args=["-c", "1000"])], Period(30, "assumed")),
    "no word of it": ([exporter()], Period(30, "assumed")),
    "none": ([], Period(30, "assumed")),
}


@pytest.mark.parametrize(("exporters", "expected"), COLLECT.values(), ids=COLLECT)
def test_collect(exporters: list[Manifest], expected: Period) -> None:
    assert budget(**{EXPORTERS: {"items": exporters}}).collect == expected


SYNC: dict[str, tuple[list[Manifest], Period]] = {
    "seconds": ([manager("--horizontal-pod-autoscaler-sync-period=5s")], Period(5)),
    "minutes": ([manager("--horizontal-pod-autoscaler-sync-period=1m30s")], Period(90)),
    "the default of one that is seen": ([manager("--v=2")], Period(15)),
    "a managed control plane": ([], Period(15, "assumed")),
}


@pytest.mark.parametrize(("managers", "expected"), SYNC.values(), ids=SYNC)
def test_sync(managers: list[Manifest], expected: Period) -> None:
    assert budget(**{MANAGERS: {"items": managers}}).sync == expected


def test_a_missing_right_or_answer_is_no_error() -> None:
    none = refusal(403, "no")
    found = budget(**{EXPORTERS: none, MANAGERS: none, f"GET {PROXY}/query": none, f"GET {PROXY}/rules": none})
    assert {found.collect.source, found.scrape.source, found.evaluate.source, found.sync.source} == {"assumed"}
    assert found.worst_s == 105


def test_one_sample_does_not_tell_how_far_samples_are_apart() -> None:
    assert budget(**{f"GET {PROXY}/query": samples(100)}).scrape == Period(30, "assumed")


def test_a_metric_that_is_not_of_gpus_is_not_collected_by_dcgm() -> None:
    found = budget(QUEUE)
    assert (found.collect.seconds, found.scrape.source) == (0, "assumed")
