"""An alert fires only for its fault, and resolves when that is fixed. Here it waits ten seconds, not minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from faults import FAULTS, with_replicas, without_profiling
from live_lab import MONITORING, STACK, STEADY, Lab, Manifest, wait_until, wait_until_healed

pytestmark = pytest.mark.slow

PART = "app.kubernetes.io/managed-by=kubegpu.autoscale,app.kubernetes.io/part-of=gpu-alerts"
LASTS_S = 10
# kube-state-metrics is read every half minute, and an update of a workload takes one.
FIRES_S = 300
# Some look back two minutes, and a series that has gone lasts for five.
ENDS_S = 480


@contextmanager
def kube_state_metrics_is_gone(lab: Lab) -> Iterator[None]:
    with lab.changed("Deployment", f"{STACK}-kube-state-metrics", with_replicas(0)):
        yield


BREAKING = {fault.name: fault.breaking for fault in FAULTS}
# The others look back for hours, or want a sensor that the lab's GPUs lack, or another node for Prometheus.
# tests/rules/alerts.yml has them.
CASES = {
    "GpuNotOffered": BREAKING["the_device_plugin_runs_without_the_nvidia_runtime"],
    "GpuExporterDown": BREAKING["the_exporter_is_asked_for_another_page"],
    "GpuExporterServesNothing": BREAKING["the_driver_is_reloaded_under_the_exporter"],
    "GpuExporterMissing": BREAKING["a_relabeling_drops_the_target"],
    "GpuProfilingLost": without_profiling,
    "GpuPodWithoutSeries": BREAKING["the_exporter_is_not_told_to_name_pods"],
    "GpuRuleFails": BREAKING["the_rule_matches_many_to_many"],
    "GpuMetricsApiUnavailable": BREAKING["the_adapter_is_gone"],
    "GpuAlertsBlind": kube_state_metrics_is_gone,
    "GpuAutoscalerNotActive": BREAKING["the_rule_asks_for_a_job_that_is_not_there"],
    "GpuAutoscalerCannotScale": BREAKING["the_target_is_not_there"],
    "GpuAutoscalerAtMaximum": BREAKING["the_maximum_is_too_low_for_the_load"],
    "GpuPodsWaitForGpus": BREAKING["no_node_takes_the_pods"],
    "GpuPodsFail": BREAKING["an_update_of_the_workload_has_no_image"],
    "GpuXidHardware": BREAKING["an_xid_error_takes_a_free_gpu_out_of_use"],
}


def sooner(rules: Manifest) -> None:
    for group in rules["spec"]["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = f"{LASTS_S}s"


@pytest.fixture(scope="module")
def alerting(lab: Lab) -> Iterator[Lab]:
    with ExitStack() as stack:
        for rules in lab.find("PrometheusRule", MONITORING, label_selector=PART):
            stack.enter_context(lab.changed("PrometheusRule", rules["metadata"]["name"], sooner))
        wait_until(lambda: durations(lab) == {0, LASTS_S}, f"Prometheus waits {LASTS_S} s", 180)
        yield lab


def durations(lab: Lab) -> set[float]:
    """Seconds that Prometheus waits before it fires an alert of ours."""
    answer = lab.raw(f"/api/v1/namespaces/{MONITORING}/services/{STACK}-prometheus:9090/proxy/api/v1/rules")
    rules = [rule for group in answer["data"]["groups"] for rule in group["rules"]]
    return {rule["duration"] for rule in rules if rule["type"] == "alerting" and rule["name"].startswith("Gpu")}


def firing(lab: Lab) -> set[str]:
    return set(lab.query('ALERTS{alertname=~"Gpu.+",alertstate="firing"}', by="alertname"))


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_for_its_fault_alone_and_ends_with_it(alerting: Lab, alert: str) -> None:
    seen: list[set[str]] = []

    def fires_alone() -> bool:
        seen.append(firing(alerting))
        return seen[-STEADY:] == [{alert}] * STEADY

    with CASES[alert](alerting):
        wait_until(fires_alone, lambda: f"{alert} alone; last seen: {seen[-STEADY:]}", FIRES_S, every_s=5)
    wait_until(lambda: not firing(alerting), lambda: f"no alert; seen: {firing(alerting)}", ENDS_S, every_s=5)
    wait_until_healed(alerting, "silence", ENDS_S)
