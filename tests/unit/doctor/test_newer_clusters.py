"""What Kubernetes has newly learnt is no fault: GPUs that pods claim, and HPAs that scale to zero by themselves.

Objects are shaped as k8s.io/api resource/v1 and the HPA controller of Kubernetes 1.36 write them.
"""

from __future__ import annotations

from typing import Any

import pytest
from clusters import Cluster, daemon_set, exporter_daemon_set, ids, meta, metric, turned


def resource_slice(node: str, devices: int, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    names = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(devices)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": meta(f"{node}-{driver}"),
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": names},
    }


def claiming_cluster(devices: int = 2) -> Cluster:
    """No device plugin, no label, no nvidia.com/gpu anywhere: the pods claim a device each."""
    cluster = Cluster(daemon_sets=[exporter_daemon_set()])
    for node in cluster.nodes:
        node["metadata"]["labels"] = {"nvidia.com/gpu.present": "true"}
        node["status"] |= {"capacity": {"cpu": "64"}, "allocatable": {"cpu": "64"}}
    for name in ("plugin-gpu1", "plugin-gpu2"):
        del cluster.pods[name]
    pod = cluster.target["spec"]["template"]["spec"]
    del pod["containers"][0]["resources"]["limits"]
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    request = {
        "name": "gpu",
        "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1},
    }
    template = {"metadata": meta("one-gpu", "ml"), "spec": {"spec": {"devices": {"requests": [request]}}}}
    cluster.resource_slices = [resource_slice(node, devices) for node in ("gpu1", "gpu2")]
    cluster.claim_templates = [template]
    return cluster


def test_a_cluster_whose_gpus_are_claimed_is_healthy() -> None:
    report = claiming_cluster(devices=4).report(grace=False)
    assert (ids(report), report["verdict"]) == ([], "ok")
    hops = {hop["id"]: hop for hop in report["hops"]}
    assert hops["device_plugin"]["summary"] == "8 GPUs can be claimed, 0 pods of the device plugin"
    assert hops["node"]["summary"] == "2 of 2 nodes have GPUs"


@pytest.mark.parametrize(
    ("container", "findings"),
    [("gpus", []), ("compute-domains", ["NODE_WITHOUT_GPUS"]), ("compute-domain-daemon", ["NODE_WITHOUT_GPUS"])],
)
def test_the_half_of_the_dra_driver_that_gives_out_no_gpu_excuses_no_node(container: str, findings: list[str]) -> None:
    """With NVLink domains the GPUs come by the device plugin."""
    cluster = Cluster()
    image = {"name": container, "image": "nvcr.io/nvidia/k8s-dra-driver-gpu:v25.8.0"}
    labels = {"app": "nvidia-dra-driver-gpu"}
    cluster.daemon_sets.append(daemon_set("kubelet-plugin", "nvidia-dra-driver-gpu", image, labels))
    cluster.nodes[0]["status"]["allocatable"] = {"cpu": "64"}
    cluster.nodes[0]["status"]["capacity"] = {"cpu": "64"}
    assert ids(cluster.report(grace=False)) == findings


def test_devices_of_other_drivers_are_no_gpus() -> None:
    cluster = claiming_cluster()
    cluster.resource_slices = [resource_slice(node, 8, "dra.net") for node in ("gpu1", "gpu2")]
    assert "DEVICE_PLUGIN_MISSING" in ids(cluster.report(grace=False))


def test_capacity_counts_devices() -> None:
    cluster = claiming_cluster(devices=1)
    cluster.hpa["spec"]["maxReplicas"] = 3
    [finding] = cluster.report()["findings"]
    assert finding["id"] == "WORKLOAD_MAXIMUM_OVER_GPUS"
    assert finding["seen"] == [
        "max_replicas is 3, but eligible nodes have room for only 2 replicas (1 gpu.nvidia.com a pod)"
    ]


def limited_cluster(*classes: dict[str, Any]) -> Cluster:
    """The pods have a limit, and no node has nvidia.com/gpu."""
    cluster = claiming_cluster(devices=2)
    pod = cluster.target["spec"]["template"]["spec"]
    del pod["resourceClaims"]
    pod["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    cluster.device_classes = list(classes)
    return cluster


def device_class(**spec: str) -> dict[str, Any]:
    expression = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
    return {"metadata": meta("gpu.nvidia.com"), "spec": {"selectors": [{"cel": {"expression": expression}}], **spec}}


def test_a_limit_that_no_class_turns_into_a_claim_is_reported() -> None:
    """As the GPU operator 26.7 leaves its class."""
    [finding] = limited_cluster(device_class()).report(grace=False)["findings"]
    assert finding["id"] == "DEVICE_CLASS_MISSING"
    assert finding["seen"] == [
        "its pods have a limit of nvidia.com/gpu, which no node offers; gpu.nvidia.com has no such extendedResourceName"
    ]
    assert "deviceclass.resource.kubernetes.io/gpu.nvidia.com" in finding["fix"]
    assert "no DeviceClass exists" in limited_cluster().report()["findings"][0]["seen"][0]


def test_classes_that_cannot_be_listed_accuse_nobody() -> None:
    cluster = limited_cluster()
    cluster.device_classes = None
    assert ids(cluster.report(grace=False)) == []


def test_a_limit_by_the_name_of_a_class_is_one_of_gpus() -> None:
    cluster = limited_cluster(device_class())
    container = cluster.target["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"] = {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}
    assert ids(cluster.report(grace=False)) == []
    cluster.hpa["spec"]["maxReplicas"] = 5
    [finding] = cluster.report()["findings"]
    assert "room for only 4 replicas (1 gpu.nvidia.com a pod)" in finding["seen"][0]


def test_devices_count_for_a_limit_that_is_met_by_a_claim() -> None:
    """By extendedResourceName of the driver's DeviceClass: no node has nvidia.com/gpu, and none has to."""
    cluster = limited_cluster(device_class(extendedResourceName="nvidia.com/gpu"))
    assert ids(cluster.report(grace=False)) == []
    cluster.hpa["spec"]["maxReplicas"] = 5
    [finding] = cluster.report()["findings"]
    assert "room for only 4 replicas" in finding["seen"][0]
    for node in cluster.nodes:
        node["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    assert ids(cluster.report()) == ["GPUS_OFFERED_TWICE"]


def test_a_claim_whose_devices_cannot_be_told_accuses_nobody() -> None:
    cluster = claiming_cluster(devices=1)
    cluster.hpa["spec"]["maxReplicas"] = 30
    cluster.claim_templates = []
    assert ids(cluster.report()) == []


def at_zero(cluster: Cluster, *conditions: dict[str, Any], minimum: int = 0) -> None:
    cluster.replicas = 0
    cluster.hpa["spec"]["minReplicas"] = minimum
    cluster.hpa["status"] |= {"currentReplicas": 0, "desiredReplicas": 0, "conditions": list(conditions)}
    del cluster.pods["chat-0"], cluster.pods["chat-1"]
    cluster.metric = metric(expected_objects=frozenset(), values={}, recorded={})


DISABLED = turned(
    "ScalingActive", "False", reason="ScalingDisabled", message="scaling is disabled since the replica count is zero"
)
SCALED_TO_ZERO = turned("ScaledToZero", reason="ScaledToZero", message="the HPA has scaled the target to zero")


@pytest.mark.parametrize(
    ("conditions", "minimum", "findings"),
    [
        ([turned("AbleToScale"), turned("ScalingActive"), SCALED_TO_ZERO], 0, []),
        ([turned("AbleToScale"), turned("ScalingActive")], 0, []),
        ([turned("AbleToScale"), DISABLED], 0, ["WORKLOAD_AT_ZERO"]),
        ([turned("AbleToScale"), DISABLED], 1, ["WORKLOAD_AT_ZERO"]),
    ],
)
def test_an_hpa_may_scale_to_zero_by_itself(conditions: list[Any], minimum: int, findings: list[str]) -> None:
    cluster = Cluster()
    at_zero(cluster, *conditions, minimum=minimum)
    report = cluster.report(grace=False)
    assert ids(report) == findings


def test_keda_scales_to_zero_in_the_hpas_place() -> None:
    cluster = Cluster()
    at_zero(cluster, turned("AbleToScale"), DISABLED, minimum=1)
    cluster.hpa["metadata"]["ownerReferences"] = [{"kind": "ScaledObject", "name": "chat"}]
    assert ids(cluster.report(grace=False)) == []
