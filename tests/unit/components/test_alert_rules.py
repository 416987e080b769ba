"""The PrometheusRules of the role gpu_alerts: which alerts are in them, and with which labels."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.kubegpu.autoscale.plugins.filter.roles import dashboard_objects
from planned import plan_of

HOT = {"alert": "GpuHot", "expr": "temperature > 90", "labels": {"severity": "warning"}}
LOST = {"alert": "GpuLost", "expr": "absent(gpus)", "labels": {"severity": "error", "team": "ops"}}
HELD = {"record": "gpus:held", "expr": "sum(gpus)"}
FILES = {
    "gpus": {"groups": [{"name": "heat", "rules": [HOT]}, {"name": "all", "interval": "1m", "rules": [LOST, HELD]}]},
    "records": {"groups": [{"name": "records", "rules": [HELD]}]},
}
METADATA = {"namespace": "monitoring", "labels": {"release": "stack"}}


def made(**options: Any) -> dict[str, Any]:
    return plan_of("gpu_alerts", {"files": FILES}, namespace="monitoring", rule_labels={"release": "stack"}, **options)


def test_each_file_is_a_rule_object() -> None:
    gpus, records = made()["objects"]
    assert gpus["metadata"] == {"name": "kubegpu-alerts-gpus", **METADATA}
    assert gpus["spec"] == FILES["gpus"]
    assert (records["metadata"]["name"], records["spec"]) == ("kubegpu-alerts-records", FILES["records"])


def test_an_alert_that_is_disabled_is_left_out_with_a_group_that_is_empty_without_it() -> None:
    assert made(disabled=["GpuHot"])["objects"][0]["spec"]["groups"] == [FILES["gpus"]["groups"][1]]


def test_labels_of_the_inventory_go_to_alerts_alone_and_win() -> None:
    [heat, rest] = made(labels={"team": "ml"})["objects"][0]["spec"]["groups"]
    assert heat["rules"] == [{**HOT, "labels": {"severity": "warning", "team": "ml"}}]
    assert rest["rules"] == [{**LOST, "labels": {"severity": "error", "team": "ml"}}, HELD]


def test_a_disabled_alert_that_does_not_exist_is_an_error() -> None:
    assert made(disabled=["GpuHot"])["refused"] == []
    assert made(disabled=["GpuHot", "GpuCold"])["refused"] == [
        "gpu_alerts_disabled: unknown alert GpuCold. Nothing was changed. Next: use names of GpuHot, GpuLost."
    ]


def test_a_dashboard_is_a_config_map() -> None:
    written = {"title": "GPUs", "about": "All GPUs.", "rows": []}
    [found] = dashboard_objects({"fleet": written}, {"namespace": "monitoring", "labels": {"grafana_dashboard": "1"}})
    assert found["metadata"]["name"] == "kubegpu-dashboard-fleet"
    assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert json.loads(found["data"]["kubegpu-fleet.json"])["title"] == "GPUs"
