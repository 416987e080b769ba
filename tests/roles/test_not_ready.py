"""What a role says of pods that it waited for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from collection import ROOT
from role_values import RoleValues

TASKS = yaml.safe_load((ROOT / "roles/_common/tasks/not_ready.yml").read_text())
ASKED: dict[str, Any] = {
    "namespace": "gpus",
    "selector": "app=exporter",
    "hop": "DCGM",
    "seen": "0 of 2",
    "fix": "look",
}


def said(pods: list[dict[str, Any]], events: list[dict[str, Any]] | None = None, asked: dict[str, Any] = ASKED) -> str:
    """events: refusals of the namespace; None where the user may not list them."""
    told = {"_common_pods": asked, "_common_pods_seen": {"resources": pods}}
    told["_common_pods_refused"] = {"msg": "forbidden"} if events is None else {"resources": events}
    return " ".join(RoleValues("_common", {}, told).text(TASKS[-1]["ansible.builtin.fail"]["msg"]).split())


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
        "DCGM: 0 of 2. There is no pod app=exporter in gpus. Refused were those of "
        'ReplicaSet adapter-5d: pods "adapter-5d-" is forbidden: RuntimeClass "nvidia" not found; '
        'of DaemonSet exporter: pods "exporter-b" is forbidden: violates PodSecurity "baseline:latest". '
        "The namespace's level of Pod Security is too strict for them: "
        "`kubectl label --overwrite namespace gpus pod-security.kubernetes.io/enforce=privileged` "
        "(docs/kubernetes.md). Next: look"
    )


def test_no_pod_without_a_refusal_is_told_alone() -> None:
    for events in ([], None):
        assert said([], events) == "DCGM: 0 of 2. There is no pod app=exporter in gpus. Next: look"


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
    asked = ASKED | {"nodes": nodes, "tolerations": [keys], "option": "exporter_values"}
    expected = (
        "Node gpu2 has the taint dedicated:NoSchedule, which they do not tolerate:"
        " add it to the tolerations in exporter_values."
    )

    assert said([], [], asked) == f"DCGM: 0 of 2. There is no pod app=exporter in gpus. {expected} Next: look"
    assert "taint" not in said([], [], asked | {"tolerations": [{"operator": "Exists"}]})


@pytest.mark.parametrize("role", ["dcgm_exporter", "gpu_operator", "nvidia_device_plugin"])
def test_roles_that_wait_for_nodes_tell_their_taints(role: str) -> None:
    (waiting,) = yaml.safe_load((ROOT / "roles" / role / "tasks" / "verify.yml").read_text())
    pods = waiting["rescue"][0]["vars"]["_common_pods"]
    seen = {"resources": [tainted("gpu2", ("dedicated", "NoSchedule"))]}
    told = {
        f"__{role}_seen": {"result": {"objects": [[], *([[]] * (role == "gpu_operator")), seen["resources"]]}},
        "__nvidia_device_plugin_nodes": seen,
        "kubegpu_cluster": {},
    }
    values = RoleValues(role, {}, told)
    assert [node["metadata"]["name"] for node in values[pods["nodes"].strip("{} ")]] == ["gpu2"]
    assert "nvidia.com/gpu" in [row["key"] for row in values[pods["tolerations"].strip("{} ")]]
    assert pods["option"].startswith(f"{role}_values")


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
    words = 'Refused were those of StatefulSet prometheus: pods "prometheus-0" is forbidden: exceeded quota: memory.'
    assert words in said([running("operator")], refused)


@pytest.mark.parametrize(
    ("pods", "asked"),
    [
        ([], True),
        ([running("operator"), running("exporter")], True),
        ([running("operator"), running("exporter", ready=False)], False),
        ([{"metadata": {"name": "x"}, "spec": {}, "status": {"phase": "Pending"}}], False),
    ],
)
def test_refusals_are_asked_for_where_no_pod_says_why(pods: list[dict[str, Any]], asked: bool) -> None:
    """Else those of the last hour may be over."""
    assert RoleValues("_common", {}, {"_common_pods_seen": {"resources": pods}})[TASKS[1]["when"]] is asked


def test_events_are_asked_for_where_there_is_no_pod() -> None:
    """Who may not list events is told the rest all the same."""
    asked = TASKS[1]
    assert asked["kubernetes.core.k8s_info"]["kind"] == "Event"
    assert asked["kubernetes.core.k8s_info"]["field_selectors"] == ["reason=FailedCreate"]
    assert asked["failed_when"] is False


WAITING = {
    "metrics_server": "Say what the server lacks",
    "nvidia_device_plugin": "Say which node offers none",
    "prometheus_adapter": "Say what the adapter lacks",
}


@pytest.mark.parametrize("role", WAITING)
def test_the_logs_are_named_by_the_release_whatever_its_name(role: str) -> None:
    """A chart calls its objects after the release alone where that has the chart's name in it."""
    (waiting,) = yaml.safe_load((ROOT / "roles" / role / "tasks" / "verify.yml").read_text())
    (telling,) = waiting["rescue"]
    assert telling["name"] == WAITING[role]
    fix = RoleValues(role, {f"{role}_release": "ours"}, {"kubegpu_cluster": {}}).text(
        telling["vars"]["_common_pods"]["fix"]
    )
    assert f"logs --selector app.kubernetes.io/instance=ours,app.kubernetes.io/name={role.replace('_', '-')}" in fix
