"""Why pods are not ready, in one sentence each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.module_utils.chain.waiting_pods import Awaited, report

AWAITED = Awaited(namespace="gpus", selector="app=exporter", hop="DCGM", seen="0 of 2", fix="look")
NO_POD = "DCGM: 0 of 2. No pod with label app=exporter exists in namespace gpus."


def said(pods: list[dict[str, Any]], events: list[dict[str, Any]] | None = None, awaited: Awaited = AWAITED) -> str:
    return report(awaited, pods, events or [])


def refusal(kind: str, name: str, message: str, second: int = 0) -> dict[str, Any]:
    created = f"2026-11-20T10:00:{second:02}Z"
    return {
        "involvedObject": {"kind": kind, "name": name},
        "message": message,
        "metadata": {"creationTimestamp": created},
    }


def test_pods_that_nobody_could_make_are_told_with_the_reason() -> None:
    """A level of Pod Security, a quota or a RuntimeClass that is missing: then there is no pod to look at."""
    events = [
        refusal("DaemonSet", "exporter", 'pods "exporter-b" is forbidden: violates PodSecurity "baseline:latest"', 2),
        refusal("DaemonSet", "exporter", 'pods "exporter-a" is forbidden: exceeded quota', 1),
        refusal("ReplicaSet", "adapter-5d", 'pods "adapter-5d-" is forbidden: RuntimeClass "nvidia" not found'),
    ]
    assert said([], events) == (
        f"{NO_POD} "
        'Pods of ReplicaSet adapter-5d were rejected: pods "adapter-5d-" is forbidden: RuntimeClass "nvidia" '
        'not found. Pods of DaemonSet exporter were rejected: pods "exporter-b" is forbidden: violates PodSecurity '
        '"baseline:latest". The Pod Security level of the namespace is too strict for them: '
        "`kubectl label --overwrite namespace gpus pod-security.kubernetes.io/enforce=privileged` "
        "(docs/kubernetes.md). Next: look"
    )


def test_no_pod_without_a_refusal_is_told_alone() -> None:
    assert said([]) == f"{NO_POD} Next: look"


def tainted(name: str, *taints: tuple[str, str]) -> dict[str, Any]:
    found = [{"key": key, "value": "ml", "effect": effect} for key, effect in taints]
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {"taints": found} if found else {}, "status": status}


def test_a_taint_that_keeps_pods_from_a_node_is_told() -> None:
    """On such a node there is no pod to look at, and its drivers are well."""
    nodes = [
        tainted("gpu1"),
        tainted("gpu2", ("nvidia.com/gpu", "NoSchedule"), ("dedicated", "NoSchedule")),
        tainted("gpu3", ("node.kubernetes.io/unschedulable", "NoSchedule"), ("old", "PreferNoSchedule")),
    ]
    keys = {"key": "nvidia.com/gpu", "operator": "Exists"}
    awaited = replace(AWAITED, nodes=nodes, tolerations=[keys], option="exporter_values")
    expected = (
        "Node gpu2 has the taint dedicated:NoSchedule, which they do not tolerate:"
        " add it to the tolerations in exporter_values."
    )

    assert said([], [], awaited) == f"{NO_POD} {expected} Next: look"
    assert "taint" not in said([], [], replace(awaited, tolerations=[{"operator": "Exists"}]))


def test_a_container_that_others_wait_for_is_told() -> None:
    """Of a pod that is not past its init containers, the others say PodInitializing alone."""
    waiting = {"waiting": {"reason": "PodInitializing"}}
    pulling = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    done = {"terminated": {"reason": "Completed"}}
    status = {
        "phase": "Pending",
        "initContainerStatuses": [
            {"name": "first", "ready": True, "state": done},
            {"name": "toolkit", "ready": False, "state": pulling},
        ],
        "containerStatuses": [{"name": "plugin", "ready": False, "state": waiting}],
    }
    pod = {"metadata": {"name": "plugin-x"}, "spec": {"nodeName": "gpu1"}, "status": status}
    assert "is Pending, toolkit: ImagePullBackOff (no such image), plugin: PodInitializing." in said([pod])


def running(name: str, ready: bool = True) -> dict[str, Any]:
    state = {"running": {}} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {"phase": "Running", "containerStatuses": [{"name": "main", "ready": ready, "state": state}]}
    return {"metadata": {"name": name}, "spec": {"nodeName": "gpu1"}, "status": status}


def test_a_refusal_is_told_beside_pods_that_are_well() -> None:
    """A quota that has room for the operator and none for Prometheus: of the pods there nobody learns why."""
    refused = [refusal("StatefulSet", "prometheus", 'pods "prometheus-0" is forbidden: exceeded quota: memory')]
    words = 'Pods of StatefulSet prometheus were rejected: pods "prometheus-0" is forbidden: exceeded quota: memory.'
    assert words in said([running("operator")], refused)


def test_rejections_count_only_where_no_pod_says_what_it_lacks() -> None:
    """Rejections of the last hour may be over."""
    rejected = [refusal("StatefulSet", "prometheus", "exceeded quota: memory")]
    pending = {"metadata": {"name": "x"}, "spec": {}, "status": {"phase": "Pending"}}
    for pods in ([running("operator"), running("exporter", ready=False)], [pending]):
        assert "quota" not in said(pods, rejected)
