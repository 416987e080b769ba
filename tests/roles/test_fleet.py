"""What roles set by the size of the fleet: by the inventory, or by kubegpu_fleet."""

from __future__ import annotations

from typing import Any

import pytest
from role_values import RoleValues

FLEET = "_common_fleet"


def values(role: str = "kubernetes", nodes: int = 0, autoscalers: int = 0, **more: Any) -> RoleValues:
    inventory = {"groups": {"kube_node": [f"gpu{number}" for number in range(nodes)]}}
    listed = {"gpu_autoscaling_autoscalers": [{"target": {"name": "chat"}}] * autoscalers}
    return RoleValues(role, inventory | listed | more, {})


def test_a_small_fleet_has_shorter_periods() -> None:
    assert values(nodes=20)["kubernetes_hpa_sync_period"] == 2
    assert values(nodes=21)["kubernetes_hpa_sync_period"] == 5
    exporter = values("dcgm_exporter", nodes=20)["__dcgm_exporter_values"]["serviceMonitor"]
    assert (exporter["interval"], exporter["scrapeTimeout"]) == ("1s", "1s")
    adapter = values("prometheus_adapter", nodes=20)["__prometheus_adapter_values"]
    assert (adapter["metricsRelistInterval"], adapter["extraArguments"][0]) == ("10s", "--metrics-max-age=120s")
    assert values("gpu_autoscaling", nodes=20)["gpu_autoscaling_prometheus"]["evaluation_interval"] == 1


def test_periods_can_be_set_on_a_small_fleet() -> None:
    role = values(nodes=1, kubernetes_hpa_sync_period=15)
    assert (role["kubernetes_hpa_sync_period"], role[FLEET]["sync"]) == (15, 2)
    assert values(nodes=1, kubegpu_fleet={"nodes": 100})["kubernetes_hpa_sync_period"] == 5


def test_states_of_pods_are_scraped_more_often_where_keda_decides() -> None:
    def states(**more: Any) -> Any:
        stack = values("prometheus_stack", nodes=40, **more)
        return stack["__prometheus_stack_values['kube-state-metrics']"]

    each_4_s = {"prometheus": {"monitor": {"interval": "4s"}}}
    assert states() == {}
    assert states(kubegpu_metrics_backend="keda") == each_4_s
    assert states(gpu_autoscaling_autoscalers=[{"target": {"name": "chat"}, "backend": "keda"}]) == each_4_s


@pytest.mark.parametrize(
    ("nodes", "fleet", "has_budgets"),
    [
        (0, {}, True),
        (0, {"nodes": 1}, True),
        (1, {}, False),
        (1, {"nodes": "1"}, False),
        (1, {"nodes": 4}, True),
        (2, {}, True),
    ],
)
def test_no_budget_blocks_the_drain_of_the_only_node(nodes: int, fleet: dict[str, Any], has_budgets: bool) -> None:
    """An inventory without kube_node does not list all nodes, nor does one whose fleet has more."""
    for role in ("prometheus_adapter", "metrics_server"):
        enabled = values(role, nodes=nodes, kubegpu_fleet=fleet)[f"__{role}_values.podDisruptionBudget.enabled"]
        assert enabled is has_budgets
    budgets = values("keda", nodes=nodes, kubegpu_fleet=fleet)["__keda_values.podDisruptionBudget"]
    one_less = {"maxUnavailable": 1}
    assert budgets == ({"operator": one_less, "metricServer": one_less} if has_budgets else {})


LARGE = {"kubegpu_fleet": {"nodes": 2500, "autoscalers": 1250}}


def test_the_controller_manager_is_told() -> None:
    """By these two, which the role hands to its plan."""
    role = values(**LARGE)
    assert (role["kubernetes_hpa_concurrent_syncs"], role["_common_fleet.requests"]) == (25, 500)


def test_adapter_prometheus_and_exporter_are_told() -> None:
    adapter = values("prometheus_adapter", **LARGE)["__prometheus_adapter_values"]
    assert adapter["metricsRelistInterval"] == "30s"
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
