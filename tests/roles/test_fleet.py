"""What roles set by the size of the fleet: by the inventory, or by kubegpu_fleet."""

from __future__ import annotations

from typing import Any

from role_values import RoleValues

FLEET = "_common_fleet"


def values(role: str = "kubernetes", nodes: int = 0, autoscalers: int = 0, **more: Any) -> RoleValues:
    inventory = {"groups": {"kube_node": [f"gpu{number}" for number in range(nodes)]}}
    listed = {"gpu_autoscaling_autoscalers": [{"target": {"name": "chat"}}] * autoscalers}
    return RoleValues(role, inventory | listed | more, {})


def test_a_small_fleet_has_what_it_always_had() -> None:
    small = {"workers": 5, "requests": 200, "interval": 2, "memory_mib": 512, "millicores": 200}
    assert values(nodes=80, autoscalers=250)[FLEET] == small
    assert RoleValues("kubernetes", {}, {})[FLEET] == small, "an inventory without servers and autoscalers"


def test_what_is_said_counts_more_than_what_is_counted() -> None:
    fleet = values(nodes=3, autoscalers=2, kubegpu_fleet={"autoscalers": 1000})[FLEET]
    assert (fleet["workers"], fleet["memory_mib"]) == (20, 512)


LARGE = {"kubegpu_fleet": {"nodes": 2500, "autoscalers": 1250}}


def test_the_controller_manager_is_told() -> None:
    """By these two, which the role hands to its plan."""
    role = values(**LARGE)
    assert (role["kubernetes_hpa_concurrent_syncs"], role["_common_fleet.requests"]) == (25, 500)


def test_adapter_prometheus_and_exporter_are_told() -> None:
    adapter = values("prometheus_adapter", **LARGE)["__prometheus_adapter_values"]
    assert adapter["extraArguments"] == ["--metrics-max-age=120s", "--client-qps=500", "--client-burst=750"]
    stack = values("prometheus_stack", **LARGE)["__prometheus_stack_values"]
    assert stack["prometheus"]["prometheusSpec"]["resources"] == {"requests": {"cpu": "6250m", "memory": "12500Mi"}}
    exporter = values("dcgm_exporter", **LARGE)["__dcgm_exporter_values"]
    assert exporter["serviceMonitor"]["interval"] == "9s"
    operator = values("gpu_operator", **LARGE)["__gpu_operator_values"]["dcgmExporter"]
    assert (operator["serviceMonitor"]["interval"], operator["serviceMonitor"]["scrapeTimeout"]) == ("9s", "9s")


def test_rules_are_evaluated_as_seldom_as_samples_come() -> None:
    assert values("gpu_autoscaling", **LARGE)["gpu_autoscaling_prometheus"]["evaluation_interval"] == 9
    assert "evaluation_interval" not in values("gpu_autoscaling", nodes=300)["gpu_autoscaling_prometheus"]
    mine = values("gpu_autoscaling", kubegpu_prometheus={"evaluation_interval": 3}, **LARGE)
    assert mine["gpu_autoscaling_prometheus"]["evaluation_interval"] == 3
