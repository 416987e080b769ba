"""Runs the role gpu_alerts: the operator's API accepts each rule, no other rule changes, and a removal deletes all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane import ControlPlane
from kubernetes import client
from playbook import changed, local, run_playbook
from workloads import Workloads

PLAY = local({"ansible.builtin.import_role": {"name": "kubegpu.autoscale.gpu_alerts"}})
NAMES = [f"kubegpu-alerts-{name}" for name in ("autoscalers", "chain", "gpus", "records", "servers")]
PLACE = ("monitoring.coreos.com", "v1", "monitoring", "prometheusrules")


@pytest.fixture
def play(
    tmp_path: Path, plane: tuple[ControlPlane, client.ApiClient], workloads: Workloads
) -> Iterator[Callable[..., str]]:
    def play(*flags: str, code: int = 0, **options: Any) -> str:
        done = run_playbook(tmp_path, PLAY, {"kubegpu_kubeconfig": str(plane[0].kubeconfig), **options}, *flags)
        assert done.returncode == code
        return done.stdout

    yield play
    play(gpu_alerts_state="absent")


def alerts(kube: client.ApiClient) -> dict[str, Any]:
    found = client.CustomObjectsApi(kube).list_namespaced_custom_object(*PLACE)["items"]
    return {
        rule_object["metadata"]["name"]: rule_object
        for rule_object in found
        if "alerts" in rule_object["metadata"]["name"]
    }


def test_present_and_absent_each_change_once(play: Callable[..., str], kube: client.ApiClient) -> None:
    assert changed(play("--check")) == 1
    assert alerts(kube) == {}
    assert changed(play()) == 1
    found = alerts(kube)
    assert sorted(found) == NAMES
    assert found[NAMES[0]]["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert "{{ $labels.node }}" in str(found["kubegpu-alerts-chain"])
    assert changed(play()) == 0
    assert changed(play(gpu_alerts_state="absent")) == 1
    assert alerts(kube) == {}


def test_alerts_are_left_out_and_labelled_as_asked(play: Callable[..., str], kube: client.ApiClient) -> None:
    play(gpu_alerts_disabled=["GpuHot"], gpu_alerts_labels={"team": "ml"})
    rules = [
        rule
        for rule_object in alerts(kube).values()
        for group in rule_object["spec"]["groups"]
        for rule in group["rules"]
    ]
    told = {rule["alert"]: rule["labels"] for rule in rules if "alert" in rule}
    assert "GpuHot" not in told
    assert told["GpuThrottled"] == {"severity": "warning", "hop": "node", "team": "ml"}

    said = play(code=2, gpu_alerts_disabled=["GpuCold"])
    assert "unknown alert GpuCold. Nothing was changed." in said


def test_a_rule_of_somebody_else_stays(play: Callable[..., str], kube: client.ApiClient) -> None:
    api = client.CustomObjectsApi(kube)
    theirs = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": NAMES[1], "namespace": "monitoring"},
        "spec": {"groups": []},
    }
    api.create_namespaced_custom_object(*PLACE, body=theirs)
    try:
        assert f"PrometheusRule monitoring/{NAMES[1]} is not managed by this collection" in play(code=2)
        assert sorted(alerts(kube)) == [NAMES[1]]
    finally:
        api.delete_namespaced_custom_object(*PLACE, name=NAMES[1])


def test_a_prometheus_of_somebody_else_gets_them_only_when_asked(
    play: Callable[..., str], kube: client.ApiClient
) -> None:
    theirs = {"kind": "Prometheus", "name": "a/theirs", "owned": False, "release": "", "service": "web"}
    there = {**theirs, "namespace": "monitoring", "port": 9090, "path_prefix": "", "rule_labels": {}}
    found = {
        "kubegpu_cluster": {"context": "test", "components": {"prometheus": [there]}},
        "kubegpu_cluster_ready": True,
    }

    assert changed(play(**found)) == 0
    assert alerts(kube) == {}
    assert changed(play(**found, gpu_alerts_state="present")) == 1
    assert sorted(alerts(kube)) == NAMES


def test_autoscalers_that_go_leave_the_alerts(
    play: Callable[..., str], run: Callable[..., Any], kube: client.ApiClient, workloads: Workloads
) -> None:
    workloads.deployment("chat")
    autoscaler = {"namespace": workloads.namespace, "target": {"name": "chat"}, "max_replicas": 2}
    play()
    run(autoscalers=[autoscaler], verify=False)
    run(autoscalers=[autoscaler], state="absent")
    assert sorted(alerts(kube)) == NAMES
