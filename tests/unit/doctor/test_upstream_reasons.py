"""Each reason that Kubernetes can give has a cause in the doctor, or stands here as harmless.

The reasons are recorded from its source by tools/record_reasons.py, the sentences are those of the same source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.registry import FINDING_TYPES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.checks.workload_pods import _FAILURES
from ansible_collections.kubegpu.autoscale.plugins.module_utils.diagnosis.check import CheckResult
from ansible_collections.kubegpu.autoscale.plugins.module_utils.kube.pods import was_rejected
from clusters import Cluster, ids, turned

REASONS = yaml.safe_load((Path(__file__).parent / "upstream_reasons.yml").read_text())
VARIABLES = dict.fromkeys(("namespace", "pod", "target", "name", "group"), "x")
PULL, RUNTIME, VOLUME = "cannot pull the image", "the container runtime of the node", "a volume of the pods cannot"
CREATED, ENDED, ITSELF = "cannot create or start the container", "has ended the pods", "a container exits by itself"
# Events about a pod that does not run: message of the kubelet, and part of the cause.
EVENTS = {
    "BackOff": ("Back-off restarting failed container main in pod chat-0", ITSELF),
    "ErrImageNeverPull": ('Container image "x" is not present with pull policy of Never', "imagePullPolicy is Never"),
    "Failed": ("Error: ImagePullBackOff", PULL),
    "FailedAttachVolume": ('Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) chat-1', VOLUME),
    "FailedCreatePodContainer": ("unable to ensure pod container exists: failed to create container", CREATED),
    "FailedCreatePodSandBox": (
        "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "
        '"nvidia" is configured',
        "does not have the runtime that the RuntimeClass",
    ),
    "FailedKillPod": ("error killing pod: context deadline exceeded", RUNTIME),
    "FailedMapVolume": ('MapVolume.MapPodDevice failed for volume "pvc-1"', VOLUME),
    "FailedMount": ('MountVolume.SetUp failed for volume "models" : configmap "models" not found', VOLUME),
    "FailedMountOnFilesystemMismatch": ("mount failed: wrong fs type", VOLUME),
    "FailedPodSandBoxStatus": ("Unable to get pod sandbox status: rpc error", RUNTIME),
    "FailedPostStartHook": ("PostStartHook failed", "postStart hook"),
    "FailedPrepareDynamicResources": (
        "Failed to prepare dynamic resources: NodePrepareResources failed",
        "ResourceClaims",
    ),
    "FailedSync": ("error determining status: rpc error: code = DeadlineExceeded", RUNTIME),
    "FileSystemResizeFailed": ("MountVolume.NodeExpandVolume failed", VOLUME),
    "InspectFailed": ('Failed to apply default image tag "X": couldn\'t parse image name', PULL),
    "NetworkNotReady": (
        "network is not ready: container runtime network not ready: NetworkReady=false",
        "pod's network",
    ),
    "Preempting": ("Preempted by pod 1 on node gpu1", ENDED),
    "Unhealthy": ("Readiness probe errored and resulted in unknown state: rpc error", "their probe fails"),
    "VolumePermissionChangeInProgress": (
        "Setting volume ownership for x is taking longer than expected",
        "owner of each",
    ),
    "VolumeResizeFailed": ("NodeExpandVolume.NodeExpandVolume failed", VOLUME),
}
NODE, NORMAL, GOES_ON = "about a node", "no Warning", "the pod goes on running, or ends in any case"
HARMLESS = {
    **dict.fromkeys(
        ("Created", "FileSystemResizeSuccessful", "Killing", "Pulled", "Pulling", "ResizeCompleted", "ResizeStarted",
         "SandboxChanged", "Started", "Starting", "SuccessfulAttachVolume", "SuccessfulMountVolume",
         "VolumeResizeSuccessful"),
        NORMAL,
    ),
    **dict.fromkeys(
        ("CgroupV1", "ContainerGCFailed", "FailedNodeAllocatableEnforcement", "FreeDiskSpaceFailed", "ImageGCFailed",
         "InvalidDiskCapacity", "InvalidImageID", "KubeletSetupFailed", "NodeAllocatableEnforced", "NodeNotReady",
         "NodeNotSchedulable", "NodeReady", "NodeSchedulable", "Rebooted", "Shutdown"),
        NODE,
    ),
    **dict.fromkeys(
        ("AlreadyMountedVolume", "ExceededGracePeriod", "FailedPreStopHook", "PossibleMemoryBackedVolumesOnDisk",
         "ProbeWarning", "ResizeDeferred", "ResizeError", "ResizeInfeasible"),
        GOES_ON,
    ),
    "FailedNodeDeclaredFeaturesCheck": "the message says it all",
    "FailedValidation": "of pods in files of the kubelet",
}  # fmt: skip
# Waiting reasons of a container, with part of the cause where the kubelet gives no message.
CONTAINERS = {
    **dict.fromkeys(
        ("ErrImagePull", "ImageInspectError", "ImagePullBackOff", "InvalidImageName", "RegistryUnavailable",
         "SignatureValidationFailed"),
        PULL,
    ),
    **dict.fromkeys(("CreateContainerError", "PreCreateHookError", "PreStartHookError", "RunContainerError"), CREATED),
    **dict.fromkeys(("ImageVolumeMountFailed", "RROUnsupported"), VOLUME),
    "CrashLoopBackOff": ITSELF,
    "CreateContainerConfigError": "a ConfigMap or Secret",
    "ErrImageNeverPull": "imagePullPolicy is Never",
    "PostStartHookError": "postStart hook",
}  # fmt: skip
# Results that are no reason of a container: only a start gives one.
NOT_OF_A_START = {
    **dict.fromkeys(("KillContainerError", "KillPodSandboxError", "RemoveContainerError"), RUNTIME),
    **dict.fromkeys(("ConfigPodSandboxError", "CreatePodSandboxError"), "pod's network"),
    "ResizePodInPlaceError": FINDING_TYPES["WORKLOAD_NOT_READY"].cause,
}
HPA = {
    **dict.fromkeys(("FailedGetScale", "FailedUpdateScale"), "HPA_CANNOT_SCALE"),
    **dict.fromkeys(
        ("FailedGetContainerResourceMetric", "FailedGetExternalMetric", "FailedGetObjectMetric", "FailedGetPodsMetric",
         "FailedGetResourceMetric", "InvalidMetricSourceType", "InvalidSelector"),
        "HPA_NOT_ACTIVE",
    ),
    "AmbiguousSelector": "HPA_SELECTOR_AMBIGUOUS",
    "NotScaledToZero": "",  # harmless
    "ScalingDisabled": "",  # of a workload at zero: WORKLOAD_AT_ZERO
}  # fmt: skip
OTHER_NODES, BOUND = "the pods cannot use their nodes", "is not bound, in use, or out of reach"
SCHEDULER = {
    "affinity": OTHER_NODES,
    "did not have enough free storage": BOUND,
    "free ports": "host ports",
    "required features": OTHER_NODES,
    "topology spread": "topologySpreadConstraints",
    "node name": OTHER_NODES,
    "volume count": "as many volumes attached",
    "available disk": BOUND,
    "volume zone": BOUND,
    "taints": OTHER_NODES,
    "unknown conditions": OTHER_NODES,
    "PersistentVolumeClaim": BOUND,
    "non-existent pv": BOUND,
    "were unschedulable": "a node is cordoned",
    "resize preemption": FINDING_TYPES["WORKLOAD_PODS_PENDING"].cause,  # of a pod that is resized in place
}
# Built in other places of the scheduler's source.
ALSO = {
    "Insufficient nvidia.com/gpu": "enough free GPUs",
    "Insufficient cpu": "another resource",
    "Too many pods": "as many pods as its kubelet allows",
    "node(s) had untolerated taint(s)": OTHER_NODES,
    'persistentvolumeclaim "models" not found': BOUND,
    "request gpu: device class gpu.nvidia.com does not exist": "ResourceClaims",
}


def cause(finding: str, seen: str) -> str:
    return CheckResult(FINDING_TYPES[finding], "thing", seen, template_vars=VARIABLES).cause


def test_each_reason_is_judged_and_nothing_else_is() -> None:
    assert {*EVENTS, *HARMLESS} == {*REASONS["kubelet_events"]}
    assert not EVENTS.keys() & HARMLESS.keys()
    assert {*CONTAINERS, *NOT_OF_A_START} == {*REASONS["containers"]}
    assert {*HPA} == {*REASONS["hpa_conditions"]}


@pytest.mark.parametrize("finding", ["WORKLOAD_NOT_READY", "WORKLOAD_PODS_FAIL"])
@pytest.mark.parametrize("reason", EVENTS)
def test_an_event_of_the_kubelet_has_its_cause(finding: str, reason: str) -> None:
    message, part = EVENTS[reason]
    assert part in cause(finding, f"0 of 2 pods are ready: ml/chat-0: {reason}: {message}")


@pytest.mark.parametrize("reason", [reason for reason, why in HARMLESS.items() if why != NORMAL])
def test_a_harmless_event_is_no_exit(reason: str) -> None:
    seen = f"0 of 2 pods are ready: ml/chat-0: {reason}: an error occurred, invalid"
    assert cause("WORKLOAD_NOT_READY", seen) == FINDING_TYPES["WORKLOAD_NOT_READY"].cause


@pytest.mark.parametrize(("reason", "part"), [*CONTAINERS.items(), *NOT_OF_A_START.items()])
def test_a_reason_of_a_container_has_its_cause(reason: str, part: str) -> None:
    assert part in cause("WORKLOAD_NOT_READY", f"0 of 2 pods are ready: ml/chat-0: {reason}")


def test_no_container_that_the_kubelet_cannot_start_is_still_starting() -> None:
    assert {*_FAILURES} == {*CONTAINERS}


@pytest.mark.parametrize("reason", REASONS["rejections"])
def test_a_pod_that_the_kubelet_rejects_is_named(reason: str) -> None:
    """Its controller creates it again, and it is rejected again."""
    status = {"phase": "Failed", "reason": reason, "message": "Pod was rejected: it cannot run here: Error"}
    assert was_rejected({"status": status})
    assert not was_rejected({"status": {**status, "message": "The node was low on memory", "reason": "Evicted"}})
    assert "the kubelet rejects pods" in cause(
        "WORKLOAD_PODS_FAIL", f"1 pods were rejected: ml/chat-2: {reason}: Error"
    )


@pytest.mark.parametrize("reason", HPA)
def test_a_condition_of_the_hpa_controller_has_a_finding(reason: str) -> None:
    cluster, able = Cluster(), reason in ("FailedGetScale", "FailedUpdateScale")
    conditions: list[dict[str, Any]] = cluster.hpa["status"]["conditions"]
    row = 0 if able else 1
    assert conditions[row]["type"] == ("AbleToScale" if able else "ScalingActive")
    told = turned(conditions[row]["type"], "False", 3000, reason=reason, message="x")
    conditions[row] = {**told, "type": "ScaledToZero"} if reason == "NotScaledToZero" else told
    assert [found for found in ids(cluster.report()) if found.startswith("HPA_")] == [*filter(None, [HPA[reason]])]


@pytest.mark.parametrize("seen", REASONS["scheduler"])
def test_a_reason_of_the_scheduler_has_its_cause(seen: str) -> None:
    [part] = {expected for text, expected in SCHEDULER.items() if text in seen}
    assert part in cause("WORKLOAD_PODS_PENDING", f"1 of 2 pods: 0/3 nodes are available: 3 {seen}.")


@pytest.mark.parametrize("seen", ALSO)
def test_what_the_scheduler_builds_has_its_cause(seen: str) -> None:
    assert ALSO[seen] in cause("WORKLOAD_PODS_PENDING", f"1 of 2 pods: 0/3 nodes are available: 3 {seen}.")
