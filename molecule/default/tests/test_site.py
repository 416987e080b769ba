"""The site as its users find it: GPUs are schedulable, measured and offered as a metric that the sample scales on."""

from __future__ import annotations

import json
from typing import Any

from testinfra.host import Host
from waiting import eventually

testinfra_hosts = ["ansible://kube_control_plane"]

GPUS = 8
SAMPLE = "app.kubernetes.io/name=sample"
METRICS = "/apis/custom.metrics.k8s.io/v1beta1"
# What the last scrape had. It is without a series of 5 minutes ago, whose target has other labels now. It is also
# without one of 5 seconds ago, whose GPU another pod has by now.
UTILISATION = "DCGM_FI_DEV_GPU_UTIL%20and%20last_over_time(DCGM_FI_DEV_GPU_UTIL[10s])"
PROMETHEUS = "/api/v1/namespaces/monitoring/services/kube-prometheus-stack-prometheus:9090/proxy/api/v1"
# A busy exporter misses the 2 s of a scrape. All that it gives is then missing until the next one.
SEEN_S = 60


def kubectl(host: Host, words: str) -> Any:
    return json.loads(host.check_output(f"kubectl --kubeconfig /etc/kubernetes/admin.conf {words}"))


def series(host: Host, query: str) -> list[dict[str, Any]]:
    return kubectl(host, f"get --raw '{PROMETHEUS}/query?query={query}'")["data"]["result"]


def test_every_gpu_is_allocatable(host: Host) -> None:
    node = kubectl(host, "get node node1 --output=json")

    assert node["status"]["allocatable"]["nvidia.com/gpu"] == str(GPUS)
    assert node["metadata"]["labels"]["nvidia.com/gpu.present"] == "true"


def test_every_gpu_is_measured_once(host: Host) -> None:
    measured = eventually(
        lambda: [sample["metric"]["UUID"] for sample in series(host, UTILISATION)],
        lambda measured: len(measured) == GPUS,
        SEEN_S,
    )

    assert len(measured) == len(set(measured)) == GPUS


def test_idle_gpus_are_nobodys(host: Host) -> None:
    owners = eventually(
        lambda: {sample["metric"].get("pod", "").split("-")[0] for sample in series(host, UTILISATION)}, bool, SEEN_S
    )

    assert owners == {"", "sample"}


def test_intervals_are_those_that_the_reaction_time_is_computed_from(host: Host) -> None:
    monitor = kubectl(host, "--namespace monitoring get servicemonitor dcgm-exporter --output=json")
    rules = kubectl(host, "--namespace monitoring get prometheusrules --output=json")["items"]
    manager = kubectl(
        host, "--namespace kube-system get pods --selector component=kube-controller-manager --output=json"
    )

    assert [endpoint["interval"] for endpoint in monitor["spec"]["endpoints"]] == ["1s"]
    smoothed = [
        group.get("interval")
        for rule in rules
        for group in rule["spec"]["groups"]
        if any(one.get("record") == "namespace_pod:gpu:avg" for one in group["rules"])
    ]
    assert smoothed == ["1s"]
    assert "--horizontal-pod-autoscaler-sync-period=2s" in manager["items"][0]["spec"]["containers"][0]["command"]


def test_the_metric_has_one_value_for_each_pod_of_the_sample(host: Host) -> None:
    def named() -> tuple[set[str], set[str]]:
        values = kubectl(host, f"get --raw {METRICS}/namespaces/gpu-workload/pods/*/gpu")["items"]
        pods = kubectl(host, f"--namespace gpu-workload get pods --selector {SAMPLE} --output=json")["items"]
        return {value["describedObject"]["name"] for value in values}, {pod["metadata"]["name"] for pod in pods}

    with_value, pods = eventually(named, lambda seen: seen[0] == seen[1], SEEN_S)

    assert pods
    assert with_value == pods


def test_the_autoscaler_is_active(host: Host) -> None:
    def active() -> str:
        conditions = kubectl(host, "--namespace gpu-workload get hpa sample --output=json")["status"]["conditions"]
        return {condition["type"]: condition["status"] for condition in conditions}["ScalingActive"]

    assert eventually(active, lambda status: status == "True", SEEN_S) == "True"
