"""The site as its users find it: GPUs are schedulable, measured and offered as a metric that the sample scales on."""

from __future__ import annotations

import json
from typing import Any

from testinfra.host import Host

testinfra_hosts = ["ansible://kube_control_plane"]

GPUS = 8
# What the last scrape had. It is without a series of 5 minutes ago, whose target has other labels now. It is also
# without one of 5 seconds ago, whose GPU another pod has by now.
UTILISATION = "DCGM_FI_DEV_GPU_UTIL%20and%20last_over_time(DCGM_FI_DEV_GPU_UTIL[10s])"
PROMETHEUS = "/api/v1/namespaces/monitoring/services/kube-prometheus-stack-prometheus:9090/proxy/api/v1"


def kubectl(host: Host, words: str) -> Any:
    return json.loads(host.check_output(f"kubectl --kubeconfig /etc/kubernetes/admin.conf {words}"))


def series(host: Host, query: str) -> list[dict[str, Any]]:
    return kubectl(host, f"get --raw '{PROMETHEUS}/query?query={query}'")["data"]["result"]


def test_every_gpu_is_allocatable(host: Host) -> None:
    node = kubectl(host, "get node node1 --output=json")

    assert node["status"]["allocatable"]["nvidia.com/gpu"] == str(GPUS)
    assert node["metadata"]["labels"]["nvidia.com/gpu.present"] == "true"


def test_every_gpu_is_measured_once(host: Host) -> None:
    measured = [sample["metric"]["UUID"] for sample in series(host, UTILISATION)]

    assert len(measured) == len(set(measured)) == GPUS


def test_idle_gpus_are_nobodys(host: Host) -> None:
    owners = {sample["metric"].get("pod", "") for sample in series(host, UTILISATION)}

    assert "" in owners
    assert {owner.split("-")[0] for owner in owners} == {"", "sample"}


def test_intervals_are_those_that_the_reaction_time_is_computed_from(host: Host) -> None:
    monitor = kubectl(host, "--namespace monitoring get servicemonitor dcgm-exporter --output=json")
    rules = kubectl(host, "--namespace monitoring get prometheusrules --output=json")["items"]
    manager = kubectl(
        host, "--namespace kube-system get pods --selector component=kube-controller-manager --output=json"
    )

    assert [endpoint["interval"] for endpoint in monitor["spec"]["endpoints"]] == ["2s"]
    # Smoothed values need two evaluations: of one second each, so that both take the interval of two.
    smoothed = [
        group.get("interval")
        for rule in rules
        for group in rule["spec"]["groups"]
        if any(one.get("record") == "namespace_pod:gpu:avg" for one in group["rules"])
    ]
    assert smoothed == ["1s"]
    assert "--horizontal-pod-autoscaler-sync-period=5s" in manager["items"][0]["spec"]["containers"][0]["command"]


def test_the_metric_has_one_value_for_each_pod_of_the_sample(host: Host) -> None:
    pods = kubectl(host, "--namespace gpu-workload get pods --selector app.kubernetes.io/name=sample --output=json")[
        "items"
    ]
    values = kubectl(host, "get --raw /apis/custom.metrics.k8s.io/v1beta1/namespaces/gpu-workload/pods/*/gpu")["items"]

    assert pods
    assert {value["describedObject"]["name"] for value in values} == {pod["metadata"]["name"] for pod in pods}


def test_the_autoscaler_is_active(host: Host) -> None:
    conditions = kubectl(host, "--namespace gpu-workload get hpa sample --output=json")["status"]["conditions"]

    assert {condition["type"]: condition["status"] for condition in conditions}["ScalingActive"] == "True"
