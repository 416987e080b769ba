"""Errors of a role about pods that it waited for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from collection import ROOT
from role_values import RoleValues

TASKS = yaml.safe_load((ROOT / "roles/_common/tasks/not_ready.yml").read_text())


def tainted(name: str, *taints: tuple[str, str]) -> dict[str, Any]:
    found = [{"key": key, "value": "ml", "effect": effect} for key, effect in taints]
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {"taints": found} if found else {}, "status": status}


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


def test_the_error_does_not_need_the_right_to_list_events() -> None:
    awaited = {"namespace": "gpus", "selector": "app=exporter", "hop": "DCGM", "seen": "0 of\n2", "fix": "look"}
    told = {
        "_common_pods": awaited,
        "_common_pods_seen": {"resources": []},
        "_common_pods_refused": {"msg": "forbidden"},
    }

    error = RoleValues("_common", {}, told).text(TASKS[-1]["ansible.builtin.fail"]["msg"])

    assert error == "DCGM: 0 of 2. No pod with label app=exporter exists in namespace gpus. Next: look"
    assert TASKS[1]["failed_when"] is False


WAITING = {
    "metrics_server": "Report why metrics-server is not ready",
    "nvidia_device_plugin": "Report nodes without allocatable GPUs",
    "prometheus_adapter": "Report why the adapter is not ready",
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
