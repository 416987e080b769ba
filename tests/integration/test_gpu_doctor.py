"""The doctor against a real control plane with Prometheus and prometheus-adapter; there is no node but fake ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from control_plane import eventually
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from metric_chain import PROOF_S, MetricChain
from workloads import Workloads

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def spec(run: Run, chain: MetricChain, workloads: Workloads) -> dict[str, Any]:
    """An autoscaler that works, on a node with GPUs."""
    workloads.deployment("chat")
    workloads.node("gpu1", gpus=4)
    for pod in ("chat-0", "chat-1"):
        workloads.ready_pod(pod, app="chat")
    chain.exporter.gpus(workloads.namespace, {"chat-0": 50, "chat-1": 30})
    spec = {"namespace": workloads.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    proven = run(verify=True, wait_timeout=PROOF_S, autoscalers=[spec])
    assert not proven.get("failed")
    return spec


@pytest.fixture
def examine(run: Run, workloads: Workloads) -> Callable[..., dict[str, Any]]:
    def examine(**options: Any) -> dict[str, Any]:
        done = run("gpu_doctor", **{"namespace": workloads.namespace, "grace": False, **options})
        assert done["changed"] is False
        return done["result"]

    return examine


def causes(report: dict[str, Any]) -> list[str]:
    return [finding["id"] for finding in report["findings"]]


def settled(
    examine: Callable[..., dict[str, Any]],
    found: list[str],
    is_so: Callable[[dict[str, Any]], object] = lambda report: True,
) -> dict[str, Any]:
    """The first report that finds this and nothing else. A scrape that is lost meanwhile changes what is found."""
    last: list[str] = []

    def report() -> dict[str, Any] | None:
        seen = examine()
        last[:] = causes(seen)
        return seen if last == found and is_so(seen) else None

    try:
        return eventually(report, f"the doctor finds {found}", PROOF_S)
    finally:
        print("found at last:", last)  # pytest shows it when the test fails


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {hop["id"]: hop["status"] for hop in report["hops"]}


def test_a_chain_that_works(examine: Callable[..., dict[str, Any]], spec: dict[str, Any]) -> None:
    report = settled(examine, [], lambda report: report["autoscalers"][0]["history"])
    assert causes(report) == []
    assert (report["verdict"], report["cluster"]["gpu_nodes"]) == ("ok", 1)
    # There are no DaemonSets here, so nothing can be said of them.
    expected = {**dict.fromkeys(statuses(report), "ok"), "device_plugin": "unknown", "node_labels": "unknown"}
    assert statuses(report) == expected
    [autoscaler] = report["autoscalers"]
    assert autoscaler["verified"] is True
    assert autoscaler["metric"] == "gpu"
    assert autoscaler["budget"]["evaluate_s"] == 2
    assert autoscaler["history"]["value"][-1] == 40
    assert [unchecked["check"] for unchecked in report["not_checked"]] == ["drivers, by gpu_facts"]


def test_an_adapter_that_is_down(
    examine: Callable[..., dict[str, Any]], chain: MetricChain, spec: dict[str, Any]
) -> None:
    with chain.adapter_away():
        report = settled(examine, ["METRICS_API_UNAVAILABLE"])
        young = examine(grace=True)
    assert causes(report) == ["METRICS_API_UNAVAILABLE"]
    assert statuses(report)["metric"] == "consequence"
    assert report["autoscalers"][0]["verified"] is False
    assert causes(young) == []


def test_a_rule_that_is_not_loaded(
    run: Run, examine: Callable[..., dict[str, Any]], chain: MetricChain, spec: dict[str, Any]
) -> None:
    options = {"prometheus": {"rule_labels": {"release": "another"}}}
    run(autoscalers=[spec], **options)
    report = settled(examine, ["RULE_NOT_LOADED"], lambda report: statuses(report)["metric"] == "consequence")
    assert causes(report) == ["RULE_NOT_LOADED"]
    assert statuses(report)["labels"] == "ok"


def test_an_exporter_that_says_nothing(
    examine: Callable[..., dict[str, Any]], chain: MetricChain, spec: dict[str, Any]
) -> None:
    chain.exporter.text = ""
    report = settled(examine, ["EXPORTER_MISSING"], lambda report: statuses(report)["metric"] == "consequence")
    assert causes(report) == ["EXPORTER_MISSING"]
    assert [hop for hop, status in statuses(report).items() if status == "broken"] == ["exporter"]


def test_findings_fail_the_task_if_asked_to(run: Run, chain: MetricChain, spec: dict[str, Any]) -> None:
    chain.exporter.text = ""
    options = {"namespace": spec["namespace"], "grace": False, "fail_on": "error"}

    def failed() -> dict[str, Any] | None:
        done = run("gpu_doctor", **options)
        return done if done.get("failed") and done.get("hop") == "exporter" else None

    done = eventually(failed, "its series end", PROOF_S)
    assert done["hop"] == "exporter"
    assert "run the dcgm_exporter role" in done["msg"]
    assert done["result"]["verdict"] == "broken"


def test_an_autoscaler_that_there_is_not(run: Run, workloads: Workloads) -> None:
    done = run("gpu_doctor", namespace=workloads.namespace, name="nobody")
    assert f"unknown HPA {workloads.namespace}/nobody" in done["msg"]


def test_an_hpa_that_wants_fewer_and_may_not_says_so(
    run: Run,
    examine: Callable[..., dict[str, Any]],
    kube: client.ApiClient,
    chain: MetricChain,
    workloads: Workloads,
) -> None:
    """In the words of the controller. No policy can forbid it: the API server takes none that allows nothing."""
    workloads.deployment("chat", replicas=2)
    workloads.node("gpu1", gpus=4)
    pods = ("chat-0", "chat-1")
    for pod in pods:
        workloads.ready_pod(pod, app="chat")
    chain.exporter.gpus(workloads.namespace, dict.fromkeys(pods, 40))
    wanted = {"namespace": workloads.namespace, "target": {"name": "chat"}, "max_replicas": 4}
    wanted["scale_down"] = {"select_policy": "Disabled", "stabilization_window_seconds": 0}
    assert not run(verify=True, wait_timeout=PROOF_S, autoscalers=[wanted]).get("failed")
    assert "HPA_DOWN_DISABLED" not in causes(examine())

    chain.exporter.gpus(workloads.namespace, dict.fromkeys(pods, 5))
    [finding] = settled(examine, ["HPA_DOWN_DISABLED"])["findings"]
    assert "ScaleDownLimit: the desired replica count is decreasing faster" in finding["seen"][0]

    api = client.AutoscalingV2Api(kube)
    for policy in ({"value": 0, "periodSeconds": 60}, {"value": 1, "periodSeconds": 1801}):
        body = {"spec": {"behavior": {"scaleUp": {"policies": [{"type": "Pods", **policy}]}}}}
        with pytest.raises(ApiException, match="must be"):
            api.patch_namespaced_horizontal_pod_autoscaler("chat", workloads.namespace, body)
