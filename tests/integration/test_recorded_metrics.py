"""Metrics without an autoscaler, and HPAs of other owners that read them, on a real Prometheus and adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Timer
from typing import Any

import pytest
from ansible_collections.kubegpu.autoscale.plugins.module_utils.autoscaling.recorded_metrics import read_metrics
from control_plane import eventually
from kubernetes import client
from metric_chain import PROOF_S, MetricChain
from prometheus_rules import GROUP, rules
from workloads import Workloads

Run = Callable[..., dict[str, Any]]
USED = {"chat-0": 30.0, "chat-1": 90.0}
SCRAPED_AFTER_S = 5


@pytest.fixture
def monitors(kube: client.ApiClient, workloads: Workloads) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The PodMonitors of the cluster, with two pods whose gauge Prometheus scrapes."""
    workloads.deployment("chat", gpus=0, replicas=2)
    for pod in USED:
        workloads.ready_pod(pod, app="chat", start_s=600)
    with workloads.kind("PodMonitor", f"{GROUP}/v1"):
        api = client.CustomObjectsApi(kube)
        yield lambda: api.list_cluster_custom_object(GROUP, "v1", "podmonitors")["items"]


@pytest.fixture
def gauge(chain: MetricChain, workloads: Workloads) -> Iterator[dict[str, Any]]:
    rows = [(workloads.namespace, pod, value) for pod, value in USED.items()] + [("elsewhere", "other-0", 1000.0)]
    entry = {"namespace": workloads.namespace, "name": "queue_depth", "scrape": {"port": "metrics"}}
    [metric] = read_metrics([entry])
    chain.exporter.text = "".join(
        f'queue_depth{{namespace="{namespace}",pod="{pod}"}} {value}\n'
        f'up{{job="{metric.job}",namespace="{namespace}",pod="{pod}"}} 1\n'
        for namespace, pod, value in rows
    )
    yield entry
    chain.exporter.text = ""


def hpa(kube: client.ApiClient, workloads: Workloads) -> None:
    """An HPA that no module of this collection created."""
    metric = {"metric": {"name": "queue_depth"}, "target": {"type": "AverageValue", "averageValue": "20"}}
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "chat", "apiVersion": "apps/v1"},
        "maxReplicas": 6,
        "metrics": [{"type": "Pods", "pods": metric}],
    }
    client.AutoscalingV2Api(kube).create_namespaced_horizontal_pod_autoscaler(
        workloads.namespace, {"metadata": {"name": "theirs"}, "spec": spec}
    )


def test_an_existing_hpa_scales_on_a_recorded_metric_and_is_seen(
    run: Run, kube: client.ApiClient, workloads: Workloads, monitors: Any, gauge: dict[str, Any], chain: MetricChain
) -> None:
    """Its pods are scraped only after the module has created their PodMonitor."""
    hpa(kube, workloads)
    Timer(SCRAPED_AFTER_S, setattr, (chain.exporter, "text", chain.exporter.text)).start()
    chain.exporter.text = ""
    made = run(autoscalers=[], metrics=[gauge], inventory_id="one", verify=True, wait_timeout=PROOF_S)
    assert not made.get("failed"), made
    [recorded] = made["result"]["recorded"]
    assert (recorded["pod_values"], recorded["verified"]) == (USED, True)

    hpas = client.AutoscalingV2Api(kube)

    def decided() -> bool:
        status = hpas.read_namespaced_horizontal_pod_autoscaler("theirs", workloads.namespace).status
        return status.desired_replicas in (4, 6)

    eventually(decided, "the HPA scales up on 60 of 20", PROOF_S)
    [seen] = run("gpu_autoscaler_info", namespace=workloads.namespace)["result"]["autoscalers"]
    assert (seen["name"], seen["managed"], seen["pod_values"]) == ("theirs", False, USED)
    report = run("gpu_doctor", namespace=workloads.namespace)["result"]
    assert [one["name"] for one in report["autoscalers"]] == ["theirs"]

    kept = run(autoscalers=[], metrics=[], inventory_id="one")
    assert (kept["changed"], len(rules(kube)), len(monitors())) == (False, 1, 1)
    assert "an HPA reads the metric: " in str(kept["warnings"])
    hpas.delete_namespaced_horizontal_pod_autoscaler("theirs", workloads.namespace)
    run(autoscalers=[], metrics=[], inventory_id="one")
    assert (rules(kube), monitors()) == ([], [])


def test_each_entry_is_owned_by_its_inventory_and_goes_with_the_list(
    run: Run, kube: client.ApiClient, workloads: Workloads, monitors: Any, gauge: dict[str, Any]
) -> None:
    wanted = {"autoscalers": [], "metrics": [gauge], "inventory_id": "one"}
    assert run(check=True, **wanted)["changed"] is True
    assert (rules(kube), monitors()) == ([], [])
    assert run(**wanted)["changed"] is True
    assert run(**wanted)["changed"] is False
    assert [len(rules(kube)), len(monitors())] == [1, 1]

    other = run(**{**wanted, "inventory_id": "two"})
    assert other["failed"]
    assert "belongs to inventory one" in other["msg"]
    for quiet in ({"metrics": [], "inventory_id": "two"}, {"inventory_id": "one"}):
        assert run(autoscalers=[], **quiet)["changed"] is False
    assert [len(rules(kube)), len(monitors())] == [1, 1]

    run(autoscalers=[], metrics=[{**gauge, "scrape": None}], inventory_id="one")
    assert [len(rules(kube)), len(monitors())] == [1, 0]
    run(state="absent", autoscalers=[], metrics=[], inventory_id="one")
    assert (rules(kube), monitors()) == ([], [])


def test_an_autoscaler_takes_the_metric_over_and_leaves_nothing(
    run: Run, kube: client.ApiClient, workloads: Workloads, monitors: Any, gauge: dict[str, Any]
) -> None:
    entry = {**gauge, "scrape": None}
    query = "max by (namespace, pod) (queue_depth)"
    spec = {
        "namespace": workloads.namespace,
        "target": {"name": "chat"},
        "max_replicas": 2,
        "metric": {"name": "queue_depth", "query": query},
        "target_value": 20,
    }
    run(autoscalers=[], metrics=[entry])
    both = run(autoscalers=[spec], metrics=[entry])
    assert both["failed"]
    assert "recorded for an autoscaler" in both["msg"]
    assert not run(autoscalers=[spec], metrics=[]).get("failed")
    assert len(rules(kube)) == 1
    later = run(autoscalers=[], metrics=[entry])
    assert later["failed"]
    assert "exists for an autoscaler" in later["msg"]
    run(state="absent", autoscalers=[spec], metrics=[])
    assert rules(kube) == []


@pytest.mark.parametrize("query", ["queue_depth{", "sum(queue_depth)", "queue_depth or label_replace(queue_depth, "
                                   '"x", "y", "", "")'])  # fmt: skip
def test_a_query_that_is_not_one_series_a_pod_changes_nothing(
    run: Run, kube: client.ApiClient, monitors: Any, gauge: dict[str, Any], query: str
) -> None:
    def refused() -> bool:
        result = run(autoscalers=[], metrics=[{**gauge, "query": query}])
        assert result.get("failed") or "returns nothing" in str(result["warnings"]), result
        return bool(result.get("failed")) and "its query is not usable" in result["msg"]

    eventually(refused, "the gauge is scraped and the query refused", PROOF_S)


def test_a_missing_namespace_and_a_metric_without_pods_are_said(
    run: Run, kube: client.ApiClient, monitors: Any, chain: MetricChain
) -> None:
    missing = run(autoscalers=[], metrics=[{"namespace": "nowhere", "scrape": {"port": "metrics"}}])
    assert missing["failed"]
    assert "namespace nowhere does not exist" in missing["msg"]
    assert (rules(kube), monitors()) == ([], [])
    silent = run(autoscalers=[], metrics=[{"namespace": "nowhere", "name": "no_such_gauge"}], verify=True)
    assert "metric nowhere/no_such_gauge was not proven" in str(silent["warnings"])
